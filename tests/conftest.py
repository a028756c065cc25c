"""What every test run shares: which tools a marker needs, and an account of what was skipped.

A machine without Java, Maven or a browser skips what needs them and says so. In CI nothing may be skipped: a skip
there is a hole that looks like a pass, so it fails the run.
"""

import os
import shutil
from collections import Counter
from typing import Final

import pytest
from hypothesis import HealthCheck, settings

# Marker -> programs of which every group must have one on PATH; the first of a group names it in the message.
NEEDS: Final[dict[str, tuple[tuple[str, ...], ...]]] = {
    "yarn": (("javac",), ("mvn",)),
    "zookeeper": (("javac",), ("mvn",)),
    "browser": (("chromium", "chromium-browser", "google-chrome"),),
}
PACKAGES: Final = {"javac": "openjdk-17-jdk-headless", "mvn": "maven", "chromium": "chromium"}
IN_CI: Final = os.environ.get("CI", "").lower() in {"1", "true", "yes"}

# Two slow cores are shared by everything, so a wall-clock deadline per example would only measure the neighbours.
settings.register_profile("local", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("ci", parent=settings.get_profile("local"), derandomize=True, print_blob=True)
settings.load_profile("ci" if IN_CI else "local")


def _missing(marker: str) -> list[str]:
    return [group[0] for group in NEEDS[marker] if not any(shutil.which(program) for program in group)]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    missing = {marker: _missing(marker) for marker in NEEDS}
    for item in items:
        for marker, programs in missing.items():
            if programs and item.get_closest_marker(marker) is not None:
                packages = ", ".join(PACKAGES[program] for program in programs)
                reason = f"{marker}: {', '.join(programs)} not found (Debian: {packages})"
                item.add_marker(pytest.mark.skip(reason=reason))


def _skipped(config: pytest.Config) -> Counter[str]:
    reporter = config.pluginmanager.get_plugin("terminalreporter")
    reasons: Counter[str] = Counter()
    for report in reporter.stats.get("skipped", []) if reporter is not None else []:
        text = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
        reasons[text.removeprefix("Skipped: ")] += 1
    return reasons


def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    if IN_CI and exitstatus == pytest.ExitCode.OK and _skipped(session.config):
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    reasons = _skipped(config)
    if not reasons:
        return
    terminalreporter.section("skipped, and why")
    for reason, count in sorted(reasons.items()):
        terminalreporter.line(f"{count} test{'' if count == 1 else 's'}: {reason}")
    if IN_CI:
        terminalreporter.line("In CI nothing may be skipped, so this run has failed.", red=True)
