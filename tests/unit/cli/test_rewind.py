"""`fencepost rewind`: the object that it creates, and the steps that it follows."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path

import pytest

from fencepost_cli.commands.checkpoint import rewind as rewind_command
from fencepost_operator.api import ResolvedTarget, RewindSpec, RewindStatus, RewindTarget, StepState, StepStatus
from unit.cli.world import World

NOW = datetime(2026, 1, 31, 12, tzinfo=UTC)


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> World:
    monkeypatch.setattr(rewind_command, "POLL", 0.0)
    return World.usual()


def rewind(*words: str) -> list[str]:
    return ["rewind", "shop/orders", "--yes", *words]


@pytest.mark.parametrize(
    ("words", "spec"),
    [
        (["--to-snapshot", "before"], RewindSpec(pipeline="orders", to=RewindTarget(snapshot="before"))),
        (
            ["--to-timestamp", "2026-01-31T13:00:00+01:00", "--keep-output"],
            RewindSpec(pipeline="orders", to=RewindTarget(timestamp=NOW), delete_output=False),
        ),
        (["--to-timestamp", "2026-01-31T12:00:00"], RewindSpec(pipeline="orders", to=RewindTarget(timestamp=NOW))),
        (
            ["--to-timestamp", "2026-01-31T12:00:00Z", "--empty-state"],
            RewindSpec(pipeline="orders", to=RewindTarget(timestamp=NOW), empty_state=True),
        ),
        (
            ["--to-snapshot", "before", "--dry-run"],
            RewindSpec(pipeline="orders", to=RewindTarget(snapshot="before"), dry_run=True),
        ),
    ],
)
def test_a_rewind_is_created_as_it_is_asked_for(world: World, words: list[str], spec: RewindSpec) -> None:
    printed = world.json(*rewind(*words))
    assert world.rewinds == [spec]
    assert printed["rewind"] == "shop/orders-x7d2q"
    assert (printed["status"] is None) == (not spec.dry_run)


@pytest.mark.parametrize("content", [{"orders/0": 7}, {"id": "x", "offsets": {"orders/0": 7}}])
def test_offsets_come_from_a_file_such_as_a_shown_snapshot(world: World, tmp_path: Path, content: object) -> None:
    file = tmp_path / "offsets.json"
    file.write_text(json.dumps(content))
    world.json(*rewind("--to-offsets", str(file), "--name", "back"))
    assert world.rewinds[0].to == RewindTarget(offsets={"orders/0": 7})


@pytest.mark.parametrize(
    "content", ["", "[]", "{}", '{"orders/0": -1}', '{"orders/0": true}', '{"orders": 1}', "[" * 99_999]
)
def test_a_file_that_holds_no_offsets_creates_nothing(world: World, tmp_path: Path, content: str) -> None:
    file = tmp_path / "offsets.json"
    file.write_text(content)
    assert "remedy: write" in world.refused(*rewind("--to-offsets", str(file)))
    assert world.rewinds == []


def status(phase: str, *steps: tuple[str, StepState]) -> RewindStatus:
    made = tuple(
        StepStatus(name=name, state=state, message=f"{name} is \x1b[2J{state}", started_at=NOW) for name, state in steps
    )
    target = ResolvedTarget(offsets={"orders/0": 7})
    return RewindStatus(phase=phase, message=f"it is {phase}", steps=made, target=target, records_to_repeat=5)


def test_each_step_is_printed_once_until_the_end(world: World) -> None:
    running, done = StepState.RUNNING, StepState.DONE
    world.rewind_statuses = [
        RewindStatus(), status("Stop", ("Stop", running)), status("Stop", ("Stop", running)),
        status("BackUp", ("Stop", done), ("BackUp", running)), status("Completed", ("Stop", done), ("BackUp", done)),
    ]  # fmt: skip
    ended = world.run(*rewind("--to-snapshot", "before", "--watch"))
    assert ended.exit_code == 0, ended.output
    printed = [line.split()[:2] for line in ended.stdout.splitlines()]
    assert printed[:5] == [
        ["Stop", "Running"], ["Stop", "Done"], ["BackUp", "Running"], ["BackUp", "Done"], [],
    ]  # fmt: skip
    assert "records to repeat: 5" in ended.stdout
    assert "\x1b" not in ended.stdout


def test_a_rewind_that_fails_is_exit_code_1(world: World) -> None:
    world.rewind_statuses = [status("Failed", ("Resolve", StepState.FAILED))]
    printed = world.json(*rewind("--to-snapshot", "before", "--watch"), code=1)
    assert printed["status"]["message"] == "it is Failed"


@pytest.mark.parametrize(
    ("words", "printed"),
    [
        ([], "nothing says where to go back to"),
        (["--to-snapshot", "a", "--to-timestamp", "2026-01-31T12:00:00Z"], "or several things do"),
        (["--to-timestamp", "yesterday"], "is not a time"),
        (["--to-snapshot", "No Name"], "is not a valid snapshot name"),
        (["--to-snapshot", "a", "--name", "No Name"], "is not a valid object name"),
        (["--to-offsets", "/nothing/there"], "cannot be read"),
    ],
)
def test_what_cannot_be_meant_creates_nothing(world: World, words: list[str], printed: str) -> None:
    assert printed in world.refused(*rewind(*words))
    assert world.rewinds == []


def test_a_rewind_asks_for_confirmation(world: World) -> None:
    assert "add --yes" in world.refused("rewind", "shop/orders", "--to-snapshot", "a")
    assert world.rewinds == []


def test_a_rewind_that_is_deleted_or_late_is_reported(world: World) -> None:
    world.rewind_statuses = [RewindStatus(), None]
    assert "was deleted" in world.run(*rewind("--to-snapshot", "a", "--watch")).stderr
    world.rewind_statuses = [RewindStatus(message="another rewind is first")]
    assert "another rewind is first" in world.refused(*rewind("--to-snapshot", "a", "--watch", "--timeout", "1"))
