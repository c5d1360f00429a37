"""The mirror: the newest offsets reach the group, nothing waits for it, and a failure is said once."""

from __future__ import annotations

import logging
import threading
from collections.abc import Mapping

import pytest

from fencepost.kafka.mirror import GroupMirror
from harness.waiting import eventually


class Group:
    """A group that takes what is committed once it is open, or refuses it."""

    def __init__(self) -> None:
        self.commits: list[Mapping[str, int]] = []
        self.tries = 0
        self.refuses = False
        self.open = threading.Event()
        self.open.set()

    def commit(self, offsets: Mapping[str, int]) -> None:
        self.tries += 1
        assert self.open.wait(60)
        if self.refuses:
            raise PermissionError("GROUP_AUTHORIZATION_FAILED")
        self.commits.append(offsets)


@pytest.fixture
def group() -> Group:
    return Group()


def test_the_newest_offsets_are_written_and_those_between_are_left_out(group: Group) -> None:
    group.open.clear()
    mirror = GroupMirror(group, "g", interval=0)
    mirror.show({"t/0": 1})
    eventually("the first write", lambda: group.tries == 1, seconds=20, pause=0.01)
    for offset in range(2, 50):
        mirror.show({"t/0": offset})
    group.open.set()
    mirror.end()
    assert group.commits == [{"t/0": 1}, {"t/0": 49}]


def test_a_graceful_end_writes_what_came_within_the_interval(group: Group) -> None:
    mirror = GroupMirror(group, "g", interval=3600)
    mirror.show({"t/0": 1})
    eventually("the first write", lambda: len(group.commits) == 1, seconds=20, pause=0.01)
    mirror.show({"t/0": 2})
    mirror.end()
    assert group.commits == [{"t/0": 1}, {"t/0": 2}]


def test_an_end_without_news_writes_nothing_more(group: Group) -> None:
    mirror = GroupMirror(group, "g", interval=0)
    mirror.show({"t/0": 1})
    eventually("the write", lambda: len(group.commits) == 1, seconds=20, pause=0.01)
    mirror.end()
    assert len(group.commits) == 1


def test_a_group_that_hangs_delays_neither_the_batches_nor_the_end_for_long(group: Group) -> None:
    group.open.clear()
    mirror = GroupMirror(group, "g", interval=0)
    for offset in range(100):
        mirror.show({"t/0": offset})
    mirror.end()
    assert group.commits == []
    group.open.set()


def test_unchanged_offsets_are_written_again_before_the_broker_forgets_them(group: Group) -> None:
    mirror = GroupMirror(group, "g", interval=0, keep=0.01)
    mirror.show({"t/0": 1})
    eventually("three writes", lambda: len(group.commits) > 2, seconds=20, pause=0.01)
    mirror.end()
    assert all(commit == {"t/0": 1} for commit in group.commits)


def test_a_refusal_is_logged_once_until_it_ends(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, logger="fencepost.kafka.mirror")
    group = Group()
    group.refuses = True
    mirror = GroupMirror(group, "g", interval=0)
    for offset in range(1, 4):
        mirror.show({"t/0": offset})
        eventually("a try", lambda: group.tries >= offset, seconds=20, pause=0.01)  # noqa: B023 - called at once
    group.refuses = False
    mirror.show({"t/0": 4})
    mirror.end()
    assert group.commits[-1] == {"t/0": 4}
    said = [record.getMessage() for record in caplog.records]
    assert said == [
        "the offsets cannot be mirrored to consumer group g: GROUP_AUTHORIZATION_FAILED",
        "the offsets are mirrored to consumer group g again",
    ]
