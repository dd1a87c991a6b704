"""The dashboard as Grafana's JSON (schema 39, Grafana 10.4 and later): rows laid out, variables, annotations.

Knows no metric but those that its variables and annotations read; what is shown is in `rows`.
"""

import json
from collections.abc import Iterator
from itertools import count, pairwise
from typing import Any, NamedTuple

from deploy.grafana.panels import Panel, Row
from deploy.grafana.rows import ROWS

UID = "recall-service"
_SCHEMA_VERSION = 39
COLUMNS = 24
_MOST_IN_LINE = 6
_PANEL_HEIGHT = 7
_DATASOURCE = {"type": "prometheus", "uid": "${datasource}"}

_VERSIONS = (("Bundle", "recall_bundle_info", "orange"), ("Catalogue", "recall_catalog_info", "blue"))

# True wherever a version serves that did not a minute before.
VERSION_MARKS = tuple(
    f"count by (bundle, version) ({metric}) unless count by (bundle, version) ({metric} offset 1m)"
    for _, metric, _ in _VERSIONS
)


class Placed(NamedTuple):
    """A panel, the column where it begins, and how many of the 24 it takes."""

    panel: Panel
    x: int
    width: int


def dashboard_json() -> str:
    """The text of dashboards/recall-service.json."""
    return json.dumps(dashboard(), indent=2) + "\n"


def dashboard() -> dict[str, Any]:
    """The dashboard as Grafana's API takes it, without a numeric id."""
    return {
        "uid": UID,
        "title": "Recall service",
        "description": "Read it from the top: is anything wrong, who asks, how long does it take, why.",
        "tags": ["recall"],
        "schemaVersion": _SCHEMA_VERSION,
        "version": 1,
        "editable": True,
        "graphTooltip": 1,  # one crosshair through all panels
        "time": {"from": "now-1h", "to": "now"},
        "refresh": "30s",
        "timezone": "browser",
        "templating": {"list": [_datasource_variable(), _variable("instance"), _variable("scene")]},
        "annotations": {
            "list": [
                _version_annotation(what, colour, expr)
                for (what, _, colour), expr in zip(_VERSIONS, VERSION_MARKS, strict=True)
            ]
        },
        "panels": list(_laid_out(ROWS)),
    }


def _laid_out(rows: tuple[Row, ...]) -> Iterator[dict[str, Any]]:
    """Rows under one another, their panels from left to right, in lines of 24 columns."""
    ids = count(1)
    y = 0
    for row in rows:
        yield {
            "id": next(ids),
            "type": "row",
            "title": row.title,
            "collapsed": False,
            "gridPos": {"x": 0, "y": y, "w": COLUMNS, "h": 1},
            "panels": [],
        }
        y += 1
        for line in lines_of(row):
            for panel, x, width in line:
                place = {"x": x, "y": y, "w": width, "h": _PANEL_HEIGHT}
                yield {"id": next(ids), "gridPos": place, **_panel(panel)}
            y += _PANEL_HEIGHT


def lines_of(row: Row) -> list[list[Placed]]:
    """The panels of a row in as few lines as may be, each of them filled, with about as many panels in each."""
    num_lines = -(-len(row.panels) // _MOST_IN_LINE)
    ends = [round(len(row.panels) * line / num_lines) for line in range(num_lines + 1)]
    return [_filled(row.panels[start:end]) for start, end in pairwise(ends)]


def _filled(panels: tuple[Panel, ...]) -> list[Placed]:
    edges = [round(COLUMNS * place / len(panels)) for place in range(len(panels) + 1)]
    return [Placed(panel, left, right - left) for panel, (left, right) in zip(panels, pairwise(edges), strict=True)]


def _panel(panel: Panel) -> dict[str, Any]:
    return {
        "type": panel.kind,
        "title": panel.title,
        "description": panel.description,
        "datasource": _DATASOURCE,
        "targets": [
            {
                "refId": chr(ord("A") + place),
                "datasource": _DATASOURCE,
                "editorMode": "code",
                "expr": query.expr,
                "legendFormat": query.legend,
                "range": True,
                "exemplar": query.has_exemplars,
                "format": "heatmap" if panel.kind == "heatmap" else "time_series",
            }
            for place, query in enumerate(panel.queries)
        ],
        "fieldConfig": {"defaults": _defaults(panel), "overrides": []},
        "options": _OPTIONS[panel.kind],
    }


_OPTIONS: dict[str, dict[str, Any]] = {
    "timeseries": {
        "legend": {"displayMode": "list", "placement": "bottom", "showLegend": True},
        "tooltip": {"mode": "multi", "sort": "desc"},
    },
    "stat": {
        "colorMode": "value",
        "graphMode": "area",
        "justifyMode": "auto",
        "orientation": "auto",
        "reduceOptions": {"calcs": ["lastNotNull"], "fields": "", "values": False},
        "textMode": "auto",
    },
    "heatmap": {
        "calculate": False,  # the buckets come from the histogram
        "color": {"mode": "scheme", "scheme": "Oranges", "steps": 64},
        "cellGap": 1,
        "filterValues": {"le": 1e-9},
        "legend": {"show": True},
        "rowsFrame": {"layout": "auto"},
        "tooltip": {"mode": "single", "yHistogram": True},
        "yAxis": {"axisPlacement": "left", "unit": "s"},
    },
}


def _defaults(panel: Panel) -> dict[str, Any]:
    defaults: dict[str, Any] = {"unit": panel.unit}
    if panel.kind == "timeseries":
        defaults["min"] = 0
        defaults["custom"] = {
            "drawStyle": "line",
            "lineWidth": 1,
            "fillOpacity": 30 if panel.is_stacked else 5,
            "showPoints": "never",
            "stacking": {"mode": "normal" if panel.is_stacked else "none", "group": "A"},
            "thresholdsStyle": {"mode": "line" if panel.bounds else "off"},
        }
    if panel.bounds:
        defaults["thresholds"] = {"mode": "absolute", "steps": _steps(*panel.bounds)}
    return defaults


def _steps(orange: float, red: float) -> list[dict[str, Any]]:
    """Grafana colours from a value upwards, so floors are written from their lower end."""
    if red < orange:
        colours = (("red", None), ("orange", red), ("green", orange))
    else:
        colours = (("green", None), ("orange", orange), ("red", red))
    return [{"color": colour, "value": value} for colour, value in colours]


def _datasource_variable() -> dict[str, Any]:
    return {
        "name": "datasource",
        "label": "Prometheus",
        "type": "datasource",
        "query": "prometheus",
        "current": {},
        "hide": 0,
    }


def _variable(label: str) -> dict[str, Any]:
    """All values of a label, several of which may be chosen; at first all of them."""
    query = f"label_values(recall_request_duration_seconds_count, {label})"
    return {
        "name": label,
        "label": label.capitalize(),
        "type": "query",
        "datasource": _DATASOURCE,
        "definition": query,
        "query": {"query": query, "refId": f"variable-{label}"},
        "refresh": 2,  # whenever the time range changes
        "sort": 1,
        "multi": True,
        "includeAll": True,
        "allValue": ".*",
        "current": {"text": ["All"], "value": ["$__all"]},
        "hide": 0,
    }


def _version_annotation(what: str, colour: str, expr: str) -> dict[str, Any]:
    return {
        "name": f"{what} versions",
        "datasource": _DATASOURCE,
        "enable": True,
        "iconColor": colour,
        "expr": expr,
        "step": "60s",
        "titleFormat": f"{what} {{{{bundle}}}}",
        "textFormat": "{{version}}",
        "useValueForTime": False,
    }
