"""`recall-service serve` with a model that fails when asked to: `python -m tests.faults.serve --bundle DIR ...`.

For every line on stdin it writes one line: a JSON list of what the engines hold on to, and how many versions of the
bundle are there beside the live one; empty when all of it is free.
"""

import json
import os
import sys
import threading
import traceback
from weakref import WeakSet

from recall_service.cli import app
from recall_service.engine.engine import BeamEngine
from recall_service.serving.bundles.bundle import Bundle
from recall_service.serving.bundles.launch import Launch
from recall_service.serving.bundles.registry import LiveBundle
from recall_service.serving.engine_runner import EngineRunner
from tests.engine.driving import assert_all_free
from tests.faults.model_faults import install

_engines: list[BeamEngine] = []
_versions: WeakSet[LiveBundle] = WeakSet()


def main() -> None:
    install()
    _remember_engines()
    _remember_versions()
    threading.Thread(target=_answer_stdin, daemon=True).start()
    app(["serve", *sys.argv[1:]])


def _remember_engines() -> None:
    made = BeamEngine.__post_init__

    def remember(engine: BeamEngine) -> None:
        made(engine)
        _engines.append(engine)

    BeamEngine.__post_init__ = remember  # type: ignore[method-assign]


def _remember_versions() -> None:
    made = Launch.join

    def remember(launch: Launch, bundle: Bundle, runner: EngineRunner) -> LiveBundle:
        live = made(launch, bundle, runner)
        _versions.add(live)
        return live

    Launch.join = remember  # type: ignore[method-assign]


def _answer_stdin() -> None:
    for _ in sys.stdin:
        held = [something for engine in _engines if (something := _held(engine))]
        if (num_old := len(_versions) - 1) > 0:
            held.append(f"{num_old} versions that were replaced")
        sys.stdout.write(json.dumps(held) + "\n")
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
