"""A channel to a service: where it is, over TLS or not, and the token that says who asks. Knows no methods."""

import re
import ssl
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import grpc

from recall_service.setting_values import is_loopback

Token = str | Callable[[], str]
_Options = Sequence[tuple[str, Any]]


@dataclass(frozen=True, slots=True)
class Tls:
    """TLS to the server, and mutual TLS where the server asks for a certificate. All files are PEM.

    ca: who may sign the server's certificate; None: the authorities that come with gRPC, or those of the file that
    GRPC_DEFAULT_SSL_ROOTS_FILE_PATH names.
    certificate, key: the client's own; both or none.
    server_name: the name that the server's certificate is for, where that is not the target's.
    Raises ValueError naming the file that cannot be read, or is not what it should be.
    """

    ca: Path | None = None
    certificate: Path | None = None
    key: Path | None = None
    server_name: str | None = None

    def __post_init__(self) -> None:
        if (self.certificate is None) != (self.key is None):
            raise ValueError("tls: certificate and key go together; give both or none")
        # gRPC takes any bytes, and says later, of every call, that nobody can be reached.
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        try:
            if self.ca is not None:
                context.load_verify_locations(self.ca)
        except OSError as error:
            raise ValueError(f"tls.ca {self.ca}: {_why(error)}; give a file of PEM certificates") from None
        try:
            if self.certificate is not None:
                context.load_cert_chain(self.certificate, self.key, password="")
        except OSError as error:
            files = f"tls.certificate {self.certificate}, tls.key {self.key}"
            remedy = "give a PEM certificate and its own key, without a password"
            raise ValueError(f"{files}: {_why(error)}; {remedy}") from None

    def credentials(self) -> grpc.ChannelCredentials:
        """What the files hold now."""
        files = (self.ca, self.key, self.certificate)
        return grpc.ssl_channel_credentials(*(None if file is None else file.read_bytes() for file in files))


@dataclass(frozen=True, slots=True)
class Access:
    """How a client shows itself to a service.

    token: sent with every call as `authorization: Bearer ...`; a function is asked for it before each of them, and must
    not block. allow_insecure_token: send it without TLS, to other machines too.
    Raises ValueError for a token that no header can carry.
    """

    tls: Tls | None = None
    token: Token | None = field(default=None, repr=False)
    allow_insecure_token: bool = False

    def __post_init__(self) -> None:
        if isinstance(self.token, str):
            self.metadata()

    def metadata(self) -> tuple[tuple[str, str], ...]:
        """What a call carries. Raises ValueError as above, never quoting the token."""
        if self.token is None:
            return ()
        token = self.token if isinstance(self.token, str) else self.token()
        if not re.fullmatch("[!-~]+", token):
            raise ValueError("token: empty, or with characters that no header carries; give visible ASCII, no spaces")
        return (("authorization", f"Bearer {token}"),)


def open_channel(target: str, access: Access, options: _Options) -> grpc.Channel:
    """A channel for threads. `target` is "host:port" or any gRPC target; every address of a name is used.

    Raises ValueError for a target that is none, and for a token that others could read on its way.
    """
    name, secured = _name_of(target, access), _secured(access, options)
    if access.tls is None:
        return grpc.insecure_channel(name, secured, grpc.Compression.NoCompression)
    return grpc.secure_channel(name, access.tls.credentials(), secured, grpc.Compression.NoCompression)


def open_aio_channel(target: str, access: Access, options: _Options) -> grpc.aio.Channel:
    """The same for asyncio."""
    name, secured = _name_of(target, access), _secured(access, options)
    if access.tls is None:
        return grpc.aio.insecure_channel(name, secured, grpc.Compression.NoCompression)
    return grpc.aio.secure_channel(name, access.tls.credentials(), secured, grpc.Compression.NoCompression)


def resolvable(target: str) -> str:
    """The target as gRPC is to read it: DNS gives every address of a host, which round robin needs.

    Raises ValueError for what is neither host, host:port, [address]:port nor scheme:address.
    """
    if re.fullmatch(r"(?!unix:)[^:/\[\]\s]+(:\d+)?|\[[^/\s\]]+\](:\d+)?", target):
        return f"dns:///{target}"
    if re.fullmatch(r"[a-z][a-z0-9+.-]*:\S+", target):
        return target
    raise ValueError(f"target: {target!r} is no address; give host:port, or dns:///name:port")


def _name_of(target: str, access: Access) -> str:
    name = resolvable(target)
    if access.token is not None and access.tls is None and not access.allow_insecure_token and _leaves_machine(name):
        raise ValueError(
            f"token: without TLS anybody on the way to {target} could read it; give tls, "
            "or allow_insecure_token=True where the network is trusted"
        )
    return name


def _leaves_machine(name: str) -> bool:
    scheme, _, rest = name.partition(":")
    if scheme in ("unix", "unix-abstract"):
        return False
    addresses = rest.rpartition("/")[2].split(",")
    return not all(is_loopback(re.sub(r":\d+$", "", address)) for address in addresses)


def _secured(access: Access, options: _Options) -> _Options:
    if access.tls is None or access.tls.server_name is None:
        return options
    return [*options, ("grpc.ssl_target_name_override", access.tls.server_name)]


def _why(error: OSError) -> str:
    return "not PEM of that kind" if isinstance(error, ssl.SSLError) else f"{error.strerror}".lower()
