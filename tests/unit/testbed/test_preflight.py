"""`up` refuses before it begins, and says what helps."""

import socket
from pathlib import Path

import pytest

from testbed.preflight import GIB, Machine, existing_parent, refusals, taken_ports, total_memory


def machine(*, memory: int = 16, disk: int = 50, engine: bool = True, root: bool = True) -> Machine:
    return Machine(memory=memory * GIB, free_disk={Path("/var"): disk * GIB}, engine_answers=engine, root=root)


@pytest.mark.parametrize("good", [machine(), machine(engine=False), machine(root=False), machine(disk=15, memory=8)])
def test_a_machine_that_will_do(good: Machine) -> None:
    assert refusals(good, warm=False) == []


@pytest.mark.parametrize(
    ("bad", "said"),
    [
        (machine(memory=7), "7.0 GiB of memory"),
        (machine(disk=14), "14.0 GiB free at /var, and 15 are needed"),
        (machine(engine=False, root=False), "start Docker, or run this as root"),
    ],
)
def test_each_refusal_says_why(bad: Machine, said: str) -> None:
    (reason,) = refusals(bad, warm=False)
    assert said in reason


def test_all_reasons_come_at_once() -> None:
    assert len(refusals(machine(memory=1, disk=1, engine=False, root=False), warm=False)) == 3


def test_less_disk_will_do_once_the_images_are_made() -> None:
    assert refusals(machine(disk=14), warm=True) == []
    assert refusals(machine(disk=2), warm=True)


def test_memory_is_read_as_bytes(tmp_path: Path) -> None:
    meminfo = tmp_path / "meminfo"
    meminfo.write_text("MemFree: 1 kB\nMemTotal:  8388608 kB\n")
    assert total_memory(meminfo) == 8 * GIB


def test_a_folder_to_be_made_is_judged_by_the_one_above_it(tmp_path: Path) -> None:
    assert existing_parent(tmp_path / "not" / "yet") == tmp_path


def test_a_taken_port_is_found() -> None:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        taken = listener.getsockname()[1]
        assert taken_ports((taken,)) == [taken]
    assert taken_ports((taken,)) == []
