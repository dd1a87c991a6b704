"""How a peer is asked: one JSON question a line on stdin, one JSON answer a line on stdout, in turns.

A question is {"prompt": [token ids], "width": beams, "new_tokens": count}; an answer is {"seconds", "top_score"}, the
score being the best beam's sum of log-probabilities. Whatever a library prints goes to stderr. These scripts run in
environments of their own and import nothing of this project's packages.
"""

import json
import os
import sys
import time
from collections.abc import Callable


def answer_questions(search: Callable[[list[int], int, int], float]) -> None:
    """Answer until stdin ends. search: prompt, width, new tokens -> top score."""
    for line in sys.stdin:
        question = json.loads(line)
        start = time.perf_counter()
        top_score = search(question["prompt"], question["width"], question["new_tokens"])
        answer = {"seconds": time.perf_counter() - start, "top_score": float(top_score)}
        os.write(_ANSWERS, (json.dumps(answer) + "\n").encode())


_ANSWERS = os.dup(1)
os.dup2(2, 1)  # a print, of Python or of C, must not look like an answer
