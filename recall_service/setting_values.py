"""What the values of settings may look like, and how they are shown: URLs, pairs, secrets. Knows no setting by name."""

import ipaddress
import re
from urllib.parse import urlsplit


def mask_url(url: str) -> str:
    """`url` with its password, and the values of its options, as ***."""
    address, question_mark, _ = url.partition("?")
    masked = re.sub(r"//([^:@/]*:)?[^/]*@", r"//\1***@", address)
    return f"{masked}?***" if question_mark else masked


def is_base_url(url: str) -> bool:
    """Whether `url` is one of HTTP to which a path can be added, and holds no credentials."""
    try:
        parts = urlsplit(url)
        has_host = bool(parts.hostname) and parts.port != 0
    except ValueError:
        return False
    is_plain = not (parts.query or parts.fragment or "@" in parts.netloc)
    return parts.scheme in ("http", "https") and has_host and is_plain and "/v1/traces" not in parts.path


def is_loopback(host: str) -> bool:
    """Whether only this machine reaches what listens on `host`."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


def host_and_port(host: str, port: int) -> str:
    """The two as one address, in which an IPv6 address stands in brackets."""
    bare = host.strip("[]")
    return f"[{bare}]:{port}" if ":" in bare else f"{host}:{port}"


def pairs_of(text: str) -> dict[str, str]:
    """The table that "a=1,b=2" is. Raises ValueError for a part without a name, or a name given twice."""
    pairs: dict[str, str] = {}
    for part in filter(None, map(str.strip, text.split(","))):
        name, equals, value = (piece.strip() for piece in part.partition("="))
        if not (name and equals):
            raise ValueError(f"{part!r} is not name=number; give a=1,b=2")
        if name in pairs:
            raise ValueError(f"{name!r} is there twice; give it once")
        pairs[name] = value
    return pairs


def token_problem(token: str) -> str | None:
    """What keeps `token` from being name:rights:digest, without quoting the digest; None when nothing does."""
    remedy = "give name:rights:digest, as `recall-service token` prints it"
    parts = token.split(":")
    if len(parts) != 3:
        return f"{len(parts)} parts between colons; {remedy}"
    name, rights, digest = parts
    if not re.fullmatch(r"[A-Za-z0-9._-]{1,64}", name):
        return f"the name is not 1 to 64 letters, digits, dots, dashes or underscores; {remedy}"
    if rights not in ("recall", "admin", "recall+admin"):
        return f"the rights of {name} are not recall, admin or recall+admin; {remedy}"
    if not re.fullmatch(r"[0-9a-f]{64}", digest):
        return f"the digest of {name} is not 64 hexadecimal digits; {remedy}"
    return None


def mask_token(token: str) -> str:
    """`token` with its digest as ***."""
    return token.rpartition(":")[0] + ":***"
