"""--where, --exclude and --exclude-history: from a shell to a question."""

import asyncio
import json
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from item_catalog.filtering import filters
from recall_service.cli import app
from recall_service.client import InRange, IsIn, NotIn
from recall_service.rpc.convert import to_bundle_message
from recall_service.serving.query import RecallQuery
from recall_service.where_flags import read_where
from tests.rpc.fake_backend import MAIN, FakeBackend, running

TYPES = {attribute.name: attribute.type for attribute in to_bundle_message(MAIN).attributes}


@pytest.mark.parametrize(
    ("condition", "predicate"),
    [
        ("category=shoes", IsIn("category", ["shoes"])),
        ("category=shoes, big boots ,", IsIn("category", ["shoes", "big boots", ""])),
        ("category=a=b", IsIn("category", ["a=b"])),
        (" category != shoes", NotIn("category", ["shoes"])),
        ("category=30", IsIn("category", ["30"])),
        ("price=30,1.5", IsIn("price", [30.0, 1.5])),
        ("published!=30", NotIn("published", [30])),
        ("in_stock=true", IsIn("in_stock", [True])),
        ("price<=30", InRange("price", at_most=30.0)),
        ("price< 30.5", InRange("price", below=30.5)),
        ("price>=-1e3", InRange("price", at_least=-1000.0)),
        ("published>9007199254740993", InRange("published", above=9_007_199_254_740_993)),
        ("brand=7", IsIn("brand", ["7"])),
        ("brand<7", InRange("brand", below=7.0)),
    ],
)
def test_a_condition_is_a_predicate_of_the_attributes_type(condition: str, predicate: Any) -> None:
    (read,) = read_where([condition], TYPES)
    assert read == predicate
    assert repr(read) == repr(predicate)  # 30, 30.0 and True are told apart


@pytest.mark.parametrize(
    ("condition", "message"),
    [
        ("category", "--where 'category': give NAME=A,B or NAME!=A,B, or NAME<=X, <, >= or >"),
        ("=shoes", "--where '=shoes': give NAME=A,B"),
        ("published=1.5", "--where 'published=1.5': '1.5' is no integer"),
        ("published>=soon", "--where 'published>=soon': 'soon' is no integer"),
        ("price=cheap", "--where 'price=cheap': 'cheap' is no number"),
        ("price<", "--where 'price<': '' is no number"),
        ("category<m", "--where 'category<m': 'm' is no number"),
        ("in_stock=yes", "--where 'in_stock=yes': 'yes' is neither true nor false"),
    ],
)
def test_a_condition_that_is_none(condition: str, message: str) -> None:
    with pytest.raises(ValueError) as caught:  # noqa: PT011  the whole message is compared
        read_where(["price<=30", condition], TYPES)
    assert str(caught.value).startswith(message)


async def query(*options: str) -> tuple[Result, list[RecallQuery]]:
    """What the command prints, and what it asked."""
    backend = FakeBackend()
    async with running(backend) as service:
        command = ["query", "--target", service.address, "--history", "a", *options]
        return await asyncio.to_thread(CliRunner().invoke, app, command), backend.queries


async def test_the_flags_reach_the_service() -> None:
    options = ("--where", "category=shoes", "--where", "price<=30", "--exclude", "b", "--exclude", "c")
    result, (asked,) = await query(*options, "--exclude-history", "--json")
    assert result.exit_code == 0, result.output
    assert json.loads(result.stdout)["unknown_excluded_items"] == 6
    predicates = (filters.IsIn("category", ("shoes",)), filters.InRange("price", at_most=30.0))
    assert asked.filter == filters.Filter(predicates)
    assert (asked.exclude_item_ids, asked.exclude_history) == (("b", "c"), True)


async def test_without_the_flags_nothing_is_left_out() -> None:
    result, (asked,) = await query()
    assert result.exit_code == 0, result.output
    assert (asked.filter, asked.exclude_item_ids, asked.exclude_history) == (None, (), False)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--where", "published=soon"), "--where 'published=soon': 'soon' is no integer"),
        (("--where", "brand=acme"), "filter.predicates[0].attribute: 'brand' is unknown; the catalogue has: category,"),
        (("--where", "price<3", "--bundle", "small"), "filter.predicates[0].attribute: 'price' is unknown"),
        (("--where", "price<3", "--bundle", "nobody"), "bundle: 'nobody' is not served here"),
    ],
    ids=["no value", "unknown attribute", "another bundle's", "unknown bundle"],
)
async def test_what_is_wrong_is_one_line(options: tuple[str, ...], message: str) -> None:
    result, asked = await query(*options)
    assert (result.exit_code, asked) == (1, [])
    assert message in result.stderr
    assert len(result.stderr.splitlines()) == 1
