"""A question in Python's words, and as the message that is sent."""

from collections.abc import Sequence
from typing import Any, Literal, TypedDict

from recall_service.client.predicates import Predicate, to_filter
from recall_service.stubs.recall.v1 import recall_pb2


class Question(TypedDict, total=False):
    """What `recall` takes, by keyword. What is left out, 0 or empty means the server's default.

    Exactly one of `history` (item ids, oldest first) and `prompt` (token ids) is required. Items satisfy everything in
    `where`, and are none of `exclude_item_ids`, nor with `exclude_history` any of the history: the search looks at no
    others, so that a narrow question is answered as fully as a wide one. `include_steps` asks for
    the log-probability and the rank of every token of every item's semantic ID. `search_mode` "proven" asks for items
    that are proven to be the model's true top of the whole catalogue, as far as the bundle's budget reaches.
    `priority` says who waits for whom when the service is busy: "low" is refused first, and never changes an answer.
    """

    history: Sequence[str]
    prompt: Sequence[int]
    bundle: str
    num_items: int
    beam_width: int
    where: Sequence[Predicate]
    exclude_item_ids: Sequence[str]
    exclude_history: bool
    search_mode: Literal["beam", "proven"]
    scene: str
    user_id: str
    request_id: str
    cache: Literal["use", "refresh", "bypass"]
    include_steps: bool
    priority: Literal["low", "normal", "high"]


# By the question's names: the message's field, the prefix of its values, and the words for them.
_WORDS = {
    "search_mode": ("search_mode", "SEARCH_MODE_", ("beam", "proven")),
    "cache": ("cache_mode", "CACHE_MODE_", ("use", "refresh", "bypass")),
    "priority": ("priority", "PRIORITY_", ("low", "normal", "high")),
}


def to_request(question: Question) -> recall_pb2.RecallRequest:
    """The question as a message. Raises ValueError for what no message can carry."""
    fields: dict[str, Any] = dict(question)
    if "history" in fields and "prompt" in fields:
        raise ValueError("both history and prompt are given; give one of them")
    if "history" in fields:
        fields["history"] = recall_pb2.ItemHistory(item_ids=_item_ids("history", fields["history"]))
    if "prompt" in fields:
        fields["prompt"] = recall_pb2.TokenPrompt(token_ids=fields["prompt"])
    if "where" in fields:
        fields["filter"] = to_filter(fields.pop("where"))
    if "exclude_item_ids" in fields:
        fields["exclude_item_ids"] = _item_ids("exclude_item_ids", fields["exclude_item_ids"])
    for name, (field, prefix, words) in _WORDS.items():
        if name in fields:
            word = fields.pop(name)
            if word not in words:
                raise ValueError(f"{name}: {word!r}; give one of {', '.join(words)}")
            fields[field] = prefix + word.upper()
    return recall_pb2.RecallRequest(**fields)


def to_batch(questions: Sequence[Question]) -> recall_pb2.BatchRecallRequest:
    """Several questions as one message. Raises ValueError naming the one that no message can carry."""
    batch = recall_pb2.BatchRecallRequest()
    for position, question in enumerate(questions):
        try:
            batch.requests.append(to_request(question))
        except ValueError as error:
            raise ValueError(f"questions[{position}]: {error}") from None
    return batch


def _item_ids(name: str, item_ids: Sequence[str]) -> Sequence[str]:
    if isinstance(item_ids, str):  # also a sequence of strings: its letters
        raise ValueError(f"{name}: {item_ids!r} is one string; give a list of item ids")
    for item_id in item_ids:
        if not isinstance(item_id, str):
            raise ValueError(f"{name}: {item_id!r} is no item id; give strings")
    return item_ids
