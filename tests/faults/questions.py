"""What is asked in the fault suite: ordinary questions of every kind, and those whose prompt makes the model fail."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from random import Random

from item_catalog.filtering import filters
from item_catalog.filtering.filters import Filter
from recall_service.client import IsIn
from recall_service.client.predicates import to_filter
from recall_service.engine.request import SearchMode
from recall_service.serving.query import CacheMode, RecallQuery
from recall_service.stubs.recall.v1 import recall_pb2
from tests.faults.model_faults import FIRST_FAULT_LEN, Fault, decode_prompt, prefill_prompt

MAX_BEAM_WIDTH = 16
MAX_NUM_ITEMS = 24
NUM_CATALOG_ITEMS = 50
OTHER_FIRST_ITEM = 25  # the other catalogue shares half of its item ids with the first one

_COMMON_ITEMS = range(OTHER_FIRST_ITEM, NUM_CATALOG_ITEMS)


@dataclass(frozen=True, slots=True)
class Question:
    """Asked of a server as a message, and of the oracle as a query. Exactly one of history and prompt is given."""

    history: tuple[str, ...] | None = None
    prompt: tuple[int, ...] | None = None
    num_items: int = 0
    beam_width: int = 0
    search_mode: SearchMode = SearchMode.BEAM
    include_steps: bool = False
    categories: tuple[str, ...] = ()
    exclude_item_ids: tuple[str, ...] = ()
    exclude_history: bool = False

    def __str__(self) -> str:
        """Short enough for a note."""
        asked = f"history {self.history}" if self.prompt is None else f"prompt of {len(self.prompt)} tokens"
        narrowed = f"categories {self.categories}, without {self.exclude_item_ids}, history too {self.exclude_history}"
        return (
            f"{asked}, {narrowed}, num_items {self.num_items}, beam_width {self.beam_width}, {self.search_mode.value}"
        )

    @property
    def where(self) -> list[IsIn]:
        """What items must satisfy, as a client says it."""
        return [IsIn("category", self.categories)] if self.categories else []

    def query(self) -> RecallQuery:
        """For a pipeline in this process, past every cache."""
        return RecallQuery(
            history=self.history,
            prompt=self.prompt,
            num_items=self.num_items,
            beam_width=self.beam_width,
            search_mode=self.search_mode,
            include_steps=self.include_steps,
            filter=Filter((filters.IsIn("category", self.categories),)) if self.categories else None,
            exclude_item_ids=self.exclude_item_ids,
            exclude_history=self.exclude_history,
            cache_mode=CacheMode.BYPASS,
        )

    def message(self, cache_mode: CacheMode = CacheMode.BYPASS) -> recall_pb2.RecallRequest:
        """For a server."""
        message = recall_pb2.RecallRequest(
            num_items=self.num_items,
            beam_width=self.beam_width,
            search_mode=f"SEARCH_MODE_{self.search_mode.value}",
            include_steps=self.include_steps,
            filter=to_filter(self.where),
            exclude_item_ids=self.exclude_item_ids,
            exclude_history=self.exclude_history,
            cache_mode=f"CACHE_MODE_{cache_mode.name}",
            scene="feed",
        )
        if self.history is not None:
            message.history.item_ids.extend(self.history)
        if self.prompt is not None:
            message.prompt.token_ids.extend(self.prompt)
        return message


def ordinary_questions(seed: int) -> Iterator[Question]:
    """Questions without end: histories that both catalogues know something of, prompts, narrow and wide beams.

    Half of them leave a part of the catalogue out.
    """
    random = Random(seed)
    while True:
        ask = partial(
            Question,
            num_items=random.randint(1, MAX_NUM_ITEMS),
            beam_width=random.randint(4, MAX_BEAM_WIDTH),
            search_mode=SearchMode.PROVEN if random.random() < 0.1 else SearchMode.BEAM,
            include_steps=random.random() < 0.2,
            categories=random.choice([(), (), (), ("hats",), ("shoes", "boots")]),
            exclude_item_ids=tuple(f"item-{random.randrange(100):03d}" for _ in range(random.choice([0, 0, 0, 8]))),
        )
        if random.random() < 0.3:
            yield ask(prompt=tuple(random.randrange(256) for _ in range(random.randint(1, FIRST_FAULT_LEN - 20))))
        else:
            numbers = [random.choice(_COMMON_ITEMS), *(random.randrange(100) for _ in range(random.randint(0, 5)))]
            history = tuple(f"item-{number:03d}" for number in numbers)
            yield ask(history=history, exclude_history=random.random() < 0.3)


def fault_questions(fault: Fault, seed: int = 0) -> tuple[Question, Question]:
    """One whose prefill has the fault, and one whose decode has it; `seed` makes them other questions."""
    tokens = seed % 256, seed // 256
    return (
        Question(prompt=prefill_prompt(fault, *tokens), beam_width=12),
        Question(prompt=decode_prompt(fault, *tokens), beam_width=12),
    )
