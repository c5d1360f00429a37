"""`fencepost logs`: whose log it is, and how its lines are printed."""

from __future__ import annotations

import json
from typing import Any

import pytest

from fencepost_cli.ports import Related
from fencepost_operator.api import ObjectKey
from unit.cli.test_explain import SINCE, world_with
from unit.cli.world import World

LINE = {"time": SINCE, "level": "error", "message": "gave up", "epoch": 7, "exception": "Traceback:\n  boom"}


def pod(epoch: int, name: str, component: str = "driver") -> dict[str, Any]:
    marks = {"streaming.fencepost.dev/component": component, "streaming.fencepost.dev/epoch": str(epoch)}
    return {"metadata": {"name": name, "namespace": "shop", "labels": marks, "creationTimestamp": SINCE}}


@pytest.fixture
def world() -> World:
    world = World.usual()
    world.related_objects[Related.PODS] = [pod(9, "a"), pod(10, "b"), pod(11, "worker", "worker")]
    world.log_text = json.dumps(LINE) + "\nplain \x1b[31mtext\n{}\nlast"
    return world


def test_the_newest_drivers_log_is_printed_line_by_line(world: World) -> None:
    printed = world.run("logs", "shop/orders").stdout
    assert f"{SINCE} error gave up epoch=7" in printed
    assert "    boom" in printed
    assert printed.rstrip().endswith("last")
    assert "\x1b" not in printed
    assert world.asked == [(ObjectKey("shop", "b"), "driver", 200, False)]


def test_a_run_is_chosen_by_its_epoch_and_a_script_gets_the_lines_as_they_are(world: World) -> None:
    ended = world.run("logs", "shop/orders", "--epoch", "9", "--tail", "0", "-f", "-o", "json")
    assert json.loads(ended.stdout.splitlines()[0]) == LINE
    assert "\x1b" not in ended.stdout
    assert world.asked == [(ObjectKey("shop", "a"), "driver", None, True)]


def test_without_a_pod_the_kept_lines_are_printed() -> None:
    failure = {"count": 1, "epoch": 6, "at": SINCE, "reason": "Crashed", "message": "m", "remedy": "r"}
    world = world_with(failure={**failure, "log": [json.dumps(LINE), "second"]})
    ended = world.run("logs", "shop/orders")
    assert "gave up" in ended.stdout
    assert "the last lines of the run of epoch 6" in ended.stderr
    assert "no driver's pod of epoch 5" in world.refused("logs", "shop/orders", "--epoch", "5")
    del world.body["status"]["failure"]
    assert "fencepost explain shop/orders" in world.refused("logs", "shop/orders")
