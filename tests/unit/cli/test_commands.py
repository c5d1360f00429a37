"""The commands on a pipeline of three commits: what they print, their exit codes, and how they fail."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

import fencepost_cli.history.reading
from fencepost_cli.accepted_loss import AcceptedLoss
from fencepost_cli.errors import CliError
from fencepost_cli.history.sink_rows import Offsets
from unit.cli.world import ROW, World, history, story


@pytest.fixture
def world() -> World:
    return World.usual()


def test_the_fence_row_is_shown_with_its_lag_against_kafka(world: World) -> None:
    printed = world.json("fence", "show", "shop/orders")
    assert (printed["pipeline"], printed["epoch"], printed["driver"]) == (ROW, 2, "pod-2")
    assert printed["partitions"] == [
        {"partition": "orders/0", "committed": 12, "planned": 12, "end": 15, "lag": 3, "leaderEpoch": None}
    ]
    assert (printed["lag"], printed["endsFrom"]) == (3, "kafka")


def test_a_terminal_shows_the_same(world: World) -> None:
    ended = world.run("fence", "show", "orders", "-n", "shop")
    assert ended.exit_code == 0
    assert "pod-2" in ended.stdout
    assert "orders/0" in ended.stdout
    assert "\x1b" not in ended.stdout


def test_without_kafka_the_ends_are_those_that_the_driver_saw(world: World) -> None:
    world.log = CliError("Kafka at kafka:9092 did not answer", remedy="look")
    printed = world.json("fence", "show", "shop/orders")
    assert (printed["lag"], printed["endsFrom"]) == (2, "fence")
    assert "driver last saw" in world.run("fence", "show", "shop/orders").stderr


def test_offsets_need_kafka(world: World) -> None:
    assert world.json("offsets", "shop/orders")["partitions"] == [
        {"partition": "orders/0", "begin": 0, "committed": 12, "planned": 12, "end": 15, "lag": 3, "lost": 0}
    ]
    world.log = CliError("Kafka at kafka:9092 did not answer", remedy="look there")
    ended = world.run("offsets", "shop/orders")
    assert (ended.exit_code, ended.stdout) == (2, "")
    assert ended.stderr.splitlines() == ["error: Kafka at kafka:9092 did not answer", "remedy: look there"]


def test_the_history_is_newest_first_and_each_change_follows(world: World) -> None:
    changes = world.json("fence", "history", "shop/orders")["changes"]
    kinds = ["commit", "claim", "takeover", "commit", "commit", "claim", "takeover", "created"]
    assert [change["kind"] for change in changes] == kinds
    assert [change["contiguous"] for change in changes] == [True] * 7 + [None]
    assert changes[0]["offsets"] == {"orders/0": {"from": 9, "until": 12}}
    assert changes[0]["records"] == 3


def test_the_history_is_limited_and_a_gap_shows(world: World) -> None:
    del world.records[-2]
    world.records[-1] = history(story()[-1:])[0]
    changes = world.json("fence", "history", "shop/orders", "--limit", "2")["changes"]
    assert [(change["version"], change["contiguous"]) for change in changes] == [(7, False), (5, True)]


def test_the_history_of_several_hours_is_read_as_far_as_it_is_asked_for() -> None:
    rows = story()
    world = World(row=rows[-1], records=history(rows, every=timedelta(minutes=50)))
    assert len(world.json("fence", "history", "shop/orders", "--limit", "0")["changes"]) == 8
    late = world.json("fence", "history", "shop/orders", "--since", "90m")["changes"]
    assert [(change["kind"], change["contiguous"]) for change in late] == [("commit", True), ("claim", True)]


def test_a_history_that_is_too_long_is_reported(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fencepost_cli.history.reading, "MOST", 3)
    assert "--since" in world.refused("fence", "history", "shop/orders", "--limit", "0")


def test_an_honest_history_and_a_full_sink_verify(world: World) -> None:
    printed = world.json("fence", "verify", "shop/orders", "--exact")
    assert (printed["ok"], printed["findings"]) == (True, [])
    assert printed["history"] == {
        "changes": 8, "commits": 3, "takeovers": 2, "rewinds": 0, "firstEpoch": 0, "lastEpoch": 2, "gaps": 0,
        "complete": True,
    }  # fmt: skip
    (part,) = printed["sinks"][0]["partitions"]
    assert (part["from"], part["fromKnown"], part["until"], part["missing"], part["repeated"]) == (0, True, 12, 0, 0)


def test_a_missing_row_is_reported_and_with_exact_it_is_an_error(world: World) -> None:
    world.positions_of["shop.orders"].remove(("orders", 0, 4))
    printed = world.json("fence", "verify", "shop/orders")
    assert printed["sinks"][0]["partitions"][0]["missing"] == 1
    assert printed["sinks"][0]["partitions"][0]["holes"] == [{"from": 4, "until": 5}]
    printed = world.json("fence", "verify", "shop/orders", "--exact", code=1)
    assert printed["findings"] == ["sink orders, orders/0: 1 committed offsets have no row"]
    ended = world.run("fence", "verify", "shop/orders", "--exact")
    assert ended.exit_code == 1
    assert "no row: orders/0 [4, 5)" in ended.stdout


def test_a_hole_of_any_size_is_passed_at_once() -> None:
    """Injected: a committed offset that was written into the row by hand."""
    found = Offsets()
    for offset in (3, 2**40):
        found.add(offset)
    assert list(found.holes(0, 2**62)) == [(0, 3), (4, 2**40), (2**40 + 1, 2**62)]


def test_a_row_beyond_what_was_planned_is_always_an_error(world: World) -> None:
    world.positions_of["shop.orders"].append(("orders", 0, 13))
    printed = world.json("fence", "verify", "shop/orders", code=1)
    assert printed["findings"] == ["sink orders, orders/0: 1 offsets have rows and were never planned"]


def test_rows_of_the_batch_in_progress_are_none_of_the_errors(world: World) -> None:
    rows = story()
    world.row, world.records = rows[-2], history(rows[:-1])
    (part,) = world.json("fence", "verify", "shop/orders", "--exact")["sinks"][0]["partitions"]
    assert (part["until"], part["inProgress"], part["beyond"]) == (9, 3, 0)


def test_several_rows_of_one_offset_are_an_error_with_exact_only(world: World) -> None:
    world.positions_of["shop.orders"].append(("orders", 0, 3))
    assert world.json("fence", "verify", "shop/orders")["sinks"][0]["partitions"][0]["repeated"] == 1
    assert world.json("fence", "verify", "shop/orders", "--exact", code=1)["ok"] is False


def test_a_sink_without_coordinates_is_named_and_not_compared(world: World) -> None:
    world.tables["shop.orders"] = [replace(world.tables["shop.orders"][0], name="id")]
    sink = world.json("fence", "verify", "shop/orders")["sinks"][0]
    assert sink["skipped"] == "its primary key has no topic text, partition int, offset bigint"
    assert world.json("fence", "verify", "shop/orders", "--no-sinks")["sinks"] == []


def test_a_row_that_was_changed_by_hand_is_found(world: World) -> None:
    assert world.row is not None
    world.row = replace(world.row, offsets={"orders/0": 11})
    printed = world.json("fence", "verify", "shop/orders", "--no-sinks", code=1)
    assert "version 7: the fence row is not what the history recorded" in printed["findings"][0]


def test_offsets_that_go_back_are_found(world: World) -> None:
    rows = story()
    back = replace(rows[-1], version=8, clock=rows[-1].clock + 1, offsets={"orders/0": 8})
    world.row, world.records = back, history([*rows, back])
    printed = world.json("fence", "verify", "shop/orders", "--no-sinks", code=1)
    assert any("orders/0 went back from 12 to 8" in finding for finding in printed["findings"])


@pytest.mark.parametrize(
    ("reason", "start", "until", "offsets"),
    [
        ("OffsetOutOfRange", 12, 40, {"orders/0": 40}),
        ("LogTruncated", 8, 12, {"orders/0": 8}),
        ("TopicRecreated", 12, 14, {"orders/0": 0}),
        ("TopicDeleted", 12, 14, {}),
    ],
)
def test_a_claim_that_continues_after_an_accepted_loss_is_not_a_finding(
    world: World, reason: str, start: int, until: int, offsets: dict[str, int]
) -> None:
    rows = story()
    last = rows[-1]
    taken = replace(last, epoch=3, driver=None, version=8, clock=last.clock + 2)
    claimed = replace(taken, driver="pod-3", version=9, offsets=offsets, planned=offsets)
    world.row, world.records = claimed, history([*rows, taken, claimed])
    assert world.json("fence", "verify", "shop/orders", "--no-sinks", code=1)["ok"] is False
    world.accepted_losses = [AcceptedLoss(partition="orders/0", start=start, until=until, reason=reason)]
    assert world.json("fence", "verify", "shop/orders", "--no-sinks")["findings"] == []
    world.accepted_losses = [AcceptedLoss(partition="orders/0", start=start - 1, until=until - 1, reason=reason)]
    assert world.json("fence", "verify", "shop/orders", "--no-sinks", code=1)["ok"] is False


def test_a_last_change_that_is_not_on_record_is_a_gap_and_no_error(world: World) -> None:
    del world.records[-2:]
    printed = world.json("fence", "verify", "shop/orders", "--no-sinks")
    assert (printed["history"]["gaps"], printed["history"]["complete"]) == (1, False)


def test_two_clocks_at_the_turn_of_an_hour_do_not_make_a_finding() -> None:
    """Injected: the operator's clock is ahead, so its takeover is recorded in the hour after the claim that follows."""
    rows = story()
    records = history(rows)
    hour = records[0].hour
    whole = [replace(history([row])[0], hour=hour - timedelta(hours=1)) for row in rows]
    whole[5] = replace(whole[5], hour=hour)
    world = World(row=rows[-1], records=whole)
    assert world.json("fence", "verify", "shop/orders", "--no-sinks")["history"]["gaps"] == 0


def test_the_addresses_of_this_machine_replace_those_of_the_spec(world: World) -> None:
    world.json("fence", "show", "shop/orders", "--cassandra", "localhost:19042", "--kafka", "localhost:19092")
    cassandra, kafka = world.asked[-2:]
    assert (cassandra.endpoint.contact_points, cassandra.endpoint.port) == (("localhost",), 19042)
    assert kafka.endpoint.bootstrap_servers == "localhost:19092"
    world.json("fence", "show", "shop/orders", "--scope", "blue", "--context", "prod")
    assert world.asked[-2].pipeline == "blue/shop/orders"
    assert world.contexts[-1] == "prod"


@pytest.mark.parametrize(
    ("words", "printed"),
    [
        (["offsets", "shop/nothing"], "pipeline shop/nothing not found"),
        (["offsets", "a/b/c"], "names no pipeline"),
        (["offsets", "shop/orders", "-n", "bar"], "-n says bar"),
        (["offsets", "shop/orders", "--cassandra", "localhost"], "--cassandra 'localhost' is not an address"),
        (["offsets", "shop/orders", "--kafka", "a:99999"], "--kafka 'a:99999' is not an address"),
        (["fence", "history", "shop/orders", "--since", "yesterday"], "neither an age nor a time"),
    ],
)
def test_a_failure_is_two_lines_and_exit_code_2(world: World, words: list[str], printed: str) -> None:
    ended = world.run(*words)
    assert ended.exit_code == 2
    assert ended.stdout == ""
    error, remedy = ended.stderr.splitlines()
    assert error.startswith("error: ")
    assert printed in error
    assert remedy.startswith("remedy: ")


def test_a_missing_row_is_reported_with_the_scope(world: World) -> None:
    world.row, world.scope = None, None
    said = world.refused("fence", "show", "shop/orders")
    assert f"fence row {ROW} not found" in said
    assert "pass --scope" in said


def test_an_error_of_the_program_prints_no_traceback(world: World) -> None:
    world.records = [replace(world.records[0], offsets=None)]  # type: ignore[arg-type]  # as no writer stores it
    ended = world.run("fence", "history", "shop/orders")
    assert ended.exit_code == 2
    assert "Traceback" not in ended.output
    assert ended.stderr.startswith("error: ")


def test_a_password_and_a_command_of_the_author_are_never_used(world: World) -> None:
    """Injected: kinit.cmd, which librdkafka would run on the machine of whoever looks."""
    kafka = {"bootstrapServers": "kafka:9092", "topics": ["orders"], "propertiesFrom": {"secretName": "kafka"}}
    world.spec_changes = {"source": {"kafka": kafka}}
    world.secrets["kafka"] = {"sasl.kerberos.kinit.cmd": "touch /tmp/owned", "security.protocol": "sasl_ssl"}
    ended = world.run("offsets", "shop/orders")
    assert ended.exit_code == 2
    assert "only the driver may use sasl.kerberos.kinit.cmd" in ended.stderr
    assert "owned" not in ended.output


def test_text_of_a_tenant_draws_nothing_on_the_terminal(world: World) -> None:
    assert world.row is not None
    world.row = replace(world.row, code="\x1b[2Jimage [bold]x[/bold]\nsecond line")
    ended = world.run("fence", "show", "shop/orders")
    assert "\x1b" not in ended.stdout
    assert "[bold]x[/bold] second line" in ended.stdout


def test_times_are_those_of_kubernetes(world: World) -> None:
    assert world.row is not None
    world.row = replace(world.row, committed_at=datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC))
    assert world.json("fence", "show", "shop/orders")["committedAt"] == "2026-01-02T03:04:05Z"
