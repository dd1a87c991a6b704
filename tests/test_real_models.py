"""Two trained models on two real catalogues, asked over gRPC 1,000 times, and held against transformers.

Run with -s to see recall and speed. The oracle shares no code with the engine: a dict trie, and transformers' own
forward and cache in fp32, the prompt run once per user, its cache repeated and reordered for the beams.
"""

import ast
import asyncio
import csv
import json
import random
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer
from transformers.utils import logging

from benchmarks import real_models
from benchmarks.real_models import MAX_HISTORY, RealModel
from recall_service.client import AsyncRecallClient, RecallResult
from recall_service.engine.scheduler import EngineLimits
from recall_service.rpc.server import RecallServer
from recall_service.serving.bundles.launch import Launch, open_registry
from recall_service.serving.bundles.registry import Registry
from recall_service.serving.cache.local_tier import LocalTier
from recall_service.serving.cache.result_cache import ResultCache
from recall_service.serving.cache.time_to_live import TimeToLive
from recall_service.serving.hooks import NullObserver
from recall_service.serving.pipeline import Pipeline

pytestmark = [
    pytest.mark.shared,
    pytest.mark.timeout(300),
    pytest.mark.filterwarnings("ignore:`past_key_values` is deprecated:FutureWarning"),  # older releases know no other
]

BEAM_WIDTH = 200
NUM_ITEMS = 100
PER_TOKEN = 1e-5  # fp32 logits of two implementations differ by less, in log-probability of one token


class Question(NamedTuple):
    """A user's history, oldest first, and the item really taken after it."""

    history: tuple[str, ...]
    target: str


@dataclass(frozen=True)
class Case:
    """A model, its catalogue, how many of its users are asked for, and how many of these the oracle answers too."""

    real: RealModel
    num_questions: int
    num_compared: int

    @property
    def name(self) -> str:
        return self.real.name


BEAUTY = Case(real_models.BEAUTY, 700, 100)
INDUSTRIAL = Case(real_models.INDUSTRIAL, 300, 300)
CASES = pytest.mark.parametrize("case", [BEAUTY, INDUSTRIAL], ids=lambda case: case.name)


def questions(case: Case, data: Path) -> list[Question]:
    """A random sample of users: of Beauty the last item is the target, Industrial has a test file."""
    if case is BEAUTY:
        users = json.loads((data / case.real.users).read_text()).values()
        found = [Question(tuple(map(str, items[:-1])), str(items[-1])) for items in users]
    else:
        with (data / case.real.users).open() as file:
            rows = list(csv.DictReader(file))
        found = [Question(tuple(map(str, ast.literal_eval(r["history_item_id"]))), r["item_id"]) for r in rows]
    return random.Random(7).sample(found, case.num_questions)


@pytest.fixture(scope="module")
def registry(shared_data: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Registry]:
    """Both bundles, each made by writing one file."""
    directories = [
        case.real.write_bundle(shared_data, tmp_path_factory.mktemp(case.name)) for case in (BEAUTY, INDUSTRIAL)
    ]
    registry = open_registry(directories, "", Launch(EngineLimits(), NullObserver(), filter_cache_bytes=1 << 24))
    yield registry
    registry.close()


@asynccontextmanager
async def running(registry: Registry) -> AsyncIterator[AsyncRecallClient]:
    """A client of a server around the bundles."""
    local = LocalTier(max_bytes=0, time_to_live=TimeToLive(60.0, 0.0), observer=NullObserver())
    server = RecallServer(Pipeline(registry, ResultCache(local, None, NullObserver()), NullObserver()), "127.0.0.1:0")
    port = await server.start()
    await server.mark_serving()
    async with AsyncRecallClient(f"127.0.0.1:{port}", timeout=60) as client:
        yield client
    await server.drain()


async def ask_all(client: AsyncRecallClient, case: Case, asked: Sequence[Question]) -> tuple[list[RecallResult], float]:
    """Every question's answer, four in flight at a time, and the seconds from the first to the last."""
    turns = asyncio.Semaphore(4)

    async def ask(question: Question) -> RecallResult:
        async with turns:
            return await client.recall(
                history=question.history, bundle=case.name, num_items=NUM_ITEMS, beam_width=BEAM_WIDTH, cache="bypass"
            )

    started = time.perf_counter()
    return await asyncio.gather(*map(ask, asked)), time.perf_counter() - started


@CASES
async def test_real_answers_are_valid_complete_and_transformers_own(
    case: Case, registry: Registry, shared_data: Path
) -> None:
    asked = questions(case, shared_data)
    async with running(registry) as client:
        answers, seconds = await ask_all(client, case, asked)
    sid_of_item = json.loads((shared_data / case.real.index).read_text())
    for answer in answers:
        assert_valid(answer, sid_of_item)

    oracle = Oracle(shared_data / case.real.checkpoint, sid_of_item)
    compared, near_calls, greatest = list(zip(asked, answers, strict=True))[: case.num_compared], 0, 0.0
    theirs: list[list[str]] = []
    started = time.perf_counter()
    for question, answer in compared:
        expected = oracle.search(question.history)
        theirs.append([item for item, _ in expected.items])
        near_calls += expected.margin < PER_TOKEN * case.real.num_levels
        greatest = max(greatest, assert_equal(answer, expected, case.real.num_levels))
    oracle_seconds = time.perf_counter() - started

    ours = [[item.item_id for item in answer.items] for answer in answers]
    for cut in (10, 100):
        assert recall(ours[: case.num_compared], asked, cut) == recall(theirs, asked, cut)
    print(  # noqa: T201
        f"\n{case.name}: {len(asked)} calls, {1000 * seconds / len(asked):.1f} ms a call at 4 in flight; "
        f"Recall@10 {recall(ours, asked, 10):.4f}, @100 {recall(ours, asked, 100):.4f}; mean rows forwarded "
        f"{sum(answer.rows_forwarded for answer in answers) / len(answers):.0f}; oracle on {len(compared)}: "
        f"{1000 * oracle_seconds / len(compared):.0f} ms each, {near_calls} near calls, scores within {greatest:.0e}, "
        f"Recall@10 {recall(theirs, asked, 10):.4f}, @100 {recall(theirs, asked, 100):.4f}"
    )


def test_padding_rows_never_win(registry: Registry) -> None:
    """Beauty's model has 1,032 rows for 1,027 tokens. A free search would meet the last five; this one cannot."""
    bundle = registry.pin("beauty").bundle
    assert bundle.model.config.vocab_size == 1032
    for level, tokens in enumerate(bundle.template.level_tokens):
        assert tokens.tolist() == list(range(3 + 256 * level, 259 + 256 * level))
    assert bundle.constraint.max_token == 1026


def assert_valid(answer: RecallResult, sid_of_item: dict[str, list[str]]) -> None:
    """Exactly as many items as asked for, all of the catalogue, each once, with its own SID, best first."""
    items = [item.item_id for item in answer.items]
    assert len(items) == len(set(items)) == NUM_ITEMS
    assert answer.short_reason == ""
    for item in answer.items:
        assert [f"<{level}_{code}>" for level, code in zip("abcd", item.sid, strict=False)] == sid_of_item[item.item_id]
    scores = [item.score for item in answer.items]
    assert scores == sorted(scores, reverse=True)
    assert scores[0] <= 0


def recall(ranked: Sequence[Sequence[str]], asked: Sequence[Question], cut: int) -> float:
    """The share of users whose target is among the first `cut` items; of the first users, if not all are ranked."""
    hits = [question.target in items[:cut] for items, question in zip(ranked, asked, strict=False)]
    return sum(hits) / len(hits)


class Expected(NamedTuple):
    """The oracle's items with their scores, best first, and the least difference between a kept and a pruned beam."""

    items: list[tuple[str, float]]
    margin: float


def assert_equal(answer: RecallResult, expected: Expected, num_levels: int) -> float:
    """Equal item lists, unless two scores are too near to tell. Returns the greatest difference in score."""
    tolerance = PER_TOKEN * num_levels
    if expected.margin < tolerance:  # pruning was too near a call, and another beam may lawfully have lived on
        known = dict(expected.items)
        both = [(item.score, known[item.item_id]) for item in answer.items if item.item_id in known]
        assert len(both) > 0.9 * NUM_ITEMS
    else:
        for item, (expected_id, score) in zip(answer.items, expected.items, strict=True):
            assert item.item_id == expected_id or abs(item.score - score) < tolerance
        both = [(item.score, score) for item, (_, score) in zip(answer.items, expected.items, strict=True)]
    greatest = max(abs(ours - theirs) for ours, theirs in both)
    assert greatest < tolerance
    return greatest


class Oracle:
    """Constrained beam search for one user at a time, as one would write it around transformers."""

    def __init__(self, model_path: Path, sid_of_item: dict[str, list[str]]) -> None:
        logging.disable_progress_bar()
        tokenizer = AutoTokenizer.from_pretrained(model_path)
        vocabulary = tokenizer.get_vocab()
        self._model = AutoModelForCausalLM.from_pretrained(model_path, dtype=torch.float32).eval()
        self._bos = vocabulary["<bos>"]
        self._path_of_item = {item: tuple(vocabulary[token] for token in sid) for item, sid in sid_of_item.items()}
        self._items: dict[tuple[int, ...], list[str]] = {}
        self._children: dict[tuple[int, ...], set[int]] = {}
        for item, path in self._path_of_item.items():
            self._items.setdefault(path, []).append(item)
            for depth, token in enumerate(path):
                self._children.setdefault(path[:depth], set()).add(token)

    @torch.inference_mode()
    def search(self, history: Sequence[str]) -> Expected:
        """The first NUM_ITEMS items of a beam of BEAM_WIDTH; on one SID, in ascending order of ids."""
        known = [item for item in history if item in self._path_of_item][-MAX_HISTORY:]
        prompt = [self._bos, *(token for item in known for token in self._path_of_item[item])]
        output = self._model(torch.tensor([prompt]), use_cache=True, logits_to_keep=1)
        cache: Any = output.past_key_values
        beams: list[tuple[int, ...]] = [()]
        scores = torch.zeros(1)
        margin = float("inf")
        while beams[0] not in self._items:
            parents = [row for row, beam in enumerate(beams) for _ in self._children[beam]]
            tokens = [token for beam in beams for token in sorted(self._children[beam])]
            log_probs = torch.log_softmax(output.logits[:, -1].float(), dim=-1)
            candidates = scores[parents] + log_probs[parents, tokens]
            order = candidates.argsort(descending=True, stable=True).tolist()
            kept, pruned = order[:BEAM_WIDTH], order[BEAM_WIDTH:]
            if pruned:
                margin = min(margin, float(candidates[kept[-1]] - candidates[pruned[0]]))
            beams = [(*beams[parents[place]], tokens[place]) for place in kept]
            scores = candidates[kept]
            if beams[0] in self._items:
                break
            rows = torch.tensor([parents[place] for place in kept])
            if cache.get_seq_length() == len(prompt):
                cache.batch_repeat_interleave(len(kept))
            else:
                cache.reorder_cache(rows)
            output = self._model(torch.tensor([[beam[-1]] for beam in beams]), past_key_values=cache, use_cache=True)
        found = [
            (item, score)
            for beam, score in zip(beams, scores.tolist(), strict=True)
            for item in sorted(self._items[beam], key=int)
        ]
        return Expected(found[:NUM_ITEMS], margin)
