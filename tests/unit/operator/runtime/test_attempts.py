"""How often the same action had no effect, whatever is tried in between."""

from __future__ import annotations

import pytest

from fencepost_operator.actions import Action, InstallCluster, PruneCluster, StopRun
from fencepost_operator.api import Reason
from fencepost_operator.backoff import retry_delay
from fencepost_operator.observation import ClusterObject
from fencepost_operator.runtime.passes.attempts import Attempts
from present import present

NOW = 100.0
A, B, C = (ClusterObject(kind="Service", name=name, uid=name, generation=1) for name in "abc")
INSTALL = InstallCluster(values={"image": "i"})


def fail(attempts: Attempts, action: Action) -> int:
    return attempts.failed(action, NOW, reason=Reason.UPDATE_FAILED, message="no", remedy="").attempts


def retry_in(attempts: Attempts, action: Action) -> float:
    last = present(attempts.last(action))
    return last.retry_at - NOW


def test_actions_that_fail_in_turn_keep_their_counts() -> None:
    attempts = Attempts()
    actions: list[Action] = [INSTALL, PruneCluster(objects=(A,)), StopRun(name="run")]
    for count in range(1, 6):
        assert [fail(attempts, action) for action in actions] == [count] * 3
        assert all(retry_in(attempts, action) == retry_delay(count) for action in actions)


@pytest.mark.parametrize("objects", [(A, B), (B, A, C), (A, C)])
def test_a_prune_of_what_could_not_be_deleted_before_is_the_same_one(objects: tuple[ClusterObject, ...]) -> None:
    """Injected: each failed install left one more object, so the prune in between never backed off."""
    attempts = Attempts()
    fail(attempts, PruneCluster(objects=(A, B)))
    assert fail(attempts, PruneCluster(objects=objects)) == 2


def test_a_prune_of_other_objects_and_an_install_of_other_values_start_again() -> None:
    attempts = Attempts()
    fail(attempts, PruneCluster(objects=(A, B)))
    assert fail(attempts, PruneCluster(objects=(C,))) == 1
    fail(attempts, INSTALL)
    assert fail(attempts, InstallCluster(values={"image": "j"})) == 1
