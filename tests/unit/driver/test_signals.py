"""A stop by real signals, in a process of its own."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from fencepost.contract import ExitCode, Verdict
from present import present

STORM = """
import signal, sys, threading
{handler}
print("ready", flush=True)
while True:
    for event in events:
        event.wait(0.0001)
"""
"""A main thread that is nearly always inside `Event.wait`, as an idle loop is."""

LISTENING = """
import os
from fencepost.driver import signals
events = [threading.Event()]
def react(number):
    if number == signal.SIGTERM:
        os._exit(0)
    events[0].set()
    events[0].clear()
signals.listen([signal.SIGUSR1, signal.SIGTERM], react)
"""


def survives(handler: str) -> bool:
    """Return whether a process still ends by SIGTERM after thousands of signals that set an Event."""
    program = STORM.format(handler=handler)
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as child:
        assert present(child.stdout).readline() == b"ready\n"
        for _ in range(5000):
            child.send_signal(signal.SIGUSR1)
            time.sleep(0.0001)
        child.send_signal(signal.SIGTERM)
        try:
            return child.wait(20) == 0
        except subprocess.TimeoutExpired:
            return False
        finally:
            child.kill()


def test_a_signal_never_hangs_a_main_thread_that_waits_for_an_event() -> None:
    assert survives(LISTENING)


DRIVER = """
import sys, time, threading
from pathlib import Path
from fencepost.contract import CassandraEndpoint, DriverConfig, KafkaSource
from fencepost.driver import run
from fencepost.errors import BatchFailed
from fencepost.fence import Fenced
config = DriverConfig(
    pipeline="s/ns/n", epoch=4, entrypoint="m:f", args=(), code="c",
    source=KafkaSource(bootstrap_servers="k:9092", topics=("t",)), sinks=(),
    cassandra=CassandraEndpoint(contact_points=("c",)), fence_keyspace="f", consistency="ONE", batch_interval=1.0,
    spark_master="local", spark_conf={}, executors=1, termination_grace=30.0,
)
driver = run.Driver(config, run.Environment.read({}, termination_log=Path(sys.argv[1])))
"""


def ended(program: str, path: Path) -> tuple[int, Verdict]:
    """Return the exit code of a driver's program and its verdict."""
    done = subprocess.run(
        [sys.executable, "-c", DRIVER + program, str(path)], check=False, capture_output=True, timeout=60
    )
    last = present(Verdict.from_json(path.read_text()))
    return done.returncode, last


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_driver_that_starts_ends_by_a_signal_with_a_verdict(tmp_path: Path, number: int) -> None:
    """Nothing is claimed yet, so nothing is in progress: whatever is starting need not be waited for."""
    program = """
def work():
    print("ready", flush=True)
    time.sleep(60)
driver._work = work
driver.run()
"""
    command = [sys.executable, "-c", DRIVER + program, str(tmp_path / "log")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as child:
        assert present(child.stdout).readline() == b"ready\n"
        child.send_signal(number)
        try:
            assert child.wait(30) == ExitCode.STOPPED
        finally:
            child.kill()
    verdict = present(Verdict.from_json((tmp_path / "log").read_text()))
    assert (verdict.reason, verdict.epoch) == ("Stopped", 4)


def test_a_fenced_driver_waits_for_no_log_and_for_no_thread_that_reads_one(tmp_path: Path) -> None:
    """Its executors would write on meanwhile."""
    program = """
reading = threading.Event()
def read():
    reading.set()
    time.sleep(600)
driver._supervision.read_last_lines = read
threading.Thread(target=driver.end, args=[BatchFailed("slow")], daemon=True).start()
reading.wait()
driver.end(Fenced("epoch 5", seen=None))
"""
    code, last = ended(program, tmp_path / "log")
    assert (code, last.reason) == (ExitCode.FENCED, "FencedOut")


def test_a_driver_that_cannot_gather_its_log_ends_all_the_same(tmp_path: Path) -> None:
    program = """
def read():
    raise ValueError("broken")
driver._supervision.read_last_lines = read
driver.end(BatchFailed("the cause"))
"""
    code, last = ended(program, tmp_path / "log")
    assert (code, last.message) == (ExitCode.FAILED, "the cause")
