"""How a server of ours comes to listen: with TLS or without, and what is said when it cannot."""

import grpc

from recall_service.errors import SetupError
from recall_service.rpc.tls import TlsFiles, server_credentials


def listen(server: grpc.aio.Server, address: str, tls: TlsFiles | None) -> int:
    """Have `server` listen on `address` ("host:port", "[::1]:port"; port 0 takes a free one) and return the port.

    Raises SetupError when the address cannot be had or the files of `tls` cannot be used.
    """
    credentials = None if tls is None else server_credentials(tls)
    try:
        if credentials is None:
            return server.add_insecure_port(address)
        return server.add_secure_port(address, credentials)
    except RuntimeError as error:
        raise SetupError(f"address: cannot listen on {address}; free the port, or give another address") from error
