"""A server around a backend that takes 50 ms, in its own process: `python -m tests.rpc.serve_fake`.

Writes its port once it serves, ends as `serve_until_signal` lets it, and then writes how many questions it answered.
"""

import asyncio
import sys
from collections.abc import Sequence

from recall_service.rpc.server import RecallServer
from recall_service.serving.query import BundleInfo, RecallAnswer, RecallQuery
from tests.rpc.fake_backend import MAIN, make_answer

SCENE_OF_HOURS = "hours"
NOTICE_SECONDS = 1.0


class SlowBackend:
    """Takes 50 ms for every question, but hours for one of scene "hours"."""

    num_answered = 0

    async def recall(self, query: RecallQuery, scene: str) -> RecallAnswer:
        await asyncio.sleep(7_200 if scene == SCENE_OF_HOURS else 0.05)
        self.num_answered += 1
        return make_answer()

    def bundles(self) -> Sequence[BundleInfo]:
        return (MAIN,)


async def main() -> None:
    backend = SlowBackend()
    server = RecallServer(backend, "127.0.0.1:0", drain_notice_seconds=NOTICE_SECONDS, drain_seconds=30)
    port = await server.start()
    await server.mark_serving()
    signalled = asyncio.create_task(server.serve_until_signal())
    await asyncio.sleep(0)  # its signal handlers are in place from here on
    write_line(port)
    await signalled
    write_line(backend.num_answered)


def write_line(number: int) -> None:
    sys.stdout.write(f"{number}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    asyncio.run(main())
