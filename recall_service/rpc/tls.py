"""TLS for our servers, from PEM files that are read again when they change."""

import logging
import ssl
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import grpc

from recall_service.errors import SettingsError

_LOOK_SECONDS = 1.0  # files are looked at when somebody connects, and not more often than that

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class TlsFiles:
    """Paths of PEM files. client_ca: callers must show a certificate that one of these signed; None: they need none."""

    certificate: Path
    key: Path
    client_ca: Path | None = None


def server_credentials(files: TlsFiles) -> grpc.ServerCredentials:
    """Credentials that offer each new connection what the files hold by then; connections that exist keep theirs.

    Raises SettingsError when the files cannot be used now. Later a broken file leaves the last good one in use.
    """
    reloading = ReloadingCertificates(files)
    return grpc.dynamic_ssl_server_credentials(
        reloading.first,
        reloading.changed,  # type: ignore[arg-type]  # None is allowed: go on with what there is
        require_client_authentication=files.client_ca is not None,
    )


class ReloadingCertificates:
    """Reads the files at first, which raises SettingsError, and then whenever they have changed.

    clock: seconds.
    """

    def __init__(self, files: TlsFiles, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._files = files
        self._clock = clock
        self._lock = threading.Lock()  # gRPC asks from threads of its own
        self._seen = _signature(files)
        self._looked = clock()
        self.first = _read(files)

    def changed(self) -> grpc.ServerCertificateConfiguration | None:
        """What the files hold, if that is new and fit to serve; None: go on with what there is. Never raises."""
        with self._lock:
            if self._clock() - self._looked < _LOOK_SECONDS:
                return None
            self._looked = self._clock()
            if (signature := _signature(self._files)) == self._seen:
                return None
            self._seen = signature
            try:
                configuration = _read(self._files)
            except SettingsError as error:
                logger.warning("TLS files changed and cannot be used, the last good ones stay: %s", error)
                return None
            logger.info("TLS files changed; new connections are offered %s", self._files.certificate)
            return configuration


def _read(files: TlsFiles) -> grpc.ServerCertificateConfiguration:
    certificate = _certificates("tls_certificate", files.certificate)
    client_ca = _certificates("tls_client_ca", files.client_ca) if files.client_ca else None
    key = _content("tls_key", files.key)
    try:
        # The password is for nothing: without one, a key that needs it would be asked for at the terminal.
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(files.certificate, files.key, password="")
    except (ssl.SSLError, OSError):
        raise SettingsError(
            f"tls_key: {files.key} is not the key of {files.certificate}, or not PEM without a passphrase; give the "
            "one that belongs to it"
        ) from None
    return grpc.ssl_server_certificate_configuration([(key, certificate)], root_certificates=client_ca)


def _certificates(setting: str, path: Path) -> bytes:
    content = _content(setting, path)
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_verify_locations(path)
    except (ssl.SSLError, OSError):
        raise SettingsError(f"{setting}: {path} holds no certificate in PEM; give one") from None
    return content


def _content(setting: str, path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise SettingsError(f"{setting}: {path} cannot be read: {error.strerror}; give a readable PEM file") from None


def _signature(files: TlsFiles) -> list[tuple[int, int, int] | None]:
    """Changes when a file is written, replaced, or a link to it is turned elsewhere."""
    signature: list[tuple[int, int, int] | None] = []
    for path in (files.certificate, files.key, files.client_ca):
        try:
            stat = path.stat() if path else None
        except OSError:
            stat = None
        signature.append((stat.st_ino, stat.st_mtime_ns, stat.st_size) if stat else None)
    return signature
