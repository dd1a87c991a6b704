"""A bundle read anew while it serves: model, prompt and catalogue, on an engine beside the old one.

For a while both need memory. Knows no catalogue stores.
"""

import asyncio
import time

from recall_service.errors import BundleError
from recall_service.serving.bundles.launch import Launch
from recall_service.serving.bundles.live_bundle import LiveBundle


async def relaunched(live: LiveBundle, launch: Launch) -> LiveBundle:
    """The bundle of the same directory as it is now, warm, on an engine of its own; it is not live yet.

    Raises SetupError; then nothing of it is left.
    """
    directory, name = live.bundle.directory, live.info.name
    bundle = await asyncio.to_thread(launch.load, directory)
    if bundle.name != name:
        raise BundleError(f"{directory}: bundle.name is {bundle.name!r}, and {name!r} is live; restart to rename it")
    fresh = await asyncio.to_thread(launch.start, bundle)
    try:
        started = time.perf_counter()
        await fresh.warm_up()
        launch.observer.warmed_up(name, time.perf_counter() - started)
        await fresh.warm_filters(live.filters.recent())
    except BaseException:
        await asyncio.to_thread(fresh.runner.stop)
        raise
    return fresh
