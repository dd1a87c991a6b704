"""The flags by which commands that ask a server say how: over TLS, and as whom. gRPC comes in when they are read."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from recall_service.errors import SettingsError

if TYPE_CHECKING:  # whoever only asks for help does not wait for it
    from recall_service.client.channel import Access


TlsCa = Annotated[
    Path | None, typer.Option("--tls-ca", metavar="PEM", help="TLS: who may sign the server's certificate.")
]
TlsCertificate = Annotated[
    Path | None, typer.Option("--tls-cert", metavar="PEM", help="Mutual TLS: the certificate to show.")
]
TlsKey = Annotated[Path | None, typer.Option("--tls-key", metavar="PEM", help="The key of --tls-cert.")]
TokenFile = Annotated[
    Path | None, typer.Option("--token-file", metavar="FILE", help="Holds the bearer token, and nothing else.")
]


def read_access(ca: Path | None, certificate: Path | None, key: Path | None, token_file: Path | None) -> "Access":
    """What the four flags mean together. Raises SettingsError naming the file, what is wrong, and the remedy."""
    from recall_service.client.channel import Access, Tls

    try:
        tls = Tls(ca, certificate, key) if ca or certificate or key else None
        return Access(tls, _token(token_file))
    except ValueError as error:
        raise SettingsError(str(error)) from None


def _token(file: Path | None) -> str | None:
    """Not a flag itself: those of a process are there for everybody to read."""
    if file is None:
        return None
    try:
        return file.read_text(encoding="ascii").strip()
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "not ASCII"
        raise SettingsError(f"token file {file}: {reason}; give a readable file that holds the token alone") from None
