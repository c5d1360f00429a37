"""Threads of blocking requests: one for each in progress, and used again."""

from __future__ import annotations

import threading

import pytest

from fencepost_operator.adapters import daemon_threads as module
from fencepost_operator.adapters.daemon_threads import in_thread
from harness.waiting import eventually

PATIENCE = 20.0


def test_one_request_after_another_needs_one_thread() -> None:
    def work() -> int:
        return threading.get_ident()

    first = in_thread(work, name="first").result(PATIENCE)
    for _ in range(20):
        eventually("the thread waits", lambda: first in {each.ident for each in module._WAITING}, seconds=PATIENCE)
        assert in_thread(work, name="next").result(PATIENCE) == first


def test_a_request_that_hangs_delays_no_other() -> None:
    """Injected: a database that does not answer."""
    over = threading.Event()
    hanging = [in_thread(over.wait, name="hangs") for _ in range(50)]
    assert in_thread(lambda: threading.current_thread().name, name="asks").result(PATIENCE) == "asks"
    over.set()
    assert all(each.result(PATIENCE) for each in hanging)


def test_a_request_that_fails_does_not_end_its_thread() -> None:
    def fail() -> None:
        raise SystemExit

    with pytest.raises(SystemExit):
        in_thread(fail, name="fails").result(PATIENCE)
    assert in_thread(lambda: "answer", name="asks").result(PATIENCE) == "answer"


def test_threads_end_when_nothing_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "IDLE", 0.05)
    worker = in_thread(threading.current_thread, name="ends").result(PATIENCE)
    while worker.is_alive():  # it may have begun to wait before
        worker = in_thread(threading.current_thread, name="ends").result(PATIENCE)
        worker.join(0.5)
    assert worker not in module._WAITING
