"""`fencepost suspend`, `resume`, `restart` and `failover`: what they change, when they refuse, and how they wait."""

from __future__ import annotations

import time
from typing import Any

import pytest

import fencepost_cli.commands.pipeline.lifecycle
from fencepost_operator.api import FAIL_OVER_ANNOTATION, PAUSED_ANNOTATION, RETRY_ANNOTATION, ObjectKey
from unit.cli.test_explain import SINCE, condition, world_with
from unit.cli.world import KEY, World

RUN = {
    "name": "orders-run-2", "epoch": 2, "specHash": "h", "clusterGeneration": 1, "recordedAt": SINCE,
    "createdAt": SINCE, "podName": "orders-run-2-x",
}  # fmt: skip


BLOCKED = "The move to cluster cluster-2 from epoch 2 does not begin: no sign of life came from there in the last hour"


@pytest.fixture
def world() -> World:
    return world_with(condition("Streaming", "True", "Streaming"), epoch=2, run=RUN)


def test_suspend_and_resume_set_the_field(world: World) -> None:
    assert world.run("suspend", "shop/orders", "--yes").exit_code == 0
    assert world.merged == [(KEY, {"spec": {"suspend": True}})]
    assert world.run("suspend", "shop/orders").exit_code == 0
    assert world.json("resume", "shop/orders") == {"pipeline": "shop/orders", "requested": "resume", "state": None}
    assert world.merged[1:] == [(KEY, {"spec": {"suspend": False}})]


@pytest.mark.parametrize("command", ["suspend", "restart"])
def test_what_stops_a_driver_is_asked_for_first(world: World, command: str) -> None:
    assert "add --yes" in world.refused(command, "shop/orders")
    assert (world.merged, world.ended) == ([], [])


def test_a_restart_ends_the_driver_after_its_batch(world: World) -> None:
    assert world.run("restart", "shop/orders", "--yes").exit_code == 0
    ((key, body),) = world.merged
    assert key == KEY
    assert body["metadata"]["annotations"][RETRY_ANNOTATION].startswith("restart 20")
    assert world.ended == [ObjectKey("shop", "orders-run-2-x")]


def test_a_restart_of_what_has_no_driver_starts_a_run_now() -> None:
    world = world_with(condition("Stalled", "True", "RestartBudgetExhausted"), run={**RUN, "endedAt": SINCE})
    assert world.run("restart", "shop/orders", "--yes").exit_code == 0
    assert len(world.merged) == 1
    assert world.ended == []


def test_a_restart_that_would_have_no_effect_is_refused(world: World) -> None:
    world.body["spec"]["suspend"] = True
    assert "fencepost resume shop/orders" in world.refused("restart", "shop/orders", "--yes")
    world.body["spec"]["suspend"] = False
    world.body["metadata"]["annotations"] = {PAUSED_ANNOTATION: "true"}
    assert "is paused" in world.refused("restart", "shop/orders", "--yes")
    assert world.merged == []


def test_a_wait_ends_when_the_operator_has_done_it(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fencepost_cli.commands.pipeline.lifecycle, "POLL", 0)
    asked: list[Any] = []

    def seen(_: float) -> None:
        asked.append(None)
        world.body["status"] |= {"state": "Suspended"}

    monkeypatch.setattr(time, "sleep", seen)
    assert world.json("suspend", "shop/orders", "--yes", "--wait", "60")["state"] == "Suspended"
    assert len(asked) == 1
    late = world.run("resume", "shop/orders", "--wait", "60")
    assert late.exit_code == 0  # it streams, as its status has it
    world.body["status"]["conditions"] = []
    monkeypatch.setattr(fencepost_cli.commands.pipeline.lifecycle, "_wait", _refuses)
    assert "fencepost explain" in world.refused("resume", "shop/orders", "--wait", "1")


def _refuses(*_: Any) -> Any:
    from fencepost_cli.errors import CliError  # noqa: PLC0415

    raise CliError("is Suspended", remedy="it continues: `fencepost explain shop/orders`")


def test_a_pipeline_of_gitops_is_noted(world: World) -> None:
    world.body["metadata"]["labels"] = {"kustomize.toolkit.fluxcd.io/name": "apps"}
    assert "change it in Git as well" in world.run("suspend", "shop/orders", "--yes").stderr


def test_a_failover_asks_the_owner_to_hand_over_from_its_epoch(world: World) -> None:
    world.body["spec"]["failover"] = {"takeOverAfter": "30s"}
    assert "add --yes" in world.refused("failover", "shop/orders", "--to", "cluster-2")
    assert world.run("failover", "shop/orders", "--to", "cluster-2", "--yes").exit_code == 0
    assert world.merged == [(KEY, {"metadata": {"annotations": {FAIL_OVER_ANNOTATION: "cluster-2@2"}}})]


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"conditions": [condition("FailoverBlocked", "True", "FailoverBlocked", BLOCKED)]}, "no sign of life came"),
        ({"epoch": 3}, "was replaced before the move began"),
        ({"message": "nothing reconciles it"}, "after 30 s: nothing reconciles it"),
    ],
)
def test_a_failover_that_does_not_begin_says_why(
    world: World, monkeypatch: pytest.MonkeyPatch, changes: dict[str, Any], said: str
) -> None:
    clock = iter(range(0, 1000, 10))
    monkeypatch.setattr(time, "monotonic", lambda: next(clock))
    monkeypatch.setattr(time, "sleep", lambda _: world.body["status"].update(changes))
    world.moves = False
    world.body["spec"]["failover"] = {}
    assert said in world.refused("failover", "shop/orders", "--to", "cluster-2", "--yes")


def test_what_was_said_of_a_failover_before_is_not_said_of_the_next_request_at_once(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The cause may be gone: the operator sees that some seconds later."""
    world.body["status"]["conditions"] = [condition("FailoverBlocked", "True", "FailoverBlocked", BLOCKED)]
    world.body["spec"]["failover"] = {}
    world.moves = False
    monkeypatch.setattr(time, "sleep", lambda _: world.body["status"].update(state="Standby"))
    assert world.run("failover", "shop/orders", "--to", "cluster-2", "--yes").exit_code == 0
    world.body["status"]["state"] = "Running"
    clock = iter(range(0, 1000, 20))
    monkeypatch.setattr(time, "monotonic", lambda: next(clock))
    monkeypatch.setattr(time, "sleep", lambda _: None)
    assert "no sign of life came" in world.refused("failover", "shop/orders", "--to", "cluster-2", "--yes")


def test_a_failover_of_what_rests_is_refused(world: World) -> None:
    world.body["spec"] |= {"failover": {}, "suspend": True}
    assert "is suspended" in world.refused("failover", "shop/orders", "--to", "cluster-2", "--yes")
    world.body["spec"]["suspend"] = False
    world.body["metadata"]["annotations"] = {PAUSED_ANNOTATION: "true"}
    assert "is paused" in world.refused("failover", "shop/orders", "--to", "cluster-2", "--yes")
    assert world.merged == []


def test_a_failover_that_no_cluster_waits_for_is_refused(world: World) -> None:
    assert "no spec.failover" in world.refused("failover", "shop/orders", "--to", "cluster-2", "--yes")
    world.body["spec"]["failover"] = {}
    world.body["status"]["state"] = "Standby"
    assert "run the command in the cluster that runs it" in world.refused(
        "failover", "shop/orders", "--to", "cluster-2", "--yes"
    )
    assert world.merged == []
