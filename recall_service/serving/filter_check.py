"""Does a filter fit a catalogue? Asked of every request, and again of the catalogue that the answer will come from."""

from collections.abc import Mapping

from item_catalog.attributes import AttributeKind
from item_catalog.filtering.filters import Filter, filter_problems, filter_problems_in
from recall_service.errors import Violation


def filter_violations(wanted: Filter, attributes: Mapping[str, AttributeKind]) -> list[Violation]:
    """All that is wrong with a filter, by itself and for a catalogue of those attributes, by its path in a request."""
    descriptions: dict[str, str] = {}
    for problem in [*filter_problems(wanted), *filter_problems_in(wanted, attributes)]:
        descriptions.setdefault(problem.path, problem.description)  # an empty name is unknown as well
    return [Violation(f"filter.{path}", description) for path, description in descriptions.items()]
