"""`fencepost dead-letters`: pages, what a terminal shows of hostile content, and retries that stop midway."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from functools import partial

import pytest

from fencepost.batch import Watermarks
from fencepost_cli import dead_letters
from fencepost_cli.errors import CliError
from fencepost_cli.ports import NewRecord
from present import present
from unit.cli.world import ROW, World, dead_letter

PLACE = ("orders", 0)


made = partial(dead_letter, "orders")


@pytest.fixture
def world() -> World:
    world = World.usual()
    for offset in (2, 5, 9):
        world.keep(made(offset, age=timedelta(hours=offset)))
    return world


def test_letters_are_listed_by_place_and_page(world: World) -> None:
    printed = world.json("dead-letters", "list", "shop/orders")
    assert [one["offset"] for one in printed["deadLetters"]] == [2, 5, 9]
    assert printed["next"] is None
    first = world.json("dead-letters", "list", "shop/orders", "--limit", "2")
    assert ([one["offset"] for one in first["deadLetters"]], first["next"]) == ([2, 5], "orders/0@5")
    second = world.json("dead-letters", "list", "shop/orders", "--limit", "2", "--after", first["next"])
    assert ([one["offset"] for one in second["deadLetters"]], second["next"]) == ([9], None)
    assert "--after orders/0@5" in world.run("dead-letters", "list", "shop/orders", "--limit", "2").stderr


@pytest.mark.parametrize(
    ("words", "offsets"),
    [
        (["--topic", "orders", "--partition", "0"], [2, 5, 9]),
        (["--topic", "other"], []),
        (["--partition", "1"], []),
        (["--from-offset", "5"], [5, 9]),
        (["--from-offset", "5", "--until-offset", "9"], [5]),
        (["--since", "6h"], [2, 5]),
        (["--before", "6h"], [9]),
    ],
)
def test_letters_are_chosen(world: World, words: list[str], offsets: list[int]) -> None:
    found = world.json("dead-letters", "list", "shop/orders", *words)["deadLetters"]
    assert [one["offset"] for one in found] == offsets


def test_letters_outlive_the_fence_row_of_a_partition_that_is_named(world: World) -> None:
    world.row = None
    assert (
        len(world.json("dead-letters", "list", "shop/orders", "--topic", "orders", "--partition", "0")["deadLetters"])
        == 3
    )
    assert world.run("dead-letters", "list", "shop/orders").exit_code == 2


def test_a_search_that_finds_nothing_ends(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Injected: more letters than one command reads, none of them in the time that is asked for."""
    monkeypatch.setattr(dead_letters, "MOST_LOOKED_AT", 2)
    printed = world.json("dead-letters", "list", "shop/orders", "--before", "90d")
    assert (printed["deadLetters"], printed["next"]) == ([], "orders/0@5")


def test_a_fence_row_of_too_many_partitions_is_refused(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dead_letters, "MOST_PARTITIONS", 0)
    assert "choose with --topic and --partition" in world.refused("dead-letters", "list", "shop/orders")


def test_one_letter_is_shown_whole(world: World) -> None:
    printed = world.json("dead-letters", "show", "shop/orders", "orders", "0", "5")
    assert printed["value"] == {"encoding": "utf-8", "data": '{"n": 1}'}
    assert printed["headers"] == [{"key": "trace", "value": {"encoding": "base64", "data": "AP8="}}]
    shown = world.run("dead-letters", "show", "shop/orders", "orders", "0", "5").stdout
    assert '    File "job.py"' in shown
    assert "Header trace: 2 bytes, in hexadecimal" in shown
    assert "00 ff" in shown
    assert "no dead letter of orders/0@6" in world.refused("dead-letters", "show", "shop/orders", "orders", "0", "6")


def test_content_draws_nothing_on_the_terminal(world: World) -> None:
    """Injected: escape sequences and marks of text direction in each part of a record and of its error."""
    evil = "\x1b[2J\x07\u202eevil"
    one = made(5, value=evil.encode(), key=evil.encode(), headers=((evil, evil.encode()),), error=evil)
    world.keep(replace(one, traceback=f"a\r{evil}\n\x9b2J", code=evil, reason=evil))
    for words in (
        ["list", "shop/orders"],
        ["show", "shop/orders", "orders", "0", "5"],
        ["retry", "shop/orders", "--all", "--dry-run"],
    ):
        for output in ("table", "json"):
            stdout = world.run("dead-letters", *words, "-o", output).stdout
            assert not {"\x1b", "\x07", "\u202e", "\x9b", "\r"} & set(stdout)
            assert stdout


def test_headers_that_no_driver_writes_are_neither_shown_nor_sent(world: World) -> None:
    world.keep(replace(made(5), headers='[["a", 1]]'))
    assert world.json("dead-letters", "show", "shop/orders", "orders", "0", "5")["headers"] is None
    (one,) = world.json(*retry("--from-offset", "5", "--until-offset", "6"), code=1)["deadLetters"]
    assert "not what the driver wrote" in one["leftOut"]


def retry(*words: str) -> list[str]:
    return ["dead-letters", "retry", "shop/orders", "--by", "ann", "--yes", *words]


def test_a_retried_record_says_where_it_comes_from_and_the_letter_where_it_went(world: World) -> None:
    printed = world.json(*retry("--from-offset", "5", "--until-offset", "9"))
    (one,) = printed["deadLetters"]
    assert (one["offset"], one["to"], one["leftOut"]) == (5, "orders/0@100", None)
    (sent,) = world.produced
    assert sent == NewRecord(
        topic="orders", partition=0, key=b"k", value=b'{"n": 1}',
        headers=(
            ("trace", b"\x00\xff"), ("fencepost-dead-letter", b"orders/0/5"),
            ("fencepost-dead-letter-pipeline", ROW.encode()), ("fencepost-dead-letter-retries", b"1"),
            ("fencepost-dead-letter-timestamp", b"1767312000000"),
        ),
    )  # fmt: skip
    kept = world.kept_letters[(*PLACE, 5, "id")]
    assert (kept.retried_by, kept.retried_to) == ("ann", "orders/0@100")
    assert world.json(*retry("--from-offset", "5", "--until-offset", "9"))["retriedBefore"] == 1
    assert len(world.produced) == 1
    assert len(world.json(*retry("--from-offset", "5", "--until-offset", "9", "--again"))["deadLetters"]) == 1


def test_a_record_that_fails_again_keeps_its_first_place() -> None:
    first = dead_letters.again(made(5), ROW, to_topic=None)
    second = dead_letters.again(made(11, headers=first.headers), ROW, to_topic="repair")
    assert dict(second.headers) == {**dict(first.headers), "fencepost-dead-letter-retries": b"2"}
    assert (second.topic, second.partition) == ("repair", None)


def test_a_tombstone_is_retried_as_one(world: World) -> None:
    world.kept_letters.clear()
    world.keep(made(5, value=None, key=b"k"))
    world.json(*retry("--all"))
    assert world.produced[0].value is None


def test_whoever_is_stopped_before_the_mark_sends_it_again_and_loses_none(world: World) -> None:
    """Injected: Cassandra is gone when the second letter is to be marked."""
    world.marks_until_outage = 1
    ended = world.run(*retry("--all"))
    assert ended.exit_code == 2
    assert "orders/0@2" in ended.stdout
    world.marks_until_outage = None
    world.json(*retry("--all"))
    sent = [dict(one.headers)["fencepost-dead-letter"] for one in world.produced]
    assert sent == [b"orders/0/2", b"orders/0/5", b"orders/0/5", b"orders/0/9"]
    assert all(one.retried_at for one in world.kept_letters.values())


def test_what_kafka_refuses_is_not_marked(world: World) -> None:
    world.refuses = CliError("Kafka did not store a record", remedy="grant Write")
    assert "remedy: grant Write" in world.refused(*retry("--all", "-o", "json"))
    assert not any(one.retried_at for one in world.kept_letters.values())


def test_a_dry_run_sends_and_marks_nothing(world: World) -> None:
    printed = world.json("dead-letters", "retry", "shop/orders", "--all", "--dry-run")
    assert [(one["offset"], one["to"]) for one in printed["deadLetters"]] == [
        (2, "orders"),
        (5, "orders"),
        (9, "orders"),
    ]
    assert world.produced == []


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"offset": 12}, "has not committed beyond it"),
        ({"is_whole": False}, "does not hold all of it"),
        ({"value_size": 99}, "does not hold all of it"),
        ({"value": b"changed!"}, "SHA-256"),
    ],
)
def test_what_cannot_be_sent_is_left_out_with_the_reason(world: World, change: dict[str, object], why: str) -> None:
    world.kept_letters.clear()
    world.keep(replace(made(5), **change))  # type: ignore[arg-type]
    printed = world.json(*retry("--all"), code=1)
    assert why in printed["deadLetters"][0]["leftOut"]
    assert world.produced == []


def test_a_topic_that_is_no_longer_read_needs_another_one(world: World) -> None:
    kafka = {"bootstrapServers": "kafka:9092", "topics": ["others"]}
    world.spec_changes = {"source": {"kafka": kafka}}
    printed = world.json(*retry("--topic", "orders", "--partition", "0"), code=1)
    assert "no longer reads topic orders" in printed["deadLetters"][0]["leftOut"]
    world.json(*retry("--topic", "orders", "--partition", "0", "--to-topic", "others"))
    assert {(one.topic, one.partition) for one in world.produced} == {("others", None)}


@pytest.mark.parametrize(
    ("words", "printed"),
    [
        (["--yes"], "nothing says which dead letters"),
        (["--all"], "cannot ask for confirmation without a terminal"),
        (["--all", "--yes", "--kafka", "x"], "is not an address"),
    ],
)
def test_nothing_is_sent_by_mistake(world: World, words: list[str], printed: str) -> None:
    assert printed in world.refused("dead-letters", "retry", "shop/orders", *words)
    assert world.produced == []


def test_a_record_of_a_topic_that_was_recreated_is_sent_there_only_on_request(world: World) -> None:
    """Injected: Kafka has another topic of that name; an offset of the old one says nothing about the new one."""
    world.kept_letters.clear()
    world.keep(made(500, topic_id="deleted"))
    (one,) = world.json(*retry("--all"), code=1)["deadLetters"]
    assert "topic orders was deleted and created again since: its id is id" in one["leftOut"]
    assert "say --to-topic orders" in one["leftOut"]
    assert world.produced == []
    (one,) = world.json(*retry("--all", "--to-topic", "orders"))["deadLetters"]
    assert one["to"] == "orders/0@100"


def test_a_retry_asks_kafka_for_the_topic_and_not_the_fence_row(world: World) -> None:
    """Injected: the topic is recreated after the last claim, so the row names the old one."""
    world.log = Watermarks(begins={"orders/0": 0}, ends={"orders/0": 15}, topic_ids={"orders": "new"})
    outcomes = world.json(*retry("--all"), code=1)["deadLetters"]
    assert all("its id is new" in one["leftOut"] for one in outcomes)
    assert world.produced == []


def test_letters_of_two_topics_of_one_name_are_distinguished(world: World) -> None:
    world.keep(made(5, topic_id="deleted", value=b"old"))
    first = world.json("dead-letters", "list", "shop/orders", "--limit", "2")
    assert [(one["offset"], one["topicId"]) for one in first["deadLetters"]] == [(2, "id"), (5, "deleted"), (5, "id")]
    second = world.json("dead-letters", "list", "shop/orders", "--limit", "2", "--after", first["next"])
    assert [one["offset"] for one in second["deadLetters"]] == [9]
    assert "--topic-id, one of deleted, id" in world.refused("dead-letters", "show", "shop/orders", "orders", "0", "5")
    shown = world.json("dead-letters", "show", "shop/orders", "orders", "0", "5", "--topic-id", "deleted")
    assert shown["value"]["data"] == "old"


def test_a_record_of_two_megabytes_is_sent_whole(world: World) -> None:
    world.kept_letters.clear()
    world.keep(made(5, value=b"v" * 2_000_000, key=b"k" * 100_000))
    world.json(*retry("--all"))
    (sent,) = world.produced
    assert (len(sent.value or b""), len(sent.key or b"")) == (2_000_000, 100_000)


def test_a_record_is_left_out_by_its_place(world: World) -> None:
    """Both forms of a place are taken."""
    for place in ("orders/0@13", "orders/0/13"):
        printed = world.json("dead-letters", "skip", "shop/orders", place, "--by", "ann", "--yes")
        assert (printed["leftOut"], printed["by"]) == ("orders/0@13", "ann")
    for one in world.left_out:
        topic_id = present(world.row).topic_ids["orders"]
        assert (one.topic, one.partition, one.offset, one.topic_id, one.leader_epoch) == ("orders", 0, 13, topic_id, 6)


@pytest.mark.parametrize(
    ("place", "why"),
    [
        ("orders/0@3", "is committed"),
        ("orders/0@14", "beyond what a run has seen: orders/0 ended at 14"),
        ("orders/0@12", "Kafka has no record at orders/0@12"),
        ("orders/9@3", "has not read orders/9"),
        ("orders", "not the place"),
    ],
)
def test_what_is_not_to_be_read_is_not_left_out(world: World, place: str, why: str) -> None:
    assert why in world.refused("dead-letters", "skip", "shop/orders", place, "--yes")
    assert world.left_out == []
