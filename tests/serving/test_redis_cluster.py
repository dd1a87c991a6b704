"""What a node says of its cluster, read with suspicion. How a cluster fails over is in test_redis_topologies."""

from typing import Any

import pytest
from redis.asyncio import Redis
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import ResponseError

from recall_service.serving.cache.redis_cluster import ClusterClient

PRIMARY = [b"10.0.0.1", 7000, b"id"]


class FakeNode(Redis):
    """Replies to CLUSTER SLOTS as told, and to every get with its own address."""

    def __init__(self, address: tuple[str, int], reply: Any) -> None:
        super().__init__()
        self._address = address
        self._reply = reply

    async def execute_command(self, *words: Any, **options: Any) -> Any:
        if words == ("CLUSTER", "SLOTS"):
            if isinstance(self._reply, Exception):
                raise self._reply
            return self._reply
        return self._address


def cluster_of(reply: Any) -> ClusterClient:
    return ClusterClient([("seed", 6379)], lambda address: FakeNode(address, reply))


@pytest.mark.parametrize(
    ("reply", "owner"),
    [
        ([[0, 16383, PRIMARY]], ("10.0.0.1", 7000)),
        ([[0, 16383, PRIMARY, [b"10.0.0.2", 7000, b"replica"]]], ("10.0.0.1", 7000)),
        ([[0, 8191, [b"", 1, b"id"]], [8192, 16383, [b"", 1, b"id"]]], ("seed", 1)),
        ([[0, 16383, [None, 7000, b"id", []]]], ("seed", 7000)),
    ],
    ids=["one range", "with a replica", "no host", "an unknown host"],
)
async def test_the_owner_is_asked(reply: Any, owner: tuple[str, int]) -> None:
    cluster = cluster_of(reply)
    assert await cluster.get("name") == owner
    await cluster.aclose()


@pytest.mark.parametrize(
    "reply",
    [
        [],
        [[0, 16383]],
        [[0, 16384, PRIMARY]],
        [[5, 4, PRIMARY]],
        [[0, 16383, [b"host", 0, b"id"]]],
        [[0, 16383, [b"host", b"7000", b"id"]]],
        [[0, 16383, [b"\xff\xfe", 7000, b"id"]]],
        b"OK",
        None,
        ResponseError("ERR This instance has cluster support disabled"),
    ],
    ids=str,
)
async def test_a_reply_that_is_no_map_leaves_no_owner(reply: Any) -> None:
    cluster = cluster_of(reply)
    for _ in range(2):
        with pytest.raises(RedisConnectionError, match="no node of the cluster says who owns the slot"):
            await cluster.get("name")
    await cluster.aclose()
