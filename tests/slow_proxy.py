"""A proxy in front of a server, which may hold every reply back for a while; and a port where nobody ever answers."""

import asyncio
import socket
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager


class SlowProxy:
    """port: where it listens. delay_seconds: how late each piece of a reply is from now on."""

    def __init__(self, server_port: int, delay_seconds: float) -> None:
        self._server_port = server_port
        self._pumps: set[asyncio.Task[None]] = set()
        self.port = 0
        self.delay_seconds = delay_seconds

    async def link(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        from_server, to_server = await asyncio.open_connection("127.0.0.1", self._server_port)
        directions = (self._pass_on(reader, to_server, late=False), self._pass_on(from_server, writer, late=True))
        pumps = {asyncio.create_task(direction) for direction in directions}
        self._pumps |= pumps
        await asyncio.gather(*pumps, return_exceptions=True)
        self._pumps -= pumps

    async def cut(self) -> None:
        """End what is linked now."""
        pumps = list(self._pumps)
        for pump in pumps:
            pump.cancel()
        await asyncio.gather(*pumps, return_exceptions=True)

    async def _pass_on(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, late: bool) -> None:
        try:
            while piece := await reader.read(1 << 16):
                await asyncio.sleep(self.delay_seconds if late else 0)
                writer.write(piece)
        finally:
            writer.close()


@asynccontextmanager
async def slow_proxy(server_port: int, *, port: int = 0, delay_seconds: float = 0.0) -> AsyncIterator[SlowProxy]:
    """Listens on `port`, or on a free one; all that is linked is cut in the end."""
    proxy = SlowProxy(server_port, delay_seconds)
    server = await asyncio.start_server(proxy.link, "127.0.0.1", port)
    proxy.port = server.sockets[0].getsockname()[1]
    async with server:
        yield proxy
        server.close()
        await proxy.cut()


@contextmanager
def black_hole() -> Iterator[int]:
    """A port of this machine whose connections are never completed: the queue of those to be accepted is full."""
    with socket.socket() as listener, socket.socket() as first, socket.socket() as second:
        listener.bind(("127.0.0.1", 0))
        listener.listen(0)
        for client in (first, second):
            client.setblocking(False)
            client.connect_ex(listener.getsockname())
        yield int(listener.getsockname()[1])
