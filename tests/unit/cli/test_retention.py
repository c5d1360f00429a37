"""`fencepost retention`: longer for a while, and back to what was there, whatever happens in between."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta

import pytest

from fencepost_cli.errors import CliError
from fencepost_cli.retention import ANNOTATION, Setting
from unit.cli.world import World

DAY = 86_400_000
TIME, SIZE = "retention.ms", "retention.bytes"


@pytest.fixture
def world() -> World:
    world = World.usual()
    kafka = {"bootstrapServers": "kafka:9092", "topics": ["orders", "returns"]}
    world.spec_changes = {"source": {"kafka": kafka}}
    world.retention["returns"] = {}
    return world


def extend(*words: str) -> list[str]:
    return ["retention", "extend", "shop/orders", "--by", "ann", *words]


def restore(*words: str) -> list[str]:
    return ["retention", "restore", "shop/orders", "--yes", *words]


def test_what_was_there_is_noted_and_restored(world: World) -> None:
    before = {topic: dict(settings) for topic, settings in world.retention.items()}
    printed = world.json(*extend("--to", "14d"))
    assert [one["settings"] for one in printed["topics"]] == [
        {TIME: {"from": DAY, "to": 14 * DAY}}, {TIME: {"from": 7 * DAY, "to": 14 * DAY}},
    ]  # fmt: skip
    assert world.retention["returns"][TIME] == Setting(14 * DAY, True)
    noted = json.loads(world.annotations[ANNOTATION])
    assert noted["orders"][TIME] == {"before": DAY, "own": True, "set": [14 * DAY]}
    assert noted["returns"][TIME] == {"before": 7 * DAY, "own": False, "set": [14 * DAY]}
    assert noted["orders"]["by"] == "ann"
    shown = world.json("retention", "show", "shop/orders")["topics"]
    assert shown[1]["extended"]["before"] == {TIME: {"value": 7 * DAY, "own": False}}
    assert "retention.ms=604800000 (inherited)" in world.run("retention", "show", "shop/orders").stdout

    world.json(*restore())
    assert world.retention == before  # the inherited value is inherited again
    assert ANNOTATION not in world.annotations


def test_the_first_value_stays_noted_when_it_is_extended_twice(world: World) -> None:
    world.json(*extend("--hours", "24", "--topic", "orders"))
    world.json(*extend("--hours", "24", "--topic", "orders"))
    assert world.retention["orders"][TIME] == Setting(3 * DAY, True)
    world.json(*restore())
    assert world.retention["orders"][TIME] == Setting(DAY, True)


@pytest.mark.parametrize("setting", [-1, 30 * DAY])
def test_nothing_is_ever_shortened(world: World, setting: int) -> None:
    world.retention["orders"][TIME] = Setting(setting, True)
    printed = world.json(*extend("--to", "7d", "--topic", "orders"))
    assert "as long already" in printed["topics"][0]["leftOut"]
    assert world.retention["orders"][TIME] == Setting(setting, True)
    assert world.annotations == {}


def test_a_limit_by_size_is_reported_and_lifted_on_request(world: World) -> None:
    world.retention["orders"][SIZE] = Setting(1_000_000, True)
    assert "--lift-size" in world.run(*extend("--to", "7d", "--topic", "orders")).stderr
    world.json(*extend("--to", "7d", "--topic", "orders", "--lift-size"))
    assert world.retention["orders"][SIZE] == Setting(-1, True)
    world.json(*restore())
    assert world.retention["orders"] == {TIME: Setting(DAY, True), SIZE: Setting(1_000_000, True)}


@pytest.mark.parametrize("writes", [0, 1])
def test_what_is_stopped_in_between_can_be_continued_and_restored(world: World, writes: int) -> None:
    """Injected: Kafka is gone before the first or the second topic is changed."""
    before = {topic: dict(settings) for topic, settings in world.retention.items()}
    world.writes_until_outage = writes
    assert world.run(*extend("--to", "14d")).exit_code == 2
    world.writes_until_outage = writes
    assert world.run(*restore()).exit_code == 2
    world.writes_until_outage = None
    world.json(*restore())
    assert (world.retention, world.annotations) == (before, {})


def test_another_owners_change_stays(world: World) -> None:
    world.json(*extend("--to", "14d"))
    world.retention["orders"][TIME] = Setting(5 * DAY, True)
    printed = world.json(*restore(), code=1)
    assert "it was changed since" in printed["topics"][0]["leftOut"]
    assert world.retention == {"orders": {TIME: Setting(5 * DAY, True), SIZE: Setting(-1, False)}, "returns": {}}
    assert list(json.loads(world.annotations[ANNOTATION])) == ["orders"]
    world.json(*restore("--force"))
    assert world.retention["orders"][TIME] == Setting(DAY, True)


def test_one_topic_is_restored_and_the_other_stays_noted(world: World) -> None:
    world.json(*extend("--to", "14d"))
    world.json(*restore("--topic", "returns"))
    assert world.retention == {
        "orders": {TIME: Setting(14 * DAY, True), SIZE: Setting(-1, False)}, "returns": {},
    }  # fmt: skip
    assert list(json.loads(world.annotations[ANNOTATION])) == ["orders"]
    assert "nothing is noted of topic 'returns'" in world.run(*restore("--topic", "returns")).stderr


def test_unread_records_are_not_given_up(world: World) -> None:
    world.json(*extend("--to", "14d"))
    world.lag, world.oldest = 3, datetime.now(UTC) - timedelta(days=2)
    assert "uncommitted records" in world.refused(*restore())
    assert world.retention["orders"][TIME] == Setting(14 * DAY, True)
    world.json(*restore("--force"))


def test_unread_records_whose_age_is_not_known_are_not_given_up(world: World) -> None:
    world.json(*extend("--to", "14d"))
    world.lag, world.oldest = 3, datetime.now(UTC) - timedelta(hours=1)  # of orders; of returns nothing is known
    assert "does not say how old" in world.refused(*restore("--topic", "returns"))


def test_a_setting_of_a_user_between_two_extensions_is_restored(world: World) -> None:
    world.json(*extend("--to", "14d", "--topic", "orders"))
    world.retention["orders"][TIME] = Setting(30 * DAY, True)
    world.json(*extend("--to", "60d", "--topic", "orders"))
    world.json(*restore())
    assert world.retention["orders"][TIME] == Setting(30 * DAY, True)


def test_a_right_that_is_missing_leaves_no_note(world: World) -> None:
    world.denied = CliError("the pipeline's account may not AlterConfigs topic orders", remedy="kafka-acls.sh …")
    assert "kafka-acls.sh" in world.refused(*extend("--to", "14d"))
    assert world.annotations == {}


def test_a_dry_run_changes_nothing(world: World) -> None:
    world.json(*extend("--to", "14d", "--dry-run"))
    assert (world.annotations, world.retention["returns"]) == ({}, {})
    world.json(*extend("--to", "14d"))
    printed = world.json("retention", "restore", "shop/orders", "--dry-run")
    assert printed["topics"][0]["settings"] == {TIME: {"from": 14 * DAY, "to": DAY}}
    assert world.retention["orders"][TIME] == Setting(14 * DAY, True)


def test_a_note_that_others_change_meanwhile_is_read_again(world: World) -> None:
    world.conflicts = 2
    world.json(*extend("--to", "14d"))
    assert set(json.loads(world.annotations[ANNOTATION])) == {"orders", "returns"}
    world.conflicts = 100
    assert world.run(*extend("--to", "20d")).exit_code == 2
    assert world.retention["orders"][TIME] == Setting(14 * DAY, True)


@pytest.mark.parametrize(
    "note",
    [
        "no JSON",
        '["orders"]',
        '{"../x": {}}',
        '{"orders": {"retention.ms": {"before": "1; rm", "own": true, "set": []}}}',
        '{"orders": {"retention.ms": {"before": -2, "own": true, "set": []}}}',
        "[" * 60_000,
    ],
)
def test_a_note_of_a_stranger_is_refused(world: World, note: str) -> None:
    world.annotations[ANNOTATION] = note
    for words in (restore(), extend("--to", "14d")):
        assert ANNOTATION in world.refused(*words)
    assert world.retention["orders"][TIME] == Setting(DAY, True)


@pytest.mark.parametrize(
    ("words", "printed"),
    [
        (["extend", "shop/orders"], "nothing says how long"),
        (["extend", "shop/orders", "--to", "7d", "--hours", "1"], "nothing says how long, or two things do"),
        (["extend", "shop/orders", "--to", "soon"], "is not a duration"),
        (["extend", "shop/orders", "--to", "7d", "--topic", "other"], "does not read topic 'other'"),
        (["restore", "shop/orders", "--yes"], "nothing is noted of shop/orders"),
    ],
)
def test_a_wrong_command_is_refused_with_what_to_do(world: World, words: list[str], printed: str) -> None:
    assert printed in world.refused("retention", *words)


def test_a_restore_asks_for_confirmation(world: World) -> None:
    world.json(*extend("--to", "14d"))
    assert "add --yes" in world.refused("retention", "restore", "shop/orders")
