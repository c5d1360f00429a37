"""The preloaded clock sets the wall clock of a process and nothing else."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from harness.faults.clocks import compile_library, packed
from testbed.process import Transcript
from testbed.programs.host_packages import install

READ = """
import datetime, json, time
print(json.dumps({
    "time": time.time(),
    "second": int(time.strftime("%s", time.localtime())),
    "datetime": datetime.datetime.now(datetime.UTC).timestamp(),
    "monotonic": time.monotonic(),
}))
"""
WAIT = """
import ctypes, json, threading, time

class Moment(ctypes.Structure):
    _fields_ = [("seconds", ctypes.c_long), ("nanoseconds", ctypes.c_long)]

libc = ctypes.CDLL(None)

def until(seconds):
    return ctypes.byref(Moment(int(time.time() + seconds), 0))

def waits(wait, signal, lock, unlock):
    condition, mutex = ctypes.create_string_buffer(64), ctypes.create_string_buffer(64)
    def wake():
        lock(mutex)
        signal(condition)
        unlock(mutex)
    lock(mutex)
    threading.Timer(0.2, wake).start()
    woken = wait(condition, mutex, until(300))
    late = wait(condition, mutex, until(0))
    unlock(mutex)
    return [woken == 0, late != 0]

def semaphore():
    made = ctypes.create_string_buffer(64)
    libc.sem_init(made, 0, 0)
    threading.Timer(0.2, lambda: libc.sem_post(made)).start()
    return [libc.sem_timedwait(made, until(300)) == 0, libc.sem_timedwait(made, until(0)) != 0]

print(json.dumps({
    "condition": waits(libc.pthread_cond_timedwait, libc.pthread_cond_signal,
                       libc.pthread_mutex_lock, libc.pthread_mutex_unlock),
    "C11": waits(libc.cnd_timedwait, libc.cnd_signal, libc.mtx_lock, libc.mtx_unlock),
    "semaphore": semaphore(),
}))
"""


class Clock:
    """The library, and the file that it reads."""

    def __init__(self, folder: Path) -> None:
        self.file = folder / "clock"
        self.library = folder / "clock.so"
        install(("cc",), Transcript(folder / "packages.log"))
        compile_library(self.library, offset_file=str(self.file))

    def run(self, program: str) -> Any:
        """Return what a Python program prints under the clock."""
        environment = {**os.environ, "LD_PRELOAD": str(self.library)}
        done = subprocess.run(
            [sys.executable, "-c", program], env=environment, capture_output=True, text=True, timeout=120, check=False
        )
        assert not done.stderr
        return json.loads(done.stdout)


@pytest.fixture(scope="module")
def clock(tmp_path_factory: pytest.TempPathFactory) -> Clock:
    return Clock(tmp_path_factory.mktemp("clock"))


@pytest.mark.parametrize("offset", [-600.0, 600.0])
def test_every_reading_of_the_wall_clock_is_set_and_the_monotonic_clock_is_not(clock: Clock, offset: float) -> None:
    """In both directions; the bound is half of the offset, whatever the machine's load."""
    clock.file.write_bytes(packed(offset))
    read = clock.run(READ)
    for name in ("time", "second", "datetime"):
        assert abs(read[name] - time.time() - offset) < 300, name
    assert abs(read["monotonic"] - time.monotonic()) < 300


def test_the_file_is_created_without_an_offset(clock: Clock) -> None:
    """A fault finds it in each container, and sets it in place."""
    clock.file.unlink(missing_ok=True)
    assert abs(clock.run(READ)["time"] - time.time()) < 300
    assert clock.file.read_bytes() == packed(0.0)


@pytest.mark.parametrize("offset", [-3600.0, 0.0, 3600.0])
def test_a_wait_until_a_moment_of_the_set_clock_lasts_as_long_as_it_says(clock: Clock, offset: float) -> None:
    """Uncorrected, it would end at once under a clock that is behind, and last an hour under one that is ahead."""
    clock.file.write_bytes(packed(offset))
    assert clock.run(WAIT) == {name: [True, True] for name in ("condition", "C11", "semaphore")}
