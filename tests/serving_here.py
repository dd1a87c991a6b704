"""The whole service in this process, ended by SIGTERM as in production."""

import asyncio
import os
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from recall_service.app import Serving, serve
from recall_service.config import Settings


def small_settings(*bundles: Path, **changes: Any) -> Settings:
    """Fit for a tiny bundle: on free ports, with a drain that gives no notice."""
    anywhere = {"port": 0, "metrics_port": 0, "admin_port": 0, "drain_notice_seconds": 0}
    small = {"max_rows": 64, "max_prompt_tokens": 64, "max_context_tokens": 640}
    return Settings(bundles=bundles, **{**anywhere, **small, **changes})


@asynccontextmanager
async def serving_here(settings: Settings) -> AsyncIterator[Serving]:
    """While it lasts, the service serves. Raises what keeps it from it."""
    started: asyncio.Future[Serving] = asyncio.get_running_loop().create_future()
    server = asyncio.create_task(serve(settings, started.set_result))
    await asyncio.wait([started, server], return_when=asyncio.FIRST_COMPLETED)
    if server.done():  # a signal would end the tests
        await server
    try:
        yield started.result()
    finally:
        os.kill(os.getpid(), signal.SIGTERM)
        await asyncio.wait_for(server, 10)
