"""Log lines: one event a line whatever is in it, and no floods."""

import io
import json
import logging
from collections.abc import Iterator

import pytest

from themis_arbiter.obs.logs import ROOT, VALUE_LENGTH_MAX, RateLimitedLogger, configure_logging, log_event

LOGGER = logging.getLogger(f"{ROOT}.test")


@pytest.fixture(autouse=True)
def _restore() -> Iterator[None]:
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield
    root.handlers[:] = handlers
    root.setLevel(level)


def logged(log_format: str, level: str = "info") -> io.StringIO:
    stream = io.StringIO()
    configure_logging(log_format, level, stream)
    return stream


def test_text_line_has_its_fields() -> None:
    stream = logged("text")
    log_event(LOGGER, logging.WARNING, "two words", app="a b", count=3, nothing=None, quote='x"y z')
    (line,) = stream.getvalue().splitlines()
    assert line.startswith("time=")
    assert 'level=warning logger=themis.test message="two words" app="a b" count=3 nothing=none quote="x\\"y z"' in line


@pytest.mark.parametrize("log_format", ["text", "json"])
def test_line_stays_one_line_whatever_a_user_called_it(log_format: str) -> None:
    stream = logged(log_format)
    log_event(LOGGER, logging.INFO, "app\nlevel=error", app="x\r\n\udc80\x1b[31m\x85\u2028", big="y" * 100_000)
    text = stream.getvalue()
    assert len(text.splitlines()) == 1
    assert len(text) < VALUE_LENGTH_MAX + 1_000
    text.encode("utf-8")
    assert "\x1b" not in text


def test_json_line_is_json_with_fields_and_exception() -> None:
    stream = logged("json")
    try:
        raise ValueError("no\nsuch thing")
    except ValueError:
        LOGGER.exception("failed", extra={"fields": {"rho": float("nan"), "message": "forged"}})
    value = json.loads(stream.getvalue(), parse_constant=pytest.fail)
    assert value["message"] == "failed"
    assert value["rho"] == "nan"
    assert value["exception"].endswith("ValueError: no\nsuch thing")


def test_level_is_for_our_loggers_and_libraries_keep_quiet() -> None:
    stream = logged("text", "debug")
    LOGGER.debug("ours")
    logging.getLogger("kazoo").info("theirs")
    assert [line.split("message=")[1] for line in stream.getvalue().splitlines()] == ["ours"]


def test_flood_is_one_line_and_a_count() -> None:
    stream = logged("text")
    now = [0.0]
    flood = RateLimitedLogger(LOGGER, every_s=10.0, monotonic_s=lambda: now[0])
    assert [flood.log("busy", logging.WARNING, "busy") for _ in range(100)] == [True] + [False] * 99
    assert flood.log("other", logging.WARNING, "other")
    now[0] = 10.0
    assert flood.log("busy", logging.WARNING, "busy")
    lines = stream.getvalue().splitlines()
    assert len(lines) == 3
    assert lines[-1].endswith("suppressed=99")
