"""`fencepost explain`: conditions in words, with remedy, steps and runbook, and the exit code."""

from __future__ import annotations

from typing import Any

import pytest

from fencepost.contract import Reason
from fencepost_cli.explanation import filled
from unit.cli.world import World

SINCE = "2026-01-02T03:04:05Z"


def condition(kind: str, status: str, reason: str, message: str = "said") -> dict[str, Any]:
    moment = {"lastTransitionTime": SINCE, "observedGeneration": 1}
    return {"type": kind, "status": status, "reason": reason, "message": message, **moment}


def world_with(*conditions: dict[str, Any], **status: Any) -> World:
    world = World.usual()
    world.body["status"] = {"observedGeneration": 1, "state": "Running", "conditions": list(conditions), **status}
    return world


def test_a_healthy_pipeline_is_explained_in_a_line_each() -> None:
    world = world_with(condition("Ready", "True", "Streaming"), condition("Streaming", "True", "Streaming"))
    ended = world.run("explain", "shop/orders")
    assert ended.exit_code == 0
    assert "Ready True: Streaming" in ended.stdout
    assert "Means:" not in ended.stdout
    assert "Means: A driver holds the fence" in world.run("explain", "shop/orders", "--all").stdout


def test_what_is_wrong_comes_first_with_remedy_steps_and_runbook() -> None:
    failure = {
        "count": 2, "epoch": 6, "at": SINCE, "reason": "OutOfMemory", "message": "no memory", "remedy": "give it more",
    }  # fmt: skip
    run = {"name": "orders-run-7", "epoch": 7, "specHash": "h", "clusterGeneration": 1, "recordedAt": SINCE}
    world = world_with(
        condition("DurabilityAtRisk", "False", "Durable"), condition("Ready", "False", "BackingOff", "waits 30 s"),
        state="Restarting", failure=failure, run=run,
    )  # fmt: skip
    ended = world.run("explain", "orders", "-n", "shop")
    assert ended.exit_code == 1
    lines = ended.stdout.splitlines()
    assert lines[0] == "shop/orders: Restarting"
    assert next(line for line in lines if "BackingOff" in line).startswith("Ready False: BackingOff, for ")
    for text in (
        "You: correct what the message names", "Runbook: docs/runbooks/BackingOff.md", "give it more",
        "$ kubectl logs -n shop job/orders-run-7 --tail 50",
    ):  # fmt: skip
        assert text in ended.stdout
    printed = world.json("explain", "shop/orders", code=1)
    assert [(one["condition"], one["wrong"]) for one in printed["explained"]] == [
        ("Ready", True), ("DurabilityAtRisk", False), ("Failure", False),
    ]  # fmt: skip
    assert printed["explained"][0]["runbook"] == "docs/runbooks/BackingOff.md"


@pytest.mark.parametrize("kind", ["RetentionRisk", "FallingBehind", "DurabilityAtRisk", "Stalled"])
def test_a_warning_that_is_true_is_wrong(kind: str) -> None:
    world = world_with(condition("Ready", "True", "Streaming"), condition(kind, "True", "DataExpiresSoon"))
    assert world.run("explain", "shop/orders").exit_code == 1


def test_a_reason_of_another_release_and_a_tenants_text_are_printed_as_they_are() -> None:
    world = world_with(condition("Ready", "False", "NeverHeardOf", "\x1b[31m<b>\u202e"))
    ended = world.run("explain", "shop/orders")
    assert "Ready False: NeverHeardOf" in ended.stdout
    assert "\x1b" not in ended.stdout
    assert "\u202e" not in ended.stdout
    assert "Runbook" not in ended.stdout


def test_a_pipeline_that_no_operator_has_seen() -> None:
    world = World.usual()
    assert "has not reported on it yet" in world.run("explain", "shop/orders").stdout


def test_words_of_a_command_are_replaced_as_whole_words() -> None:
    words = {"NAME": "orders", "NAMESPACE": "shop"}
    assert filled("get spl -n NAMESPACE NAME --NAMES NODE", words) == "get spl -n shop orders --NAMES NODE"


def test_no_steps_are_left_for_the_reader_to_fill_but_those_that_only_he_knows() -> None:
    run = {"name": "r", "epoch": 7, "specHash": "h", "clusterGeneration": 1, "recordedAt": SINCE}
    run |= {"podName": "orders-run-7-x", "nodeName": "node-1"}
    for reason in Reason:
        world = world_with(condition("Ready", "False", reason.value), run=run)
        for one in world.json("explain", "shop/orders", code=1)["explained"]:
            for step in one["steps"]:
                assert "NAMESPACE" not in step["command"].split()
