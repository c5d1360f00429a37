"""The figures of a commit, as the fence row and its history have them."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from fencepost.batch import SinkWork, WorkerMemory, Written
from fencepost.driver.reporting.commit_figures import EVERY, DriverMemory, of_batch
from fencepost.memory_use import ContainerMemory
from fencepost.sinks.task_memory import TaskMemory
from unit.driver.loop_world import World

NOTHING = ContainerMemory(used=None, unreclaimable=None, limit=None)


def process(proc: Path, number: int, *, name: str, parent: int, peak: int) -> None:
    """Write what the kernel says of a process; `peak` in KiB."""
    (proc / str(number)).mkdir(exist_ok=True)
    (proc / str(number) / "status").write_text(f"Name:\t{name}\nPPid:\t{parent}\nVmHWM:\t  {peak} kB\n")


def test_a_commit_has_what_its_batch_did_and_the_memory_so_far() -> None:
    written = Written(
        {"a": SinkWork(rows=3), "b": SinkWork(rows=4)},
        size=90,
        memory=WorkerMemory(container=5, limit=9, python=2, jvm=0),
        cores=2,
    )
    assert of_batch(written, limit=500, driver={"driver_jvm": 8}) == {
        "bytes": 90, "rows": 7, "limit": 500, "cores": 2, "worker_container": 5, "worker_limit": 9,
        "worker_python": 2, "driver_jvm": 8,
    }  # fmt: skip


def test_the_driver_s_memory_is_the_largest_that_was_seen(tmp_path: Path) -> None:
    clock = [0.0]
    container = [ContainerMemory(used=100, unreclaimable=70, limit=200)]
    memory = DriverMemory(7, proc=tmp_path, container=lambda: container[0], now=lambda: clock[0])
    process(tmp_path, os.getpid(), name="python", parent=1, peak=3)
    assert dict(memory()) == {"driver_python": 3072, "driver_container": 70, "driver_limit": 200}
    process(tmp_path, 7, name="java", parent=1, peak=5)
    container[0] = ContainerMemory(used=100, unreclaimable=60, limit=200)
    assert "driver_jvm" not in memory(), "no second look within a second"
    clock[0] = EVERY
    found = {"driver_python": 3072, "driver_jvm": 5120, "driver_container": 70, "driver_limit": 200}
    assert dict(memory()) == found
    clock[0], container[0] = 2 * EVERY, NOTHING
    assert dict(memory()) == found, "what the kernel does not say any more"


def test_a_task_sees_its_own_process_and_the_jvm_that_started_its_daemon(tmp_path: Path) -> None:
    process(tmp_path, 30, name="python", parent=20, peak=4)
    process(tmp_path, 20, name="python", parent=10, peak=3)
    process(tmp_path, 10, name="java", parent=1, peak=9)
    memory = TaskMemory(proc=tmp_path)
    seen = memory.seen(0.0, 30)
    assert (seen.python, seen.jvm) == (4096, 9216)
    process(tmp_path, 30, name="python", parent=20, peak=6)
    assert memory.seen(0.5, 30) == seen
    assert memory.seen(1.0, 30).python == 6144


@pytest.mark.parametrize("status", ["", "Name:\tjava\nPPid:\tx\nVmHWM:\t1 kB\n", "Name:\tjava\nPPid:\t1\nVmHWM:\n"])
def test_what_the_kernel_does_not_say_is_not_known(status: str, tmp_path: Path) -> None:
    (tmp_path / "30").mkdir()
    (tmp_path / "30" / "status").write_text(status)
    assert (TaskMemory(proc=tmp_path).seen(0.0, 30).python, TaskMemory(proc=tmp_path).seen(0.0, 31).jvm) == (0, 0)


def test_a_program_other_than_java_is_no_executor(tmp_path: Path) -> None:
    for number in (10, 20, 30):
        process(tmp_path, number, name="bash", parent=number - 10, peak=1)
    assert TaskMemory(proc=tmp_path).seen(0.0, 30).jvm == 0


def test_the_loop_records_the_figures_of_each_commit() -> None:
    world = World()
    loop, engine = world.loop(world.take_over())
    engine.memory, engine.cores, engine.record_size = WorkerMemory(container=7, limit=9), 2, 10
    loop.run()
    found = world.row().figures
    assert (found["bytes"], found["rows"], found["cores"], found["worker_container"]) == (100, 10, 2, 7)
    assert found["limit"] == 10
