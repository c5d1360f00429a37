"""What a Python worker's first task leaves is not looked at by the collection after each task."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest

from fencepost.spark.worker_daemon import frozen_after_first


@pytest.fixture(autouse=True)
def unfrozen() -> Iterator[None]:
    gc.unfreeze()
    yield
    gc.unfreeze()


def test_the_first_task_alone_is_frozen() -> None:
    kept: list[list[int]] = []

    def task(number: int) -> int:
        kept.append([number])
        return number

    run = frozen_after_first(task)
    assert run(1) == 1
    after_first = gc.get_freeze_count()
    assert after_first > 0
    assert not any(one is kept[0] for one in gc.get_objects())
    assert run(2) == 2
    assert gc.get_freeze_count() <= after_first
    assert any(one is kept[1] for one in gc.get_objects())


def test_a_task_that_fails_leaves_the_next_one_to_be_the_first() -> None:
    outcomes = iter([SystemExit(1), None])

    def task() -> None:
        outcome = next(outcomes)
        if outcome is not None:
            raise outcome

    run = frozen_after_first(task)
    with pytest.raises(SystemExit):
        run()
    assert gc.get_freeze_count() == 0
    run()
    assert gc.get_freeze_count() > 0
