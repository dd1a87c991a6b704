"""The dashboard as data: it shows what the service declares, all of it, and nothing lies on top of anything else."""

import json
from typing import Any

import pytest

from deploy.generate import DEPLOY
from deploy.grafana.dashboard import dashboard
from deploy.grafana.panels import Panel
from deploy.grafana.rows import NOT_SHOWN, ROWS
from tests.deploy.expressions import declared, declared_values, names_in, values_in
from tests.deploy.test_rules import RECORDED

PANELS = [panel for row in ROWS for panel in row.panels]
SHOWN = dashboard()


def read_by_panels() -> set[str]:
    return set().union(*(names_in(query.expr) for panel in PANELS for query in panel.queries))


def test_rows_are_read_from_the_symptom_to_the_machine() -> None:
    assert [row.title for row in ROWS] == [
        "SLO and budget",
        "Traffic",
        "Latency",
        "Engine",
        "Cache",
        "Results",
        "Bundle and catalogue",
        "Process and GPU",
    ]


@pytest.mark.parametrize("panel", PANELS, ids=lambda panel: panel.title)
def test_a_panel_reads_only_what_is_declared(panel: Panel) -> None:
    known = set().union(*declared().values()) | RECORDED
    for query in panel.queries:
        assert names_in(query.expr)
        assert names_in(query.expr) <= known
        assert values_in(query.expr) <= declared_values()
    assert panel.description.endswith(".")


def test_every_metric_of_ours_is_on_a_panel_or_left_out_for_a_reason() -> None:
    ours = {name: series for name, series in declared().items() if name.startswith(("recall_", "grpc_server_"))}
    assert {name for name, series in ours.items() if not series & read_by_panels()} == set(NOT_SHOWN)


def test_titles_tell_panels_apart() -> None:
    assert len({panel.title for panel in PANELS}) == len(PANELS)


def test_panels_fill_lines_and_lie_on_nothing() -> None:
    taken: set[tuple[int, int]] = set()
    for panel in SHOWN["panels"]:
        place = panel["gridPos"]
        assert place["x"] + place["w"] <= 24
        cells = {(place["x"] + i, place["y"] + j) for i in range(place["w"]) for j in range(place["h"])}
        assert not cells & taken
        taken |= cells
    assert len(taken) == 24 * (1 + max(y for _, y in taken))


def test_panels_ask_the_chosen_datasource_and_have_ids_of_their_own() -> None:
    ids = [panel["id"] for panel in SHOWN["panels"]]
    assert len(set(ids)) == len(ids) == len(PANELS) + len(ROWS)
    for panel in SHOWN["panels"]:
        if panel["type"] == "row":
            continue
        assert panel["datasource"]["uid"] == "${datasource}"
        assert [target["refId"] for target in panel["targets"]] == ["A", "B", "C"][: len(panel["targets"])]


def test_variables_are_the_ones_that_expressions_use() -> None:
    assert [variable["name"] for variable in SHOWN["templating"]["list"]] == ["datasource", "instance", "scene"]
    text = json.dumps(SHOWN["panels"])
    assert "$scene" in text
    assert "$instance" in text
    assert "$job" not in text


def test_annotations_read_what_is_declared() -> None:
    known = set().union(*declared().values())
    exprs = [annotation["expr"] for annotation in SHOWN["annotations"]["list"]]
    assert len(exprs) == 2
    for expr in exprs:
        assert names_in(expr) <= known


@pytest.mark.parametrize(
    ("title", "colours"),
    [("Ready replicas", ["red", "orange", "green"]), ("Latency: burn rate", ["green", "orange", "red"])],
    ids=["a floor", "a ceiling"],
)
def test_bounds_colour_the_right_side(title: str, colours: list[str]) -> None:
    [panel] = [panel for panel in SHOWN["panels"] if panel["title"] == title]
    steps = panel["fieldConfig"]["defaults"]["thresholds"]["steps"]
    assert [step["color"] for step in steps] == colours
    assert steps[0]["value"] is None
    assert steps[1]["value"] < steps[2]["value"]


def test_the_file_is_what_provisioning_loads() -> None:
    loaded: dict[str, Any] = json.loads((DEPLOY / "grafana" / "dashboards" / "recall-service.json").read_text())
    assert loaded == SHOWN
    assert "id" not in loaded  # Grafana gives it
