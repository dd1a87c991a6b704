from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recall_service.redis_url import REMEDY, RedisShape, parse_redis_url

SERVER, SENTINEL, CLUSTER = RedisShape


@pytest.mark.parametrize(
    ("url", "parts"),
    [
        ("redis://cache", {"shape": SERVER, "hosts": (("cache", 6379),), "database": 0, "tls": None}),
        ("redis://cache:6380/3", {"hosts": (("cache", 6380),), "database": 3}),
        ("redis://[::1]:7/", {"hosts": (("::1", 7),), "database": 0}),
        ("redis://u%40x:p%2F%3A%40@cache", {"username": "u@x", "password": "p/:@"}),
        ("redis://:p:q@cache", {"username": None, "password": "p:q"}),
        ("unix://u:p@/run/a%20b.sock", {"path": "/run/a b.sock", "hosts": (), "username": "u", "password": "p"}),
        (
            "rediss://cache?ssl_ca_certs=/etc/ca%20s.pem&ssl_check_hostname=false",
            {"tls": {"ssl_ca_certs": "/etc/ca s.pem", "ssl_check_hostname": "false"}},
        ),
        ("rediss://cache", {"tls": {}}),
        (
            "redis+sentinel://u:p@one,two:7,[::1]:8/answers/2?sentinel_password=s",
            {
                "shape": SENTINEL,
                "hosts": (("one", 26379), ("two", 7), ("::1", 8)),
                "service": "answers",
                "database": 2,
                "password": "p",
                "sentinel_password": "s",
            },
        ),
        (
            "rediss+sentinel://one/answers?ssl_cert_reqs=none",
            {"service": "answers", "database": 0, "tls": {"ssl_cert_reqs": "none"}},
        ),
        ("redis+cluster://:p@one,two:7", {"shape": CLUSTER, "hosts": (("one", 6379), ("two", 7)), "password": "p"}),
        ("rediss+cluster://one/", {"shape": CLUSTER, "tls": {}}),
    ],
    ids=str,
)
def test_every_part_is_read(url: str, parts: dict[str, Any]) -> None:
    parsed = parse_redis_url(url)
    assert {name: getattr(parsed, name) for name in parts} == parts


@pytest.mark.parametrize(
    "url",
    [
        "",
        "cache:6379",
        "http://cache",
        "redis+proxy://cache",
        "redis:///0",
        "redis://cache:0",
        "redis://cache:65536",
        "redis://one,two",
        "redis://cache/first",
        "redis://cache#top",
        "redis://ca che",
        "redis://a@b@cache",
        "redis://cache?ssl_ca_certs=/ca.pem",
        "rediss://cache?ssl_keyfile=/key.pem",
        "rediss://cache?ssl_unheard_of=1",
        "rediss://cache?ssl_cert_reqs=maybe",
        "rediss://cache?ssl_cert_reqs=none&ssl_cert_reqs=none",
        "rediss://cache?socket_timeout=60",
        "rediss://cache?sentinel_password=s",
        "unix://",
        "unix://cache/run/redis.sock",
        "unix+sentinel:///run/redis.sock",
        "redis+sentinel://one",
        "redis+sentinel://one/",
        "redis+sentinel://one/answers/two",
        "redis+sentinel://one,/answers",
        "redis+sentinel:///answers",
        "redis+cluster://one/0",
        "redis+cluster://",
    ],
    ids=str,
)
def test_what_means_nothing_is_refused(url: str) -> None:
    with pytest.raises(ValueError, match=r"give redis://") as caught:
        parse_redis_url(url)
    assert str(caught.value) == REMEDY


def test_no_secret_is_shown() -> None:
    secrets = "hunter2"
    url = f"rediss+sentinel://u:{secrets}@one/a?sentinel_password={secrets}&ssl_certfile=c&ssl_password={secrets}"
    assert secrets not in repr(parse_redis_url(url))


@given(st.text(max_size=30), st.sampled_from(["", "redis://", "rediss+cluster://", "redis+sentinel://one/", "unix://"]))
def test_whatever_the_text_it_is_read_or_refused(text: str, beginning: str) -> None:
    try:
        parsed = parse_redis_url(beginning + text)
    except ValueError as error:
        assert str(error) == REMEDY  # noqa: PT017 - either outcome is right
    else:
        assert parsed.hosts or parsed.path
