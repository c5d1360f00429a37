"""`fencepost snapshots`: what it prints, and how it asks the operator."""

from __future__ import annotations

import pytest

from fencepost_operator.api import SNAPSHOT_ANNOTATION
from unit.cli.world import World


@pytest.fixture
def world() -> World:
    return World.usual()


def test_snapshots_are_listed_with_trigger_image_and_offsets(world: World) -> None:
    found = world.json("snapshots", "list", "shop/orders")["snapshots"]
    assert [(one["trigger"], one["name"], one["image"]) for one in found] == [
        ("OnDemand", "before-the-sale", "image"),
        ("Schedule", None, "image"),
    ]
    assert found[0]["offsets"] == {"orders/0": 12}
    lines = world.run("snapshots", "list", "shop/orders").stdout.splitlines()
    assert lines[0].split() == ["AGE", "TRIGGER", "NAME", "EPOCH", "VERSION", "OFFSETS", "IMAGE", "ID"]
    assert lines[2].split()[:3] == ["2h", "OnDemand", "before-the-sale"]


def test_one_is_shown_by_name_or_id(world: World) -> None:
    by_name = world.json("snapshots", "show", "shop/orders", "before-the-sale")
    assert world.json("snapshots", "show", "shop/orders", by_name["id"]) == by_name
    assert "orders/0" in world.run("snapshots", "show", "shop/orders", "before-the-sale").stdout
    assert "has no snapshot 'nothing'" in world.refused("snapshots", "show", "shop/orders", "nothing")


def test_one_is_asked_for_by_an_annotation(world: World) -> None:
    made = world.json("snapshots", "create", "shop/orders", "v2")
    assert made == {"pipeline": "shop/orders", "name": "v2", "id": "an-id"}
    assert world.annotations == {SNAPSHOT_ANNOTATION: "v2"}
    assert "choose another name" in world.refused("snapshots", "create", "shop/orders", "v2")


def test_a_wrong_name_never_reaches_the_pipeline(world: World) -> None:
    assert world.run("snapshots", "create", "shop/orders", "Not A Name").exit_code == 2
    assert world.annotations == {}


def test_an_operator_that_does_not_write_a_snapshot_is_reported_with_its_reason(world: World) -> None:
    world.operator_answers = False
    said = world.refused("snapshots", "create", "shop/orders", "v2", "--timeout", "1")
    assert "no snapshot 'v2' within 1 s: the account may not write" in said
