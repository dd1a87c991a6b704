"""`recall-service serve` with a model that fails when asked to: `python -m tests.faults.serve --bundle DIR ...`.

For every line on stdin it writes one line: a JSON list of what the engines hold on to, empty when all of it is free.
"""

import json
import os
import sys
import threading
import traceback

from recall_service.cli import app
from recall_service.engine.engine import BeamEngine
from tests.engine.driving import assert_all_free
from tests.faults.model_faults import install

_engines: list[BeamEngine] = []


def main() -> None:
    install()
    _remember_engines()
    threading.Thread(target=_answer_stdin, daemon=True).start()
    app(["serve", *sys.argv[1:]])


def _remember_engines() -> None:
    made = BeamEngine.__post_init__

    def remember(engine: BeamEngine) -> None:
        made(engine)
        _engines.append(engine)

    BeamEngine.__post_init__ = remember  # type: ignore[method-assign]


def _answer_stdin() -> None:
    for _ in sys.stdin:
        sys.stdout.write(json.dumps([held for engine in _engines if (held := _held(engine))]) + "\n")
        sys.stdout.flush()
    os._exit(1)  # whoever started this server is gone, and nobody will stop it


def _held(engine: BeamEngine) -> str:
    try:
        assert_all_free(engine)
    except AssertionError as error:
        return traceback.extract_tb(error.__traceback__)[-1].line or "something"
    return ""


if __name__ == "__main__":
    main()
