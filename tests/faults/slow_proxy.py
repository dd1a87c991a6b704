"""A TCP proxy that holds every byte back for a while, as a network or a busy Redis would. Knows no protocol."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

_CHUNK_BYTES = 65_536


@asynccontextmanager
async def slow_proxy(port: int, upstream_port: int, delay_seconds: float) -> AsyncIterator[None]:
    """Listen on a loopback port; what is sent there reaches the upstream port later by the delay, and so do replies."""
    pumps: set[asyncio.Task[None]] = set()

    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        upstream_reader, upstream_writer = await asyncio.open_connection("127.0.0.1", upstream_port)
        for source, sink in ((reader, upstream_writer), (upstream_reader, writer)):
            pump = asyncio.create_task(_pump(source, sink, delay_seconds / 2))
            pumps.add(pump)
            pump.add_done_callback(pumps.discard)

    server = await asyncio.start_server(connected, "127.0.0.1", port)
    try:
        yield
    finally:
        server.close()
        for pump in pumps:
            pump.cancel()
        await asyncio.gather(*pumps, return_exceptions=True)


async def _pump(source: asyncio.StreamReader, sink: asyncio.StreamWriter, delay_seconds: float) -> None:
    with suppress(ConnectionError):
        try:
            while chunk := await source.read(_CHUNK_BYTES):
                await asyncio.sleep(delay_seconds)
                sink.write(chunk)
                await sink.drain()
        finally:
            sink.close()
