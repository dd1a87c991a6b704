"""Filters as data: one form and one digest for one meaning, and everything that is wrong with them, said at once."""

import math
import re
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from item_catalog.attributes import AttributeKind, Value
from item_catalog.filtering.filters import (
    Filter,
    FilterProblem,
    InRange,
    IsIn,
    NotIn,
    filter_problems,
    filter_problems_in,
)
from tests.item_catalog.filter_strategies import VALUES, filters
from tests.oracles.filtering import passes

MIN, MAX = -(2**63), 2**63 - 1
KINDS = {
    "brand": AttributeKind.TEXT,
    "stock": AttributeKind.INTEGER,
    "price": AttributeKind.NUMBER,
    "new": AttributeKind.BOOLEAN,
}


def problems_in(*predicates: Any) -> list[FilterProblem]:
    wanted = Filter(predicates)
    return [*filter_problems(wanted), *filter_problems_in(wanted, KINDS)]


@settings(max_examples=150)
@given(filters(KINDS, max_size=5), st.data())
def test_the_canonical_form_means_the_same_and_is_its_own(wanted: Filter, data: st.DataObject):
    canonical = wanted.canonical()
    assert ascii(canonical.canonical()) == ascii(canonical)
    for _ in range(5):
        values = {name: data.draw(st.none() | VALUES[kind]) for name, kind in KINDS.items()}
        assert passes(values, canonical) == passes(values, wanted)


@settings(max_examples=100)
@given(filters(KINDS, max_size=5), st.data())
def test_order_and_repetition_change_neither_form_nor_digest(wanted: Filter, data: st.DataObject):
    again = data.draw(st.permutations([*wanted.predicates, *wanted.predicates[:2]]))
    shuffled = Filter(
        tuple(
            predicate
            if isinstance(predicate, InRange)
            else type(predicate)(predicate.attribute, predicate.values[::-1])
            for predicate in again
        )
    )
    assert ascii(shuffled.canonical()) == ascii(wanted.canonical())
    assert shuffled.digest() == wanted.digest()


@pytest.mark.parametrize(
    ("written", "canonical"),
    [
        pytest.param([], [], id="nothing"),
        pytest.param([IsIn("a", (2, 1, 2))], [IsIn("a", (1, 2))], id="values sorted, each once"),
        pytest.param([IsIn("b", ("x",)), IsIn("a", (1,))], [IsIn("a", (1,)), IsIn("b", ("x",))], id="by attribute"),
        pytest.param([IsIn("a", (1, 2, 3)), IsIn("a", (2, 3, 4))], [IsIn("a", (2, 3))], id="lists intersect"),
        pytest.param([NotIn("a", (2,)), NotIn("a", (1,))], [NotIn("a", (1, 2))], id="barred values unite"),
        pytest.param([IsIn("a", (1, 2)), NotIn("a", (2, 3))], [IsIn("a", (1,))], id="barred values leave the list"),
        pytest.param([IsIn("a", (1, 2, 3)), InRange("a", above=1, at_most=3)], [IsIn("a", (2, 3))], id="list in range"),
        pytest.param(
            [InRange("a", at_least=1), InRange("a", below=9), InRange("a", above=1, at_most=9)],
            [InRange("a", above=1, below=9)],
            id="of equal bounds the open one",
        ),
        pytest.param([InRange("a", at_least=1), InRange("a", at_least=3)], [InRange("a", at_least=3)], id="tightest"),
        pytest.param(
            [NotIn("a", (0, 5, 9)), InRange("a", at_least=1, below=9)],
            [InRange("a", at_least=1, below=9), NotIn("a", (5,))],
            id="barred values outside the range are barred already",
        ),
        pytest.param([NotIn("a", (0,)), InRange("a", above=0)], [InRange("a", above=0)], id="the bound itself is out"),
        pytest.param([IsIn("a", (-0.0, 1.5))], [IsIn("a", (0.0, 1.5))], id="no negative zero in a list"),
        pytest.param([InRange("a", above=-0.0)], [InRange("a", above=0.0)], id="nor as a bound"),
        pytest.param([IsIn("a", (1.0, 2**53 + 1, 1))], [IsIn("a", (1, 2**53 + 1))], id="1 and 1.0 are one number"),
        pytest.param([InRange("a", below=7.0), InRange("a", below=7)], [InRange("a", below=7)], id="as bounds too"),
        pytest.param([IsIn("a", ("b", "", "B", "é"))], [IsIn("a", ("", "B", "b", "é"))], id="texts by code point"),
    ],
)
def test_canonical_forms(written: list, canonical: list):
    assert ascii(Filter(tuple(written)).canonical()) == ascii(Filter(tuple(canonical)))


def test_digests_tell_types_and_predicates_apart():
    values: list[Value] = [1, 1.0, True, "1", 0, 0.0, False, "0", "True", 2**53, 2.0**53, 2**53 + 1, "é", "\ud800"]
    wanted = [Filter((shape("a", (value,)),)) for shape in (IsIn, NotIn) for value in values]
    wanted += [Filter((InRange("a", **{side: 1}),)) for side in ("at_least", "above", "at_most", "below")]
    wanted += [Filter(()), Filter((IsIn("b", (1,)),)), Filter((IsIn("a", (1,)), IsIn("b", (1,))))]
    wanted += [Filter((IsIn("a", ("x', 'y",)),)), Filter((IsIn("a", ("x", "y")),))]
    digests = [one.digest() for one in wanted]
    assert {len(digest) for digest in digests} == {32}
    assert len(set(digests)) == len(wanted)


def test_a_digest_is_the_same_in_every_process_and_release():
    """Replicas share a cache: what changes it, changes their keys."""
    wanted = Filter((IsIn("brand", ("é", "a")), InRange("price", at_most=30.5), NotIn("new", (True,))))
    assert wanted.digest().hex() == "aedb5a5de6086ae3f6692534bbdf71aa814eb5d061158a71239e18097bf74fcd"


@pytest.mark.parametrize(
    ("predicate", "path", "description"),
    [
        pytest.param(IsIn("stock", ()), "in.values", "the list is empty", id="empty in"),
        pytest.param(NotIn("stock", ()), "not_in.values", "the list is empty", id="empty not in"),
        pytest.param(InRange("stock"), "range", "it has no bound", id="no bound"),
        pytest.param(InRange("stock", at_least=1, above=1), "range", "both at_least and above", id="two lower bounds"),
        pytest.param(InRange("stock", at_most=1, below=1), "range", "both at_most and below", id="two upper bounds"),
        pytest.param(IsIn("price", (1.0, float("nan"))), "in.values[1]", "nan is no finite number", id="nan"),
        pytest.param(InRange("price", below=float("inf")), "range.below", "inf is no finite number", id="infinity"),
        pytest.param(NotIn("stock", (MAX + 1,)), "not_in.values[0]", "does not fit 64 bits", id="too large"),
        pytest.param(InRange("stock", above=MIN - 1), "range.above", "does not fit 64 bits", id="too small"),
        pytest.param(InRange("brand", above="a"), "range.above", "'a' is no bound", id="text for a bound"),
        pytest.param(InRange("new", at_most=True), "range.at_most", "True is no bound", id="boolean for a bound"),
        pytest.param(IsIn("", (1,)), "attribute", "it is empty", id="no attribute"),
    ],
)
def test_what_is_wrong_by_itself_is_named_with_its_place(predicate: Any, path: str, description: str):
    (problem,) = filter_problems(Filter((IsIn("stock", (1,)), predicate)))
    assert problem.path == f"predicates[1].{path}"
    assert description in problem.description


def test_all_problems_are_named_at_once():
    wanted = Filter((IsIn("a", ()), InRange("b", at_least=float("nan"), above=1), NotIn("c", (2**64, 1, -(2**64)))))
    assert [problem.path for problem in filter_problems(wanted)] == [
        "predicates[0].in.values",
        "predicates[1].range",
        "predicates[1].range.at_least",
        "predicates[2].not_in.values[0]",
        "predicates[2].not_in.values[2]",
    ]


@pytest.mark.parametrize(
    "predicates",
    [
        pytest.param([IsIn("brand", ("a",)), IsIn("brand", ("b",))], id="lists without a common value"),
        pytest.param([IsIn("brand", ("a",)), NotIn("brand", ("a", "b"))], id="all listed are barred"),
        pytest.param([IsIn("stock", (1, 9)), InRange("stock", above=1, below=9)], id="all listed are out of range"),
        pytest.param([InRange("price", at_least=2, at_most=1)], id="upside down"),
        pytest.param([InRange("price", at_least=1, below=1)], id="half-open point"),
        pytest.param([InRange("price", above=1), InRange("price", at_most=1.0)], id="open point of two predicates"),
        pytest.param([InRange("price", at_least=1, at_most=1), NotIn("price", (1,))], id="the one point is barred"),
        pytest.param([InRange("price", at_least=2**53 + 1, at_most=2.0**53)], id="beyond the precision of a float"),
        pytest.param([IsIn("brand", ("1",)), IsIn("brand", (1,))], id="values of two types"),
        pytest.param([IsIn("new", (True,)), IsIn("new", (1,))], id="True is no number"),
    ],
)
def test_a_contradiction_is_a_problem_at_the_last_predicate_on_the_attribute(predicates: list):
    wanted = Filter((IsIn("other", (1,)), *predicates, IsIn("other", (1, 2))))
    (problem,) = filter_problems(wanted)
    assert problem.path == f"predicates[{len(predicates)}]"
    assert f"no value of {predicates[0].attribute!r} satisfies all" in problem.description


@pytest.mark.parametrize(
    "predicates",
    [
        pytest.param([InRange("stock", above=3, below=4)], id="no integer between"),
        pytest.param([InRange("stock", above=MAX)], id="above the largest"),
        pytest.param([InRange("stock", below=MIN)], id="below the smallest"),
        pytest.param([InRange("stock", at_least=1, at_most=3), NotIn("stock", (1, 2, 3, 4))], id="all barred"),
        pytest.param([InRange("price", above=1.0, below=1.0000000000000002)], id="no float64 between"),
        pytest.param([InRange("price", above=1.7976931348623157e308)], id="above the largest float64"),
        pytest.param([InRange("price", above=2**53, below=2**53 + 2)], id="the integer between is no float64"),
    ],
)
def test_some_contradictions_show_only_with_the_attributes_kind(predicates: list):
    assert filter_problems(Filter(tuple(predicates))) == []
    (problem,) = problems_in(*predicates)
    assert problem.path == f"predicates[{len(predicates) - 1}]"
    assert "satisfies all" in problem.description


@pytest.mark.parametrize(
    "predicates",
    [
        pytest.param([], id="nothing demanded"),
        pytest.param([IsIn("price", (1, 2**53 + 1))], id="integers stand for numbers"),
        pytest.param([InRange("price", at_least=1, at_most=1.5)], id="bounds of both types"),
        pytest.param([InRange("stock", at_least=MIN, at_most=MAX)], id="everything"),
        pytest.param([InRange("stock", at_least=MAX)], id="the largest alone"),
        pytest.param([InRange("stock", at_most=MIN)], id="the smallest alone"),
        pytest.param([NotIn("new", (True, False))], id="only items without a value"),
        pytest.param([IsIn("brand", ("no such brand",))], id="a value that no item has"),
        pytest.param([InRange("stock", at_least=1, at_most=3), NotIn("stock", (1, 2, 4))], id="one of three left"),
    ],
)
def test_lawful_filters(predicates: list):
    assert problems_in(*predicates) == []


@pytest.mark.parametrize(
    ("predicate", "path", "description"),
    [
        pytest.param(
            IsIn("colour", ("red",)), "attribute", "the catalogue has: brand, new, price, stock", id="unknown"
        ),
        pytest.param(IsIn("brand", ("a", 1)), "in.values[1]", "1 for 'brand', which is text", id="integer for text"),
        pytest.param(IsIn("stock", ("1",)), "in.values[0]", "'1' for 'stock', which is integer", id="text for integer"),
        pytest.param(NotIn("stock", (1.0,)), "not_in.values[0]", "1.0 for 'stock', which is integer", id="number"),
        pytest.param(InRange("stock", at_most=1.5), "range.at_most", "1.5 for 'stock'", id="number as a bound"),
        pytest.param(IsIn("stock", (True,)), "in.values[0]", "True for 'stock', which is integer", id="boolean"),
        pytest.param(IsIn("price", (False,)), "in.values[0]", "False for 'price', which is number", id="no number"),
        pytest.param(IsIn("new", (1,)), "in.values[0]", "1 for 'new', which is boolean", id="integer for boolean"),
        pytest.param(InRange("brand", at_least=1), "range", "'brand' is text", id="range of texts"),
        pytest.param(InRange("new", at_least=0), "range", "'new' is boolean", id="range of booleans"),
    ],
)
def test_what_does_not_fit_the_catalogue_is_named_with_its_place(predicate: Any, path: str, description: str):
    (problem,) = filter_problems_in(Filter((IsIn("stock", (1,)), predicate)), KINDS)
    assert problem.path == f"predicates[1].{path}"
    assert description in problem.description


def test_a_catalogue_without_attributes_says_so():
    (problem,) = filter_problems_in(Filter((IsIn("brand", ("a",)),)), {})
    assert problem == ("predicates[0].attribute", "'brand' is unknown; the catalogue has: none")


ANY_VALUE = st.sampled_from([1, 1.0, True, "1", "", math.nan, -math.inf, -0.0, 2**63, -(2**2000), MIN, "\ud800"])
ANY_BOUND = st.none() | ANY_VALUE
ANY_PREDICATE = (
    st.builds(IsIn, st.sampled_from(["", *KINDS]), st.lists(ANY_VALUE, max_size=3).map(tuple))
    | st.builds(NotIn, st.sampled_from(["", *KINDS]), st.lists(ANY_VALUE, max_size=3).map(tuple))
    | st.builds(InRange, st.sampled_from([*KINDS, "x"]), ANY_BOUND, ANY_BOUND, ANY_BOUND, ANY_BOUND)
)


@settings(max_examples=200)
@given(st.lists(ANY_PREDICATE, max_size=3))
def test_whatever_is_written_is_judged_without_an_accident(predicates: list):
    """Every place that is named is there; and a filter without problems has its canonical form."""
    wanted = Filter(tuple(predicates))
    problems = [*filter_problems(wanted), *filter_problems_in(wanted, KINDS)]
    for problem in problems:
        index = re.match(r"predicates\[(\d+)\]", problem.path)
        assert index is not None
        assert int(index[1]) < len(predicates)
    if not problems:
        assert not filter_problems(wanted.canonical())


@pytest.mark.parametrize("kind", AttributeKind)
@settings(max_examples=150)
@given(data=st.data())
def test_a_filter_is_contradictory_just_when_nothing_satisfies_it(kind: AttributeKind, data: st.DataObject):
    """If anything does, so does a value that the filter names, or the next one above or below, or no value at all.

    A listed value that no item can have is lawful, as any that no item has: an integer that is no float64.
    """
    wanted = data.draw(filters({"a": kind}, max_size=4))
    values = [
        value
        for predicate in wanted.predicates
        for value in (predicate.bounds().values() if isinstance(predicate, InRange) else predicate.values)
    ]
    listed = [value for predicate in wanted.predicates if isinstance(predicate, IsIn) for value in predicate.values]
    candidates = [None, *listed, *NEARBY[kind](values)]
    is_refused = bool(filter_problems(wanted) or filter_problems_in(wanted, {"a": kind}))
    assert is_refused == (not any(passes({"a": value}, wanted) for value in candidates))


def nearby_integers(values: list[int]) -> list[Value]:
    near = {value + step for value in values for step in (-1, 0, 1)}
    return [MIN, MAX, *(value for value in near if MIN <= value <= MAX)]


def nearby_numbers(values: list[float]) -> list[Value]:
    near = [float(value) for value in values]
    near += [math.nextafter(value, towards) for value in near for towards in (-math.inf, math.inf)]
    return [value for value in near if math.isfinite(value)]


NEARBY: dict[AttributeKind, Callable[[list[Any]], list[Value]]] = {
    AttributeKind.TEXT: lambda values: [*values, "another"],
    AttributeKind.INTEGER: nearby_integers,
    AttributeKind.NUMBER: nearby_numbers,
    AttributeKind.BOOLEAN: lambda values: [False, True],
}
