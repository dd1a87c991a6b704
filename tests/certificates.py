"""Certificates for one test: an authority of its own, a server of this machine and one client, as PEM files."""

from dataclasses import dataclass
from pathlib import Path

import trustme


@dataclass(frozen=True, slots=True)
class Certificates:
    """Paths of PEM files. The server's certificate is for localhost, 127.0.0.1 and ::1."""

    ca: Path
    certificate: Path
    key: Path
    client_certificate: Path
    client_key: Path
    client_common_name: str


def make_certificates(directory: Path, *, client_common_name: str = "ranker") -> Certificates:
    """A new authority and what it signed, written into `directory`, over those of an earlier call."""
    directory.mkdir(parents=True, exist_ok=True)
    made = Certificates(
        ca=directory / "ca.pem",
        certificate=directory / "server.pem",
        key=directory / "server.key",
        client_certificate=directory / "client.pem",
        client_key=directory / "client.key",
        client_common_name=client_common_name,
    )
    authority = trustme.CA()
    authority.cert_pem.write_to_path(str(made.ca))
    server = authority.issue_cert("localhost", "127.0.0.1", "::1")
    client = authority.issue_cert("client.test", common_name=client_common_name)
    for issued, certificate, key in (
        (server, made.certificate, made.key),
        (client, made.client_certificate, made.client_key),
    ):
        issued.private_key_pem.write_to_path(str(key))
        certificate.write_bytes(b"".join(blob.bytes() for blob in issued.cert_chain_pems))
    return made
