"""Is a request well formed, and within the limits of the bundle it addresses? Every violation is found.

Knows the contract, a bundle's public limits and the attributes of its catalogue. It does not know the vocabulary or
the items: token ids out of range and unknown items are the pipeline's to judge. What a filter means is judged once it
is well formed.
"""

from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import Any, TypeAlias, TypeVar

from google.protobuf.message import DecodeError, Message

from item_catalog.attributes import AttributeKind
from recall_service.errors import InvalidRequest, NotReady, UnknownVersion, Violation
from recall_service.rpc.filter_message import form_violations, to_filter
from recall_service.rpc.request_id import MAX_REQUEST_ID_BYTES
from recall_service.serving.filter_check import filter_violations
from recall_service.serving.query import BundleInfo
from recall_service.serving.size_check import size_violations
from recall_service.stubs.recall.v1 import recall_pb2

MAX_USER_ID_BYTES = 256
MAX_SCENE_BYTES = 64
MAX_HISTORY_ITEMS = 10_000
MAX_EXCLUDED_ITEMS = 10_000
MAX_ITEM_ID_BYTES = 256

_MAX_BYTES_OF_CHARACTER = 4  # in UTF-8
_MAX_REMEMBERED_BYTES = 1024  # of a filter
_CACHE_MODES = frozenset(recall_pb2.CacheMode.values())
_SEARCH_MODES = frozenset(recall_pb2.SearchMode.values())
_PRIORITIES = frozenset(recall_pb2.Priority.values())

_Attributes: TypeAlias = tuple[tuple[str, AttributeKind], ...]
Request = TypeVar("Request", bound=Message)


def read_message(kind: type[Request], wire: bytes) -> Request:
    """The message of that kind in `wire`. Raises InvalidRequest when there is none."""
    try:
        return kind.FromString(wire)
    except DecodeError:
        name = kind.DESCRIPTOR.full_name
        raise InvalidRequest([Violation("request", f"{len(wire):,} bytes that are no {name}; send one")]) from None


def find_bundle(bundles: Sequence[BundleInfo], name: str) -> BundleInfo:
    """The bundle called `name`, or the first one when `name` is empty.

    Raises UnknownVersion when there is none of that name, NotReady when there is none at all.
    """
    if not bundles:
        raise NotReady("no bundle is live on this server; ask another replica")
    if not name:
        return bundles[0]
    for bundle in bundles:
        if bundle.name == name:
            return bundle
    served = ", ".join(bundle.name for bundle in bundles)
    raise UnknownVersion(f"bundle: {name[:64]!r} is not served here; give one of {served}, or leave it empty")


def check_batch(num_requests: int, max_requests: int) -> None:
    """Raise InvalidRequest unless a batch has 1 to `max_requests` entries."""
    if not 1 <= num_requests <= max_requests:
        raise InvalidRequest([Violation("requests", f"{num_requests:,} entries; give 1 to {max_requests:,}")])


def check_recall(request: recall_pb2.RecallRequest, bundle: BundleInfo, prefix: str = "") -> tuple[str, ...]:
    """Raise InvalidRequest with all violations, their field paths led by `prefix`.

    Returns the history, empty where none is given: a message makes its strings anew whenever it is read.
    """
    item_ids = request.history.item_ids
    history = tuple(item_ids) if len(item_ids) <= MAX_HISTORY_ITEMS else ()
    if not _is_plainly_sound(request, history, bundle):
        violations = [Violation(prefix + field, description) for field, description in _violations(request, bundle)]
        if violations:
            raise InvalidRequest(violations)
    return history


def _is_plainly_sound(request: recall_pb2.RecallRequest, history: Sequence[str], bundle: BundleInfo) -> bool:
    """Whether it has no violation, told at once of nearly every request: False does not say that there is one."""
    return (
        bool(history)
        and all(history)
        and max(map(len, history)) * _MAX_BYTES_OF_CHARACTER <= MAX_ITEM_ID_BYTES
        and len(request.request_id) * _MAX_BYTES_OF_CHARACTER <= MAX_REQUEST_ID_BYTES
        and len(request.user_id) * _MAX_BYTES_OF_CHARACTER <= MAX_USER_ID_BYTES
        and len(request.scene) * _MAX_BYTES_OF_CHARACTER <= MAX_SCENE_BYTES
        and request.num_items <= bundle.max_num_items
        and request.beam_width <= bundle.max_beam_width
        and not request.exclude_item_ids
        and not request.HasField("filter")
        and request.cache_mode in _CACHE_MODES
        and request.search_mode in _SEARCH_MODES
        and request.priority in _PRIORITIES
    )


def _violations(request: recall_pb2.RecallRequest, bundle: BundleInfo) -> Iterator[Violation]:
    yield from _too_long("request_id", request.request_id, MAX_REQUEST_ID_BYTES)
    yield from _too_long("user_id", request.user_id, MAX_USER_ID_BYTES)
    yield from _too_long("scene", request.scene, MAX_SCENE_BYTES)
    context, num_tokens = request.WhichOneof("context"), 0
    if context is None:
        yield Violation("context", "neither history nor prompt is given; give one of them")
    elif context == "history":
        yield from _history_violations(request.history.item_ids)
    else:
        num_tokens = len(request.prompt.token_ids)
        if not num_tokens:
            yield Violation("prompt.token_ids", "no token ids; give at least one")
    yield from size_violations(
        bundle, num_items=request.num_items, beam_width=request.beam_width, num_tokens=num_tokens
    )
    if request.HasField("filter"):
        yield from _filter_violations(request.filter, bundle.attributes)
    if request.exclude_item_ids:
        yield from _id_violations("exclude_item_ids", request.exclude_item_ids, MAX_EXCLUDED_ITEMS)
    if request.exclude_history and context != "history":
        yield Violation("exclude_history", "true, and no history is given; give one, or leave it out")
    if request.cache_mode not in _CACHE_MODES:
        yield _unknown("cache_mode", request.cache_mode, recall_pb2.CacheMode)
    if request.search_mode not in _SEARCH_MODES:
        yield _unknown("search_mode", request.search_mode, recall_pb2.SearchMode)
    if request.priority not in _PRIORITIES:
        yield _unknown("priority", request.priority, recall_pb2.Priority)


def _history_violations(item_ids: Sequence[str]) -> Iterator[Violation]:
    if not item_ids:
        yield Violation("history.item_ids", "no item ids; give at least one")
    else:
        yield from _id_violations("history.item_ids", item_ids, MAX_HISTORY_ITEMS)


def _id_violations(field: str, item_ids: Sequence[str], max_ids: int) -> Iterator[Violation]:
    """What is wrong with at least one id."""
    if len(item_ids) > max_ids:
        # The entries are not looked at: a message may hold millions.
        yield Violation(field, f"{len(item_ids):,} entries; give at most {max_ids:,}")
    elif not _all_fit(item_ids):
        for position, item_id in enumerate(item_ids):
            if not item_id:
                yield Violation(f"{field}[{position}]", "empty; leave the entry out")
            else:
                yield from _too_long(f"{field}[{position}]", item_id, MAX_ITEM_ID_BYTES)


def _all_fit(item_ids: Sequence[str]) -> bool:
    """Whether plainly no id is empty or too long: told in bulk, for nearly every list is sound."""
    ids = tuple(item_ids)  # a message makes its strings anew at every reading
    return all(ids) and max(map(len, ids)) * _MAX_BYTES_OF_CHARACTER <= MAX_ITEM_ID_BYTES


def _filter_violations(message: recall_pb2.Filter, attributes: _Attributes) -> Sequence[Violation]:
    try:
        if message.ByteSize() <= _MAX_REMEMBERED_BYTES:
            _check_wire_filter(message.SerializeToString(), attributes)
        else:
            _check_filter(message, attributes)
    except InvalidRequest as error:
        return error.violations
    return ()


@lru_cache(maxsize=1024)
def _check_wire_filter(wire: bytes, attributes: _Attributes) -> None:
    """Most questions bring one of a few filters: to judge four predicates anew takes 0.2 ms.

    Only sound ones are remembered, for what is raised is not: hostile callers can make up others without end.
    """
    _check_filter(recall_pb2.Filter.FromString(wire), attributes)


def _check_filter(message: recall_pb2.Filter, attributes: _Attributes) -> None:
    violations = list(form_violations(message)) or filter_violations(to_filter(message), dict(attributes))
    if violations:
        raise InvalidRequest(violations)


def _too_long(field: str, value: str, max_bytes: int) -> Sequence[Violation]:
    if len(value) * _MAX_BYTES_OF_CHARACTER <= max_bytes or (num_bytes := len(value.encode())) <= max_bytes:
        return ()
    return (Violation(field, f"{num_bytes:,} bytes; give at most {max_bytes}"),)


def _unknown(field: str, number: int, kind: Any) -> Violation:
    """A number that is no value of `kind`, an enum of the contract."""
    return Violation(field, f"{number} is not a {kind.DESCRIPTOR.name}; give one of {', '.join(kind.keys())}")
