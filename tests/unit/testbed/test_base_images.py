"""Stand-ins are made only where no registry answers, and that is found out once."""

from pathlib import Path

import pytest

from testbed.engine import Docker, lacks_sys_resource
from testbed.home import Home
from testbed.images.base_images import DebianBase, Registry
from testbed.process import Transcript


@pytest.fixture
def log(home: Home) -> Transcript:
    return Transcript(home.logs / "step.log")


def fake_client(home: Home, script: str) -> Docker:
    """A docker command that counts its pulls in the file `pulls`."""
    client = home.bin / "docker"
    client.write_text(f"#!/bin/sh\necho pull >>{home.root}/pulls\n{script}\n")
    client.chmod(0o755)
    return Docker(home)


def pulls(home: Home) -> int:
    return len((home.root / "pulls").read_text().splitlines())


def test_a_registry_that_answers_is_used_for_every_image(home: Home, log: Transcript) -> None:
    registry = Registry(fake_client(home, "echo 'slim: Pulling from library/debian'"))
    assert registry.pull("debian:bookworm-slim", log)
    assert registry.pull("golang:1.26-bookworm", log)
    assert pulls(home) == 2


def test_a_registry_that_refuses_is_asked_once(home: Home, log: Transcript) -> None:
    registry = Registry(fake_client(home, "exit 1"))
    assert not registry.pull("debian:bookworm-slim", log)
    assert not registry.pull("golang:1.26-bookworm", log)
    assert pulls(home) == 1


def test_silence_counts_as_no_registry(home: Home, log: Transcript) -> None:
    registry = Registry(fake_client(home, "exec sleep 60"), seconds=0.3)
    assert not registry.pull("debian:bookworm-slim", log)
    assert "no answer" in log.path.read_text()


def test_a_slow_pull_is_waited_for_once_it_has_begun(home: Home, log: Transcript) -> None:
    registry = Registry(fake_client(home, "echo 'slim: Pulling from library/debian'; sleep 0.6"), seconds=0.3)
    assert registry.pull("debian:bookworm-slim", log)


def test_an_image_missing_from_a_registry_that_answers_does_not_shut_it_out(home: Home, log: Transcript) -> None:
    registry = Registry(fake_client(home, 'case "$2" in kindest/*) exit 1;; esac'))
    assert registry.pull("debian:bookworm-slim", log)
    assert not registry.pull("kindest/node:v0", log)
    assert registry.pull("golang:1.26-bookworm", log)


@pytest.mark.parametrize(
    ("labels", "kept"),
    [
        ('{"fencepost.testbed.key": "k1"}', True),
        ('{"fencepost.testbed.key": "old"}', False),
        ("null", True),
        ("{}", True),
    ],
)
def test_a_stale_stand_in_is_recreated_and_another_owners_image_is_kept(home: Home, labels: str, kept: bool) -> None:
    docker = fake_client(home, f"echo '{labels}'")
    base = DebianBase(home, docker, Registry(docker), "bookworm")
    assert base.present("k1") is kept


def test_an_image_that_is_not_there_is_not_there(home: Home) -> None:
    docker = fake_client(home, "exit 1")
    assert not DebianBase(home, docker, Registry(docker), "bookworm").present("k1")


@pytest.mark.parametrize(("mask", "lacks"), [("000001ffffffffff", False), ("000001fffeffffff", True)])
def test_the_runtime_wrapper_goes_by_the_bounding_set(tmp_path: Path, mask: str, lacks: bool) -> None:
    status = tmp_path / "status"
    status.write_text(f"Name:\tpython\nCapBnd:\t{mask}\n")
    assert lacks_sys_resource(status) is lacks
