"""Steps of fixed shapes: which requests share one, how many are remembered, and when they are captured."""

import copy
import weakref
from collections.abc import Callable
from functools import cache, partial
from typing import Any

import numpy as np
import pytest
import torch

from recall_service.engine import fixed_steps
from recall_service.engine.constraint import TrieConstraint
from recall_service.engine.engine import BeamEngine, StepReport
from recall_service.engine.fixed_steps import padded
from recall_service.engine.models.decoder import Decoder
from recall_service.engine.request import BeamRequest, BeamResult, SearchMode
from recall_service.errors import Overloaded
from tests.engine.driving import SMALL, ask, assert_all_free, assert_bitwise_equal, drain
from tests.engine.fixed import VOCAB, FixedEngine, catalogue
from tests.oracles.path_decoder import PathDecoder, random_path_logits
from tests.oracles.tries import nodes_leading_to

RaggedEngine = partial(BeamEngine, skip_rows=False)


def test_requests_of_one_shape_share_a_step_and_others_do_not(tiny_decoder: Decoder) -> None:
    reports: list[StepReport] = []
    engine = FixedEngine(tiny_decoder, SMALL, observe_step=reports.append)
    engine.search([ask(catalogue(3), [seed], beam_width=width) for seed in range(3) for width in (4, 8)])
    assert [(report.requests, report.rows) for report in reports if report.phase == "decode"] == [(3, 12), (3, 24)] * 2


@pytest.mark.parametrize("num_requests", range(1, 130))
def test_steps_are_padded_by_less_than_half(num_requests: int) -> None:
    assert num_requests <= padded(num_requests) < 1.5 * num_requests
    assert padded(padded(num_requests)) == padded(num_requests)


def test_few_sizes_are_enough_for_any_number_of_requests() -> None:
    assert len({padded(count) for count in range(1, 1025)}) <= 20


def test_only_so_many_shapes_are_remembered(tiny_decoder: Decoder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fixed_steps, "MAX_STEPS", 3)
    engine = FixedEngine(tiny_decoder, SMALL)
    expected = BeamEngine(tiny_decoder, SMALL)
    for width in (4, 5, 6, 7, 4):
        (fixed,), (ragged,) = (
            engine.search([ask(catalogue(3), beam_width=width)]),
            expected.search([ask(catalogue(3), beam_width=width)]),
        )
        np.testing.assert_array_equal(fixed.leaves, ragged.leaves)
    assert len(engine._fixed_steps._steps) == 3


def test_steps_go_with_their_catalogue_and_with_their_filter(tiny_decoder: Decoder) -> None:
    """An engine outlives catalogues: what it remembers of one that nobody can ask for is memory lost."""
    engine = FixedEngine(tiny_decoder, SMALL)
    sids = catalogue(3).sids
    kept = copy.copy(catalogue(3).constraint)
    filtered = kept.keeping(nodes_leading_to(sorted(sids)[:20], sids))
    live = weakref.ref(filtered.level_arrays(1).live)

    def search(constraint: TrieConstraint) -> int:
        (result,) = engine.search([ask(None, constraint_of=constraint)])
        assert len(result.leaves) == 8
        return len(engine._fixed_steps._steps)

    assert [search(kept), search(filtered), search(filtered)] == [2, 4, 4]  # two depths each
    del filtered
    assert live() is not None  # the steps read it, and nobody has stepped since
    assert search(kept) == 2
    assert live() is None


def test_what_was_prepared_serves_any_number_of_requests(tiny_decoder: Decoder) -> None:
    engine = FixedEngine(tiny_decoder, SMALL)  # 512 rows
    request = ask(catalogue(3), beam_width=64)
    engine.search([request])  # what is there already is not made again
    engine.prepare(request)
    prepared = list(engine._fixed_steps._prepared)
    assert sorted({key.num_requests for key in prepared}) == [1, 2, 3, 4, 6, 8]
    assert {key.shape.depth for key in prepared} == {1, 2}
    for count in (1, 5, 8):
        engine.search([ask(catalogue(3), [count, index], beam_width=64) for index in range(count)])
    assert list(engine._fixed_steps._prepared) == prepared
    assert not engine._fixed_steps._steps


def test_filters_never_take_the_place_of_what_was_prepared(
    tiny_decoder: Decoder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fixed_steps, "MAX_STEPS", 3)
    engine = FixedEngine(tiny_decoder, SMALL)
    engine._fixed_steps._recorder = recorder = Recorder()
    request = ask(catalogue(3), beam_width=64)
    engine.prepare(request)
    sids = catalogue(3).sids
    in_use = [
        catalogue(3).constraint.keeping(nodes_leading_to(sorted(sids)[first : first + 20], sids)) for first in range(4)
    ]
    for filtered in in_use:
        engine.search([ask(None, constraint_of=filtered)])
    assert len(engine._fixed_steps._steps) == 3
    recorded, replayed = recorder.num_recorded, recorder.num_replayed
    engine.search([request])
    assert (recorder.num_recorded, recorder.num_replayed) == (recorded, replayed + 2)


@pytest.mark.parametrize(
    "go_on", [BeamEngine.prepare, lambda engine, request: engine.search([request])], ids=["prepared", "stepped"]
)
def test_what_was_prepared_goes_with_its_catalogue(
    tiny_decoder: Decoder, go_on: Callable[[BeamEngine, BeamRequest], object]
) -> None:
    """When another is prepared, or at the next step."""
    engine = FixedEngine(tiny_decoder, SMALL)
    kept = catalogue(3).constraint
    replaced = copy.copy(kept)
    engine.prepare(ask(None, constraint_of=replaced))
    engine.prepare(ask(None, constraint_of=kept))
    assert {key.constraint() for key in engine._fixed_steps._prepared} == {kept, replaced}
    del replaced
    go_on(engine, ask(None, constraint_of=kept))
    assert {key.constraint() for key in engine._fixed_steps._prepared} == {kept}


def test_to_prepare_is_nothing_where_shapes_are_not_fixed(tiny_decoder: Decoder) -> None:
    engine = FixedEngine(tiny_decoder, SMALL)
    engine.prepare(ask(catalogue(3), search_mode=SearchMode.PROVEN))
    assert not engine._fixed_steps._steps
    assert not engine._fixed_steps._prepared
    BeamEngine(tiny_decoder, SMALL).prepare(ask(catalogue(3)))


def test_no_memory_for_a_step_fails_its_requests_and_the_engine_goes_on(tiny_decoder: Decoder) -> None:
    engine = FixedEngine(tiny_decoder, SMALL)
    narrow, wide = ask(catalogue(3), beam_width=4), ask(catalogue(3), beam_width=64)
    run = engine._fixed_steps.run

    def run_out_of_memory(shape: Any, batch: Any) -> Any:
        if shape.width == 64:
            raise torch.OutOfMemoryError("CUDA out of memory")
        return run(shape, batch)

    engine._fixed_steps.run = run_out_of_memory
    ids = [engine.submit(narrow), engine.submit(wide)]
    outcomes = drain(engine)
    assert isinstance(outcomes[ids[0]], BeamResult)
    assert isinstance(outcomes[ids[1]], Overloaded)
    assert_all_free(engine)


class Recorder:
    """Stands in for StepRecorder, which needs CUDA: what it records is the function itself."""

    def __init__(self, error: Exception | None = None) -> None:
        self.error = error
        self.num_recorded = self.num_replayed = 0

    def record(self, run: Any) -> Any:
        if self.error is not None:
            raise self.error
        self.num_recorded += 1

        def replay() -> Any:
            self.num_replayed += 1
            return run()

        return replay


class SharedPool(Recorder):
    """As graphs of one pool: what a replay returned is overwritten by the next one, whichever it is."""

    def __init__(self) -> None:
        super().__init__()
        self.last: list[torch.Tensor] = []

    def record(self, run: Any) -> Any:
        replay = super().record(run)

        def replay_into_the_pool() -> Any:
            level = replay()
            for part in self.last:
                part.zero_()
            self.last = [*level.rows.parts(), *level[1:]]
            return level

        return replay_into_the_pool


def test_what_a_replay_returned_is_kept_from_the_next_one() -> None:
    """Two shapes take turns, and requests stand at different depths."""
    decoder = PathDecoder(VOCAB, cache(random_path_logits(VOCAB)))
    requests = [ask(catalogue(4), [seed], beam_width=width) for seed in range(2) for width in (5, 7)]
    expected = RaggedEngine(decoder, SMALL).search(requests)
    engine = FixedEngine(decoder, SMALL)
    engine._fixed_steps._recorder = pool = SharedPool()
    for width in (5, 7):
        engine.prepare(ask(catalogue(4), beam_width=width))
    ids, outcomes = [], {}
    for request in requests:
        ids.append(engine.submit(request))
        outcomes.update(engine.step())
    outcomes.update(drain(engine))
    assert pool.num_replayed > 4
    for request_id, result in zip(ids, expected, strict=True):
        assert_bitwise_equal(outcomes[request_id], result)


def test_a_step_is_captured_when_it_comes_again(tiny_decoder: Decoder) -> None:
    engine = FixedEngine(tiny_decoder, SMALL)
    engine._fixed_steps._recorder = recorder = Recorder()
    request = ask(catalogue(3))
    counts = []
    for _ in range(3):
        engine.search([request])
        counts.append((recorder.num_recorded, recorder.num_replayed))
    assert counts == [(0, 0), (2, 2), (2, 4)]  # two depths


def test_what_was_prepared_is_captured_at_once(tiny_decoder: Decoder) -> None:
    engine = FixedEngine(tiny_decoder, SMALL)
    engine._fixed_steps._recorder = recorder = Recorder()
    request = ask(catalogue(3), beam_width=512)
    engine.prepare(request)
    engine.search([request])
    assert (recorder.num_recorded, recorder.num_replayed) == (2, 2)


def test_where_nothing_can_be_captured_steps_run_as_they_stand(
    tiny_decoder: Decoder, caplog: pytest.LogCaptureFixture
) -> None:
    engine = FixedEngine(tiny_decoder, SMALL)
    engine._fixed_steps._recorder = Recorder(RuntimeError("operation not permitted when stream is capturing"))
    for _ in range(3):
        (result,) = engine.search([ask(catalogue(3))])
    assert len(result.scores) == 8
    assert [record.getMessage() for record in caplog.records] == [
        "a step could not be captured; from now on steps run as they stand"
    ]


def test_no_memory_to_capture_a_step_fails_its_requests_alone(tiny_decoder: Decoder) -> None:
    engine = FixedEngine(tiny_decoder, SMALL)
    engine._fixed_steps._recorder = recorder = Recorder(RuntimeError("CUDA error: out of memory"))
    engine.search([ask(catalogue(3))])
    with pytest.raises(Overloaded, match="no memory left for the decode step"):
        engine.search([ask(catalogue(3))])
    with pytest.raises(Overloaded, match="no memory left for the warm-up step"):
        engine.prepare(ask(catalogue(3)))
    recorder.error = None
    engine.search([ask(catalogue(3))])
    assert recorder.num_replayed == 2
    assert_all_free(engine)


def test_no_memory_for_the_results_of_one_request_fails_it_alone(
    tiny_decoder: Decoder, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = FixedEngine(tiny_decoder, SMALL)
    ids = [engine.submit(ask(catalogue(2), [prompt])) for prompt in (1, 2)]
    engine.step()

    def out_of_memory(level: Any) -> Any:
        raise RuntimeError("CUDA error: out of memory")

    monkeypatch.setattr(engine._running[0].search, "take", out_of_memory)
    outcomes = drain(engine)
    assert isinstance(outcomes[ids[0]], Overloaded)
    assert isinstance(outcomes[ids[1]], BeamResult)
    assert_all_free(engine)
