import json
import logging

import pytest
import structlog

from recall_service.observability.logging import configure_logging

pytestmark = pytest.mark.usefixtures("logging_as_it_was")


def test_json_is_one_object_a_line_on_stderr(capsys: pytest.CaptureFixture[str]) -> None:
    configure_logging("info", "json")
    structlog.get_logger("recall").info("serving", port=50_051)
    captured = capsys.readouterr()
    line = json.loads(captured.err)
    assert captured.out == ""
    assert (line["event"], line["port"], line["level"], line["logger"]) == ("serving", 50_051, "info", "recall")
    assert line["timestamp"].endswith("Z")


def test_the_standard_librarys_loggers_end_in_the_same_lines(capsys: pytest.CaptureFixture[str]) -> None:
    configure_logging("warning", "json")
    logging.getLogger("grpc").warning("lost %d connections", 3)
    line = json.loads(capsys.readouterr().err)
    assert (line["event"], line["level"], line["logger"]) == ("lost 3 connections", "warning", "grpc")


def test_console_is_for_people(capsys: pytest.CaptureFixture[str]) -> None:
    configure_logging("info", "console")
    structlog.get_logger("recall").info("serving", port=50_051)
    line = capsys.readouterr().err
    assert "serving" in line
    assert "port=50051" in line
    assert "\x1b[" not in line


@pytest.mark.parametrize(("level", "lines"), [("debug", 2), ("info", 1), ("error", 0)])
def test_what_is_below_the_level_is_not_written(level: str, lines: int, capsys: pytest.CaptureFixture[str]) -> None:
    configure_logging(level, "json")
    structlog.get_logger("recall").debug("a detail")
    structlog.get_logger("recall").info("a fact")
    assert len(capsys.readouterr().err.splitlines()) == lines


@pytest.mark.parametrize("log_format", ["json", "console"])
def test_no_line_holds_a_history_or_a_password(log_format: str, capsys: pytest.CaptureFixture[str]) -> None:
    configure_logging("info", log_format)
    password = "hunter2"
    history = ("item-1", "item-2")
    try:
        raise ConnectionError(f"cannot reach redis://:{password}@host:6379")
    except ConnectionError:
        structlog.get_logger("recall").exception(
            "failed", history=history, prompt=[11, 22, 33], url=f"redis://u:{password}@h"
        )
        logging.getLogger("redis").exception("retrying rediss://%s@host", password)
    written = capsys.readouterr().err
    assert "2 withheld" in written
    assert "3 withheld" in written
    assert "redis://***@host:6379" in written
    assert "Traceback" in written
    assert password not in written
    assert "item-1" not in written
