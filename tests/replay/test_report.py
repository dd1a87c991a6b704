"""The report: well-formed, self-contained, bounded, safe against what is in a log, and right in a real browser."""

import json
import re
import shutil
import subprocess
from html.parser import HTMLParser
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest

from recall_service.errors import ReplayError
from recall_service.replay.asked import Asked
from recall_service.replay.judging.analysis import Analysis, analyse
from recall_service.replay.judging.gate import Threshold
from recall_service.replay.judging.outcome_table import OutcomeTableBuilder
from recall_service.replay.judging.samples import sample_run
from recall_service.replay.judging.summary import summarise, summarise_table
from recall_service.replay.judging.sweep import sweep
from recall_service.replay.outcome import Outcome
from recall_service.replay.report.svg import chart, linear_axis, log_axis
from recall_service.replay.report.wording import milliseconds, number, share, shortened
from recall_service.replay.report.writer import write_report, write_sweep_report
from tests.replay.fabricated import answered, asked, drifted, logged_run, outcome, without_item, write

BROWSER = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
VOID = {"meta"}


class Balance(HTMLParser):
    """Raises AssertionError where a tag is closed that is not the innermost open one."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []

    def handle_starttag(self, tag: str, attrs: object) -> None:
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: object) -> None:
        pass

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def check_well_formed(page: str) -> None:
    balance = Balance()
    balance.feed(page)
    balance.close()
    assert balance.open == []
    for drawing in re.findall(r"<svg.*?</svg>", page, re.DOTALL):
        ElementTree.fromstring(drawing)
        assert "nan" not in drawing
        assert "inf" not in drawing


def plots_of(page: str) -> list[str]:
    """The titles of the plots, each of which has a description."""
    figures = re.findall(r"<figure>.*?</figure>", page, re.DOTALL)
    assert all(re.search(r'<svg [^>]*role="img" aria-label="[^"]{10,}"', figure) for figure in figures)
    return [re.findall(r"<h3>(.*?)</h3>", figure)[0] for figure in figures]


def reported(directory: Path, questions: list[Asked], outcomes: list[Outcome]) -> tuple[Analysis, str]:
    path = write(directory / "outcomes.jsonl", outcomes)
    analysis = analyse(
        asked=questions,
        outcomes=path,
        against_logged=True,
        slo_seconds=0.05,
        gate=[Threshold("max_p99_ms", 500), Threshold("min_overlap@10", 1.0)],
        title="Shop's log",
        settings={"target": "127.0.0.1:50051"},
        out=directory,
    )
    return analysis, (directory / "report.html").read_text(encoding="utf-8")


def changed_run(count: int = 300) -> tuple[list[Asked], list[Outcome]]:
    questions, outcomes = logged_run(count)
    return questions, [drifted(without_item(one, "item0007"), one.index % 5 / 100) for one in outcomes]


def test_a_report_says_what_the_summary_says(tmp_path: Path) -> None:
    analysis, page = reported(tmp_path, *changed_run())
    check_well_formed(page)
    assert plots_of(page) == ["Overlap@k", "Scores", "Hit rate@k", "Latency distribution", "Latency over time"]
    latency = analysis.summary.overall.latency
    assert latency is not None
    for value in (latency.p50, latency.p90, latency.p95, latency.p99, latency.p999, latency.max):
        assert f"<td>{milliseconds(value)}</td>" in page
    for verdict in analysis.verdicts:
        assert verdict.sentence in page
    assert (
        page.index("The gate fails: 1 of 2 thresholds") < page.index("overlap@10 is") < page.index("p99 of latency is")
    )
    for told in ("Shop&#x27;s log", "c1 → c2", "item0007", "127.0.0.1:50051", "SLO 50 ms"):
        assert told in page


def test_a_report_fetches_nothing_and_runs_nothing(tmp_path: Path) -> None:
    _, page = reported(tmp_path, *changed_run())
    assert "default-src 'none'" in page
    assert not re.search(r"<(script|link|img|iframe|object|embed)\b|url\(|@import|https?://| on\w+=", page)


def test_what_is_in_a_log_cannot_write_into_the_page(tmp_path: Path) -> None:
    evil = "<script>alert('x')</script>\"'&"
    questions = [asked(0, expected=answered([evil])), asked(1, expected=answered(["a"]))]
    outcomes = [
        outcome(0, scene=evil, answer=answered(["b"], catalog_version=evil, served_from=evil, short_reason=evil)),
        outcome(1, scene=evil, code="INTERNAL", error_reason=evil),
    ]
    _, page = reported(tmp_path, questions, outcomes)
    check_well_formed(page)
    assert "<script" not in page
    assert "&lt;script&gt;" in page


def test_words_of_a_chart_cannot_write_into_the_page() -> None:
    axis = linear_axis("<b>", 0, 1, lambda value: f"<{value}>")
    drawn = ElementTree.fromstring(chart(description='"<', x=axis, y=axis, series=[], limits=[(0.5, "<SLO>")]))
    assert {"<b>", "<SLO>"} <= {text.strip() for text in drawn.itertext()}


def test_a_report_of_a_run_without_outcomes_is_well_formed(tmp_path: Path) -> None:
    _, page = reported(tmp_path, [], [])
    check_well_formed(page)
    assert plots_of(page) == []
    assert "nothing could be compared" in page


def test_a_report_of_one_request_is_well_formed(tmp_path: Path) -> None:
    _, page = reported(tmp_path, [asked(0, expected=answered("a"))], [outcome(0, answer=answered("a"))])
    check_well_formed(page)
    assert plots_of(page) == ["Overlap@k", "Scores", "Latency distribution", "Latency over time"]


def test_a_report_of_two_targets_shows_both(tmp_path: Path) -> None:
    questions, outcomes = logged_run(80)
    target, against = (write(tmp_path / f"{name}.jsonl", outcomes) for name in ("target", "other"))
    analyse(asked=questions, outcomes=target, against=against, title="two", out=tmp_path)
    page = (tmp_path / "report.html").read_text(encoding="utf-8")
    check_well_formed(page)
    assert page.count('<th scope="row" class="word">reference</th><td class="word">latency</td>') == 1
    assert "reference p99" in page


def test_the_size_of_a_report_does_not_grow_with_the_run(tmp_path: Path) -> None:
    random = np.random.default_rng(0)
    table = OutcomeTableBuilder()
    for index, service in enumerate(random.lognormal(-4, 1, 50_000).tolist()):
        table.add(outcome(index, intended=index / 2000, service=service, scene=f"scene {index}"))
    write_report(
        tmp_path / "report.html",
        title="many",
        summaries={"target": summarise_table(table, slo_seconds=0.1)},
        comparison=None,
        verdicts=[],
        settings={},
        samples={"target": sample_run(table.build())},
    )
    assert (tmp_path / "report.html").stat().st_size < 100_000


def test_samples_of_latency_are_true_to_the_run() -> None:
    random = np.random.default_rng(0)
    service = random.lognormal(-4, 1, 5000)
    table = OutcomeTableBuilder()
    for index, seconds in enumerate(service.tolist()):
        table.add(outcome(index, intended=index / 100, service=seconds))
    columns = table.build()
    samples = sample_run(columns)
    assert samples.latency_curve is not None
    assert samples.latency_over_time is not None
    for share_of_calls, seconds in zip(samples.latency_curve.at_least, samples.latency_curve.seconds, strict=True):
        assert np.mean(columns.latency >= seconds) == pytest.approx(share_of_calls)
    assert samples.latency_curve.seconds[[0, -1]].tolist() == [columns.latency.min(), columns.latency.max()]
    over_time = samples.latency_over_time
    assert over_time.requests.sum() == 5000
    first = columns.latency[columns.intended < over_time.bucket_seconds]
    assert over_time.p50[0] == np.sort(first)[-(-len(first) // 2) - 1]


async def test_a_report_of_a_sweep_shows_the_knee(tmp_path: Path) -> None:
    async def run_rate(rate: float):
        return summarise([outcome(index, service=rate / 10_000) for index in range(100)], slo_seconds=0.03)

    found = await sweep(run_rate, [100, 200, 400], slo_seconds=0.03)
    write_sweep_report(tmp_path / "sweep.html", title="a sweep", sweep=found, settings={"target": "here"})
    page = (tmp_path / "sweep.html").read_text(encoding="utf-8")
    check_well_formed(page)
    assert plots_of(page) == ["Goodput", "Latency by rate"]
    assert "The knee is at 200 requests per second: 400 are not sustained at an SLO of 30 ms." in page


def test_a_report_that_cannot_be_written_is_one_error(tmp_path: Path) -> None:
    with pytest.raises(ReplayError, match=r"report.html: cannot be written: No such file or directory; make room"):
        write_report(
            tmp_path / "nowhere" / "report.html",
            title="",
            summaries={"target": summarise([], slo_seconds=None)},
            comparison=None,
            verdicts=[],
            settings={},
            samples={},
        )


@pytest.mark.parametrize(
    ("low", "high"), [(0.001, 0.002), (0.0123, 0.0123), (1e-5, 30.0), (0.5, 0.5000001), (0.009, 0.011), (0.01, 0.1)]
)
def test_a_logarithmic_axis_holds_its_values_and_has_marks(low: float, high: float) -> None:
    axis = log_axis("", low, high, milliseconds)
    assert axis.low <= low
    assert axis.high >= high
    assert 2 <= len(axis.ticks) <= 9
    assert axis.shares([axis.low, axis.high]).tolist() == [0, 1]


@pytest.mark.parametrize(
    ("low", "high"), [(0, 1), (0.99, 1), (-13.7, -0.2), (5, 5), (0, 0), (-1e-6, 1e-6), (0, 123_456), (1, 400)]
)
def test_a_linear_axis_has_round_marks_within_its_ends(low: float, high: float) -> None:
    axis = linear_axis("", low, high, number)
    marks = [value for value, _ in axis.ticks]
    assert 2 <= len(marks) <= 8
    assert all(axis.low - 1e-9 <= mark <= axis.high + 1e-9 for mark in marks)
    assert len({text for _, text in axis.ticks}) == len(marks)


def test_numbers_are_written_so_that_they_do_not_say_more_or_less_than_they_are() -> None:
    assert [share(value) for value in (0, 1, 0.5, 0.99999, 0.9999999, 0.00001)] == [
        "0 %", "100 %", "50 %", "> 99.99 %", "> 99.99 %", "< 0.01 %",
    ]  # fmt: skip
    assert [milliseconds(value) for value in (0, 0.00123, 0.0123, 0.9994, 0.9996, 1.5, 1000)] == [
        "0 ms", "1.23 ms", "12.3 ms", "999 ms", "1 s", "1.5 s", "1,000 s",
    ]  # fmt: skip
    assert [number(value) for value in (0.000012, 1234.5, -12.34, 999.9)] == ["1.2e-5", "1,234", "-12.3", "1,000"]
    assert shortened("0123456789abcdef") == "0123456789abcdef"
    assert shortened("0123456789abcdef0") == "0123456789ab…"


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory):
    """Runs the browser on a page without a network: gives its DOM, its console, and each address the page asked for."""
    if BROWSER is None:
        pytest.skip("no browser; install Debian's chromium to see the report in one")

    def look(page: Path, *options: str) -> tuple[str, str, list[str]]:
        profile = tmp_path_factory.mktemp("profile")
        log = profile / "network.json"
        done = subprocess.run(
            [
                BROWSER, "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--no-first-run",
                "--disable-background-networking", "--disable-component-update", "--disable-sync",
                "--host-resolver-rules=MAP * ~NOTFOUND", f"--user-data-dir={profile}", f"--log-net-log={log}",
                "--enable-logging=stderr", "--window-size=1200,1700", *options, page.as_uri(),
            ],
            capture_output=True, text=True, timeout=60, check=True,
        )  # fmt: skip
        console = "\n".join(line for line in done.stderr.splitlines() if "CONSOLE" in line)
        events = [event.get("params", {}) for event in json.loads(log.read_text(encoding="utf-8"))["events"]]
        of_page = [event["url"] for event in events if event.get("initiator", "not an origin") != "not an origin"]
        return done.stdout, console, [url for url in of_page if not url.startswith("file:")]

    return look


def test_a_browser_shows_the_report_without_a_network_or_a_complaint(browser, tmp_path: Path) -> None:
    reported(tmp_path, *changed_run())
    dom, console, asked_for = browser(tmp_path / "report.html", "--dump-dom")
    assert console == ""
    assert asked_for == []
    assert plots_of(dom) == ["Overlap@k", "Scores", "Hit rate@k", "Latency distribution", "Latency over time"]
    assert "The gate fails: 1 of 2 thresholds" in dom


def test_the_browser_would_tell_of_a_fetch_and_of_a_script_that_fails(browser, tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    page.write_text("<img src='https://example.invalid/x.png'><script>undefined_name</script>", encoding="utf-8")
    _, console, asked_for = browser(page, "--dump-dom")
    assert "undefined_name" in console
    assert any("example.invalid" in url for url in asked_for)


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_a_browser_paints_the_plots(browser, tmp_path: Path, dark: bool) -> None:
    image = pytest.importorskip("matplotlib.image", reason="reads the screenshot")
    reported(tmp_path, *changed_run())
    picture = tmp_path / "report.png"
    browser(tmp_path / "report.html", f"--screenshot={picture}", *(["--blink-settings=preferredColorScheme=0"] * dark))
    pixels = (image.imread(picture)[..., :3] * 255).round().astype(int)
    paper, line = ((0x15, 0x18, 0x1C), (0x72, 0xAD, 0xFF)) if dark else ((0xFB, 0xFA, 0xF8), (0x17, 0x63, 0xC6))
    assert np.mean((pixels == paper).all(axis=-1)) > 0.2
    assert np.sum((pixels == line).all(axis=-1)) > 1000  # the target's lines
