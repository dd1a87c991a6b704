"""Looks at a bundle's catalogue store again and again, so that what others make current there goes live here."""

import asyncio
import logging
from collections.abc import Awaitable, Callable

from recall_service.serving.hooks import Observer

logger = logging.getLogger(__name__)

_MOST_SECONDS_BETWEEN_TRIES = 60.0


async def watch_store(bundle: str, follow: Callable[[], Awaitable[None]], seconds: float, observer: Observer) -> None:
    """Until cancelled, every so many seconds. What cannot be made live is tried again, more and more seldom.

    bundle: its name. follow: makes live what is current in the store, or raises what keeps it from that.
    Each try that fails is counted; what keeps on failing for one reason is logged once.
    """
    problem, delay = "", seconds
    while True:
        await asyncio.sleep(delay)
        try:
            await follow()
        except Exception as error:  # noqa: BLE001  whatever it is, the old stays live and the next look may succeed
            observer.reloaded("catalog", "failed")
            if str(error) != problem:
                logger.error(
                    "bundle %s: what its store has become cannot be served, and the old stays: %s", bundle, error
                )
            problem = str(error)
            delay = max(seconds, min(_MOST_SECONDS_BETWEEN_TRIES, 2 * delay))
        else:
            problem, delay = "", seconds
