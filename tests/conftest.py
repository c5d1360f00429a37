"""Settings of every test, and which tests run side by side.

`make test` runs three processes. One runs the e2e tests of the pipeline that these share; the others run the tests that
need no testbed, and then those that need Kafka and Cassandra. The first tests to run take Kafka and Cassandra away,
while the other processes do not need them.
"""

from __future__ import annotations

import time
from collections.abc import Generator
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from xdist.scheduler import LoadScopeScheduling

from harness import data_services

# A timing is a benchmark's figure, never an assertion: examples take longer on a busy machine.
settings.register_profile("untimed", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("untimed")

NEED_DATA_SERVICES = ("tests/contract/", "tests/integration/", "tests/gitops/", "tests/e2e/mistakes/")
SHARE_FIXTURES = (
    "tests/contract/",
    "tests/gitops/",
    "tests/integration/cli/",
    "tests/integration/lifecycle/",
    "tests/e2e/",
)
"""Folders of which one process runs the whole, since their tests share what is slow to set up."""
EARLY_FOLDERS = (
    "tests/integration/lifecycle/",
    "tests/integration/cli/",
    "tests/contract/",
    "tests/e2e/mistakes/",
    "tests/integration/driver/",
    "tests/integration/operator/",
    "tests/integration/kafka/",
    "tests/gitops/",
)
"""Of those that need Kafka and Cassandra, in this order, before all others.

First the folders of which one process runs the whole, then the longest: begun last, one process would do it alone.
"""


SAID_EVERY = 120.0
"""Seconds between two lines that say how far a run is: one of an hour on a machine that is slow today looks stuck."""

MOST_SAID = 1500
"""Characters of a failure that are printed before the details."""


class BySuite(LoadScopeScheduling):  # type: ignore[misc]  # pytest-xdist has no types
    """Gives one process the whole of a folder whose tests share fixtures; of the other folders, a file at a time."""

    def _split_scope(self, nodeid: str) -> str:
        file = nodeid.partition("::")[0]
        return str(Path(file).parent) if file.startswith(SHARE_FIXTURES) else file


class Progress:
    """Says now and then how many tests have ended, after what time, and which file the last one was of."""

    def __init__(self, config: pytest.Config) -> None:
        self._config = config
        self._began = self._said = time.monotonic()
        self._ended = 0

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Count a test at its end."""
        now = time.monotonic()
        self._ended += report.when == "teardown"
        if now - self._said >= SAID_EVERY:
            self._said = now
            file = report.nodeid.partition("::")[0]
            terminal: Any = self._config.pluginmanager.get_plugin("terminalreporter")
            terminal.write_line(f"\n{now - self._began:6.0f} s: {self._ended} tests, last of {file}")


def pytest_configure(config: pytest.Config) -> None:
    """Say how far a run of several processes is."""
    if config.getoption("numprocesses", default=None) and not hasattr(config, "workerinput"):
        config.pluginmanager.register(Progress(config))


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> BySuite:
    """Return what decides which process runs a test."""
    return BySuite(config, log)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put the tests into their order."""
    items.sort(key=_turn)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    """Keep Kafka and Cassandra there, or to oneself, from a test's set-up to its end."""
    with _access(item):
        return (yield)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> Generator[None, object, object]:
    """Say what failed in a few lines each, before the details: of a long run often only the beginning is read."""
    failed = [*terminalreporter.getreports("failed"), *terminalreporter.getreports("error")]
    if failed:
        terminalreporter.section("failures in short")
        for report in failed:
            terminalreporter.write_line(f"{report.nodeid} ({report.when}): {_crash(report)}")
    return (yield)


def _crash(report: pytest.TestReport | pytest.CollectReport) -> str:
    crash = getattr(report.longrepr, "reprcrash", None)
    said = f"{Path(crash.path).name}:{crash.lineno}: {crash.message}" if crash is not None else report.longreprtext
    return said if len(said) <= MOST_SAID else f"{said[:MOST_SAID]} …"


def _turn(item: pytest.Item) -> int:
    """Return a test's place in the order; of equal ones the order stays."""
    if item.nodeid.startswith(NEED_DATA_SERVICES):
        early = (4 + place for place, folder in enumerate(EARLY_FOLDERS) if item.nodeid.startswith(folder))
        return next(early, 4 + len(EARLY_FOLDERS))
    if not item.nodeid.startswith("tests/e2e/"):
        return 3
    return next((turn for turn, marker in enumerate(("fresh", "outage")) if item.get_closest_marker(marker)), 2)


def _access(item: pytest.Item) -> AbstractContextManager[None]:
    if item.get_closest_marker("outage"):
        return data_services.taken_away()
    return data_services.in_use() if item.nodeid.startswith(NEED_DATA_SERVICES) else nullcontext()
