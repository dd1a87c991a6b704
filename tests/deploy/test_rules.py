"""Rules and scrape config by Prometheus's own tool, and what it cannot know: names, scenarios, runbooks."""

import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from deploy.generate import DEPLOY, generate, stale_files
from deploy.grafana.rows import ROWS
from deploy.prometheus.local import shortened
from deploy.prometheus.slo import LATENCY_SECONDS, OBJECTIVES, WINDOWS
from recall_service.observability.metrics import REQUEST_SECONDS
from tests.deploy.expressions import declared, declared_values, names_in, values_in

PROMETHEUS = DEPLOY / "prometheus"
RUNBOOKS = DEPLOY.parent / "docs" / "runbooks.md"

needs_promtool = pytest.mark.skipif(
    shutil.which("promtool") is None, reason="no promtool: `apt-get install prometheus` brings it"
)


def rules() -> list[dict[str, Any]]:
    groups = [
        group for path in (PROMETHEUS / "rules").glob("*.yml") for group in yaml.safe_load(path.read_text())["groups"]
    ]
    return [rule for group in groups for rule in group["rules"]]


ALERTS = {rule["alert"]: rule for rule in rules() if "alert" in rule}
RECORDED = {rule["record"] for rule in rules() if "record" in rule}


def promtool(*arguments: str) -> str:
    done = subprocess.run(["promtool", *arguments], cwd=PROMETHEUS, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@needs_promtool
def test_the_scrape_config_and_the_rules_it_names_are_sound() -> None:
    assert "3 rule files found" in promtool("check", "config", "prometheus.yml")


@needs_promtool
@pytest.mark.parametrize("path", sorted((PROMETHEUS / "tests").glob("*.yml")), ids=lambda path: path.name)
def test_the_scenarios_of_the_alerts(path: Path) -> None:
    assert "SUCCESS" in promtool("test", "rules", str(path))


def test_every_alert_fires_in_one_scenario_and_stays_silent_in_another() -> None:
    outcomes = {
        (check["alertname"], bool(check.get("exp_alerts")))
        for path in (PROMETHEUS / "tests").glob("*.yml")
        for scenario in yaml.safe_load(path.read_text())["tests"]
        for check in scenario["alert_rule_test"]
    }
    assert outcomes == {(alert, fires) for alert in ALERTS for fires in (True, False)}


@pytest.mark.parametrize("name", ALERTS)
def test_an_alert_says_how_urgent_it_is_what_is_wrong_and_what_to_do(name: str) -> None:
    alert = ALERTS[name]
    assert alert["labels"]["severity"] in ("page", "ticket")
    assert set(alert["annotations"]) == {"summary", "description", "runbook_url"}
    assert alert["annotations"]["runbook_url"] == f"docs/runbooks.md#{name.lower()}"
    assert f"\n## {name}\n" in RUNBOOKS.read_text()


def test_no_runbook_is_left_of_an_alert_that_is_gone() -> None:
    assert set(re.findall(r"^## (\w+)$", RUNBOOKS.read_text(), re.MULTILINE)) == set(ALERTS)


def test_runbooks_look_at_panels_that_exist() -> None:
    titles = {panel.title for row in ROWS for panel in row.panels}
    assert set(re.findall(r"(?<!\*)\*([^*\n]+)\*(?!\*)", RUNBOOKS.read_text())) <= titles


@pytest.mark.parametrize("rule", rules(), ids=lambda rule: rule.get("record") or rule["alert"])
def test_rules_read_what_the_service_declares(rule: dict[str, Any]) -> None:
    known = set().union(*declared().values()) | RECORDED | {"up"}
    assert names_in(rule["expr"]) <= known
    assert values_in(rule["expr"]) <= declared_values() | {("job", "recall")}


def test_recording_rules_are_named_level_metric_operations() -> None:
    assert len(RECORDED) == 2 + len(OBJECTIVES) * (3 + len(WINDOWS))
    for name in RECORDED:
        assert re.fullmatch(r"(job|instance):recall_[a-z_]+:(rate5m|ratio_rate\d+[mhd]|sum|bool)", name)


def test_the_threshold_of_latency_is_an_edge_of_the_histogram() -> None:
    assert LATENCY_SECONDS in REQUEST_SECONDS


def test_generated_files_are_what_the_code_says(tmp_path: Path) -> None:
    generated = generate()
    assert stale_files(generated) == []
    assert stale_files(generated, tmp_path) == sorted(generated)


@pytest.mark.parametrize(
    ("rule", "short"),
    [
        ("rate(x[5m])", "rate(x[5s])"),
        ("for: 10m\n", "for: 10s\n"),
        ("x offset 1d", "x offset 1440s"),
        ("x[30s]", "x[1s]"),
        ("job:x:ratio_rate5m > 36 * 3600", "job:x:ratio_rate5m > 36 * 3600"),
    ],
    ids=["window", "for", "offset", "never below a second", "names and numbers stay"],
)
def test_shortened_durations(rule: str, short: str) -> None:
    assert shortened(rule) == short
