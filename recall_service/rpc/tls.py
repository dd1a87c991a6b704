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

Signature = list[tuple[int, ...] | None]  # of each file; None: there is none

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
        self._complaint = ""  # the last one, which is not repeated
        self.first = _read(files, self._seen)

    def changed(self) -> grpc.ServerCertificateConfiguration | None:
        """What the files hold, if that is new and fit to serve; None: go on with what there is. Never raises.

        What cannot be used is read again at every look: nothing about the files need change for them to become fit.
        """
        with self._lock:
            if self._clock() - self._looked < _LOOK_SECONDS:
                return None
            self._looked = self._clock()
            if (signature := _signature(self._files)) == self._seen:
                self._complaint = ""
                return None
            try:
                configuration = _read(self._files, signature)
            except SettingsError as error:
                self._complain(str(error))
                return None
            self._seen, self._complaint = signature, ""
            logger.info("TLS files changed; new connections are offered %s", self._files.certificate)
            return configuration

    def _complain(self, complaint: str) -> None:
        if complaint != self._complaint:
            logger.warning("TLS files changed and cannot be used, the last good ones stay: %s", complaint)
        self._complaint = complaint


def _read(files: TlsFiles, signature: Signature) -> grpc.ServerCertificateConfiguration:
    """What the files hold. OpenSSL checks the paths, not what was read of them: `signature`, from before, must hold."""
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
    if _signature(files) != signature:
        raise SettingsError(f"tls_certificate: {files.certificate} or a file beside it changes just now; try again")
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


def _signature(files: TlsFiles) -> Signature:
    """Changes when a file is written, replaced, given to somebody, or a link to it is turned elsewhere."""
    signature: Signature = []
    for path in (files.certificate, files.key, files.client_ca):
        try:
            stat = path.stat() if path else None
        except OSError:
            stat = None
        signature.append((stat.st_ino, stat.st_mtime_ns, stat.st_ctime_ns, stat.st_size) if stat else None)
    return signature
