"""Settings of every test, and which tests run side by side.

`make test` runs two processes. One runs the e2e tests, which mostly wait for the cluster; the other one runs the tests
that need no testbed, and then those that need Kafka and Cassandra. The e2e tests that take Kafka and Cassandra away
come first, while the other process does not need them.
"""

from __future__ import annotations

from collections.abc import Generator
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from harness import data_services

# A timing is a benchmark's figure, never an assertion: examples take longer on a busy machine.
settings.register_profile("untimed", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("untimed")

HERE = Path(__file__).parent
NEED_DATA_SERVICES = ("contract", "integration")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put each test into the group that one process runs, and the groups into their order."""
    for item in items:
        item.add_marker(pytest.mark.xdist_group(_group(item)))
    items.sort(key=_turn)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    """Keep Kafka and Cassandra there, or to oneself, from a test's set-up to its end."""
    with _access(item):
        return (yield)


def _suite(item: pytest.Item) -> str:
    return item.path.relative_to(HERE).parts[0]


def _group(item: pytest.Item) -> str:
    """Return the suite where tests share the testbed, else the file: a file's tests share its fixtures."""
    suite = _suite(item)
    if suite in NEED_DATA_SERVICES:
        return "data services"
    return suite if suite == "e2e" else str(item.path)


def _turn(item: pytest.Item) -> int:
    if item.get_closest_marker("outage"):
        return 0
    if _suite(item) == "e2e":
        return 1
    return 3 if _suite(item) in NEED_DATA_SERVICES else 2


def _access(item: pytest.Item) -> AbstractContextManager[None]:
    if item.get_closest_marker("outage"):
        return data_services.taken_away()
    return data_services.in_use() if _suite(item) in NEED_DATA_SERVICES else nullcontext()
