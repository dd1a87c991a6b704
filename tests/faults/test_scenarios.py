"""Every scenario in its short form; `python -m tests.faults --full` runs the long one."""

import pytest

from tests.faults.fleet import Fleet
from tests.faults.run import SCENARIOS, Scenario


@pytest.mark.redis
@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.__name__)
async def test_no_fault_makes_an_answer_wrong_late_or_leak(fleet: Fleet, scenario: Scenario) -> None:
    report = await scenario(fleet, full=False)
    assert report.cases > 0
    assert (report.wrong, report.leaked, report.hung) == (0, 0, 0), "\n".join(report.notes)
