"""What a result says of its own time: that of every step where the host sees it end, and none where it does not."""

import time

import numpy as np
import pytest

from recall_service.engine.engine import BeamEngine
from recall_service.engine.kernels.fixed import REFERENCE_KERNELS
from recall_service.engine.models.decoder import Decoder
from recall_service.engine.request import BeamResult, SearchMode
from tests.engine.driving import SMALL, ask, drain
from tests.oracles.tries import Catalogue

CATALOGUE = Catalogue.random(np.random.default_rng(3), (7, 7, 7), 150, 32)


def ended(result: BeamResult) -> float:
    return result.submitted + result.queue_seconds + result.prefill_seconds + result.decode_seconds


@pytest.mark.parametrize("mode", SearchMode)
def test_steps_are_all_forwards_in_order_inside_the_result(tiny_decoder: Decoder, mode: SearchMode) -> None:
    before = time.monotonic()
    requests = [ask(CATALOGUE, prompt, search_mode=mode, num_results=8) for prompt in ((1, 2), (3, 4, 5))]
    for result in BeamEngine(tiny_decoder, SMALL).search(requests):
        assert sum(step.rows for step in result.steps) == result.rows_forwarded
        assert [step.depth for step in result.steps][:3] == [0, 1, 2]
        moment = result.submitted + result.queue_seconds
        assert before <= result.submitted <= moment
        for step in result.steps:
            assert moment <= step.started <= step.forwarded <= step.ended
            assert 0 < step.select_seconds <= step.ended - step.forwarded
            moment = step.ended
        prefilled = result.submitted + result.queue_seconds + result.prefill_seconds
        assert result.steps[0].forwarded == pytest.approx(prefilled)
        assert moment <= ended(result) + 1e-9 <= time.monotonic() + 1e-9
        assert result.select_seconds == pytest.approx(sum(step.select_seconds for step in result.steps))
        assert 0 < result.select_seconds < result.decode_seconds


def test_steps_that_run_behind_the_hosts_back_are_not_told(tiny_decoder: Decoder) -> None:
    [result] = BeamEngine(tiny_decoder, SMALL, fixed_kernels=REFERENCE_KERNELS).search([ask(CATALOGUE)])
    assert result.steps == ()
    assert result.select_seconds is None
    assert 0 < result.decode_seconds < ended(result) - result.submitted


def test_the_queue_is_as_old_as_its_head(tiny_decoder: Decoder) -> None:
    engine = BeamEngine(tiny_decoder, SMALL)
    assert engine.queue_age_seconds == 0
    started = time.monotonic()
    engine.submit(ask(CATALOGUE))
    time.sleep(0.01)
    engine.submit(ask(CATALOGUE))
    assert 0.01 <= engine.queue_age_seconds <= time.monotonic() - started
    drain(engine)
    assert engine.queue_age_seconds == 0
