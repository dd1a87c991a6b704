"""How a server is protected, read from its settings: for those who build it, and for the line that operators see."""

import logging

from recall_service.config import Settings
from recall_service.rpc.tls import TlsFiles, server_credentials
from recall_service.setting_values import is_loopback

logger = logging.getLogger(__name__)


def check_protection(settings: Settings) -> None:
    """Raise SettingsError when the files of TLS cannot be used: now, and not after bundles were loaded for minutes."""
    if (files := tls_files(settings)) is not None:
        server_credentials(files)


def announce_protection(settings: Settings) -> None:
    """Say in the log how the server is protected, and warn when strangers could use that it is not."""
    logger.info("protection: %s", describe_protection(settings))
    for warning in exposures(settings):
        logger.warning("protection: %s", warning)


def tls_files(settings: Settings) -> TlsFiles | None:
    """The files of TLS; None: connections are in plain text."""
    if settings.tls_certificate is None or settings.tls_key is None:
        return None
    return TlsFiles(settings.tls_certificate, settings.tls_key, settings.tls_client_ca)


def describe_protection(settings: Settings) -> str:
    """One line for the log."""
    tls = "off" if settings.tls_certificate is None else "on"
    mutual = "off" if settings.tls_client_ca is None else "on"
    return f"TLS {tls}, client certificates {mutual}, {len(settings.tokens)} tokens"


def exposures(settings: Settings) -> list[str]:
    """What strangers on the network could do, with the remedy, one sentence for each; none when there is nothing."""
    return [warning for warning in (_open_to_callers(settings), _open_to_scrapers(settings)) if warning]


def _open_to_scrapers(settings: Settings) -> str | None:
    """The metrics have neither TLS nor tokens, whatever else is set."""
    if is_loopback(settings.metrics_host):
        return None
    return f"whoever reaches {settings.metrics_host} may read the metrics; let only trusted networks reach them"


def _open_to_callers(settings: Settings) -> str | None:
    open_hosts = sorted({host for host in (settings.host, settings.admin_host) if not is_loopback(host)})
    if not open_hosts or settings.tls_client_ca is not None:
        return None
    where = ", ".join(open_hosts)
    if not settings.tokens:
        return f"whoever reaches {where} may ask; set tokens or tls_client_ca, or let only trusted networks reach it"
    if settings.tls_certificate is None:
        return f"tokens travel to {where} in plain text; set tls_certificate and tls_key, or end TLS in front of it"
    return None
