"""Two processes of tests and one Kafka: an outage is alone, and is not kept waiting by one user after the other."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

from harness import data_services
from harness.waiting import eventually
from testbed.home import CACHE_VARIABLE


class Holder:
    """A thread that asks for access and keeps it until it is asked to end."""

    def __init__(self, access: Callable[[], AbstractContextManager[None]]) -> None:
        self.has = threading.Event()
        self._done = threading.Event()
        self._access = access
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        with self._access():
            self.has.set()
            self._done.wait(30)

    def end(self) -> None:
        self._done.set()
        self._thread.join(30)


@pytest.fixture
def hold(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Holder]]:
    monkeypatch.setenv(CACHE_VARIABLE, str(tmp_path))
    held: list[Holder] = []

    def start(access: Callable[[], AbstractContextManager[None]]) -> Holder:
        held.append(Holder(access))
        return held[-1]

    yield start
    for one in held:
        one.end()


def test_users_do_not_wait_for_each_other(hold: Callable[..., Holder]) -> None:
    for user in (hold(data_services.in_use), hold(data_services.in_use)):
        eventually("access", user.has.is_set, seconds=10, pause=0.01)


def test_an_outage_waits_for_users_and_comes_before_the_next_one(hold: Callable[..., Holder]) -> None:
    user = hold(data_services.in_use)
    eventually("access", user.has.is_set, seconds=10, pause=0.01)
    outage = hold(data_services.taken_away)
    assert not outage.has.wait(0.2)
    late = hold(data_services.in_use)
    assert not late.has.wait(0.2)
    user.end()
    eventually("the outage", outage.has.is_set, seconds=10, pause=0.01)
    assert not late.has.wait(0.2)
    outage.end()
    eventually("access after the outage", late.has.is_set, seconds=10, pause=0.01)
