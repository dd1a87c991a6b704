"""What is printed to be pasted can be pasted."""

import json
import shlex
from itertools import pairwise

from recall_service.app import Serving
from recall_service.demo.asking import history_of
from recall_service.demo.narration import how_to_ask
from recall_service.demo.narrowing import narrowing_for
from recall_service.demo.shop import Shop
from recall_service.stubs.recall.v1 import recall_pb2
from recall_service.where_flags import read_where

SERVING = Serving("127.0.0.1:1", "127.0.0.1:2", "http://127.0.0.1:3/metrics", {})
TYPES = {"department": recall_pb2.ATTRIBUTE_TYPE_TEXT, "price": recall_pb2.ATTRIBUTE_TYPE_NUMBER}


def test_commands_ask_and_change_the_demo_that_is_served(small_shop: Shop) -> None:
    text = how_to_ask(SERVING, small_shop)
    query, narrower, update = (shlex.split(line) for line in text.splitlines() if line.startswith("  "))
    assert query[:4] == [".venv/bin/recall-service", "query", "--target", SERVING.address]
    assert query[query.index("--history") + 1].split(",") == history_of(small_shop, 0)

    assert narrower[: len(query)] == query
    conditions = [word for flag, word in pairwise(narrower) if flag == "--where"]
    assert read_where(conditions, TYPES) == narrowing_for(small_shop, 0).where
    assert narrower[-1] == "--exclude-history"

    taken_next = small_shop.assortment.item_ids[small_shop.targets[0]]
    assert json.loads(update[1]) == {"item_id": taken_next, "remove": True}
    assert update[3:7] == [".venv/bin/recall-service", "admin", "--target", SERVING.admin_address]
