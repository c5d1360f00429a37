"""`fencepost retention show`, `extend` and `restore`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Annotated, Final

import typer

from fencepost_cli.commands.confirmation import ask, who
from fencepost_cli.commands.options import Needs, Target, of_pipeline, parse_span
from fencepost_cli.commands.output import Column, note, number, print_json, print_line, print_table
from fencepost_cli.errors import CliError, ExitCode
from fencepost_cli.ports import TopicConfigs
from fencepost_cli.readable import timestamp
from fencepost_cli.retention import (
    ANNOTATION,
    SETTINGS,
    SIZE,
    TIME,
    Change,
    Noted,
    TopicSettings,
    extension,
    noted,
    read_note,
    restoration,
    write_note,
)

app = typer.Typer(no_args_is_help=True, rich_markup_mode=None, help="How long Kafka keeps the topics' records.")

LOSS_REMEDY: Final = "let the pipeline read them first, or say --force to lose them"
ATTEMPTS: Final = 5
"""Attempts to write a note that is changed concurrently."""


@dataclass(frozen=True, slots=True)
class Topics:
    """The option that chooses topics."""

    topic: Annotated[
        list[str] | None, typer.Option("--topic", help="Of this topic alone; may be given again. [default: all]")
    ] = None

    def of(self, target: Target) -> tuple[str, ...]:
        """Return the topics. Raises CliError for one that the pipeline does not read."""
        known = target.spec.source.kafka.topics
        for name in self.topic or ():
            if name not in known:
                raise CliError(f"{target.key} does not read topic {name!r}", remedy=f"choose among {', '.join(known)}")
        return tuple(self.topic) if self.topic else known


@app.command()
@of_pipeline(Needs.KAFKA)
def show(target: Target, topics: Topics) -> None:
    """Show each topic's retention, and what it was before it was extended."""
    notes = read_note(target.cluster.annotation(target.key, ANNOTATION).value)
    with _settings(target) as settings:
        found = {topic: settings.read(topic) for topic in topics.of(target)}
    if target.is_json:
        print_json(
            {
                "pipeline": str(target.key),
                "topics": [
                    {
                        "topic": topic,
                        "deletes": one.deletes,
                        **{
                            name: {"value": one.settings[name].value, "own": one.settings[name].is_own}
                            for name in SETTINGS
                        },
                        "extended": _note_json(notes.get(topic)),
                    }
                    for topic, one in found.items()
                ],
            }
        )
        return
    columns = [
        Column("TOPIC"),
        number(TIME),
        number(SIZE),
        Column("DELETES"),
        Column("BEFORE"),
        Column("BY"),
        Column("AT"),
    ]
    print_table(
        columns,
        [
            (topic, one.settings[TIME].value, one.settings[SIZE].value, one.deletes, *_before(notes.get(topic)))
            for topic, one in found.items()
        ],
    )


@app.command()
@of_pipeline(Needs.KAFKA)
def extend(
    target: Target,
    topics: Topics,
    *,
    hours: Annotated[
        int | None, typer.Option("--hours", min=1, max=87_600, help="Keep records this much longer.")
    ] = None,
    to: Annotated[str | None, typer.Option("--to", metavar="AGE", help="Keep records for 36h, 7d.")] = None,
    lift_size: Annotated[bool, typer.Option("--lift-size", help="Also remove retention.bytes meanwhile.")] = False,
    by: Annotated[str | None, typer.Option("--by", help="Who extends it. [default: your account's name]")] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what would be set, and set nothing.")] = False,
) -> None:
    """Keep the topics' records longer, and note on the pipeline what was there before."""
    if (hours is None) == (to is None):
        raise CliError("nothing says how long, or two things do", remedy="add --hours N, or --to 7d")
    more_ms = None if hours is None else _ms(timedelta(hours=hours))
    to_ms = None if to is None else _ms(parse_span(to, "--to"))
    name, changes = who(by), []
    with _settings(target) as settings:
        for topic in topics.of(target):
            found = settings.read(topic)
            change, warning = extension(topic, found, more_ms=more_ms, to_ms=to_ms, lift_size=lift_size)
            if warning:
                note(warning)
            if change.values:
                settings.check(change)
            changes.append((change, found))
        if not dry_run:
            wanted = [(change, found) for change, found in changes if change.values]
            _note_all(target, wanted, name)  # before Kafka is changed: what is stopped here can be restored
            for change, _ in wanted:
                settings.write(change)
    _tell(target, changes, dry_run=dry_run)
    if any(change.values for change, _ in changes) and not dry_run:
        note(f"look at the brokers' free disk space; `fencepost retention restore {target.key}` takes it back")


@app.command()
@of_pipeline(Needs.KAFKA)
def restore(
    target: Target,
    *,
    topic: Annotated[
        list[str] | None,
        typer.Option("--topic", help="This topic alone; may be given again. [default: all that are noted]"),
    ] = None,
    force: Annotated[
        bool, typer.Option("--force", help="Also what was changed since, and while unread records would be deleted.")
    ] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what would be set, and set nothing.")] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
) -> None:
    """Set the topics' retention to what it was before `extend`. Exit code 1: it was changed since."""
    notes = read_note(target.cluster.annotation(target.key, ANNOTATION).value)
    if not notes:
        raise CliError(
            f"nothing is noted of {target.key}: no `fencepost retention extend` is to be taken back",
            remedy=f"see `fencepost retention show {target.key}`, and set what is wrong by hand",
        )
    if unknown := [name for name in topic or () if name not in notes]:
        raise CliError(f"nothing is noted of topic {unknown[0]!r}", remedy=f"choose among {', '.join(notes)}")
    notes = {name: one for name, one in notes.items() if topic is None or name in topic}
    with _settings(target) as settings:
        changes = []
        for name, one in notes.items():
            found = settings.read(name)
            changes.append((restoration(name, one, found, force=force), found))
        if not force:
            _refuse_a_loss(target, notes)
        if not dry_run:
            if not yes:
                _confirm(target, changes)
            for change, _ in changes:
                if change.values:
                    settings.write(change)
                    _forget(target, change.topic)
    _tell(target, changes, dry_run=dry_run)
    if any(change.why_not for change, _ in changes):
        raise typer.Exit(ExitCode.FOUND)


def _confirm(target: Target, changes: list[tuple[Change, TopicSettings]]) -> None:
    """Show what would be set, except in JSON, which is one document; then ask."""
    if not target.is_json:
        _tell(target, changes, dry_run=True)
    ask("Set this? Kafka then deletes what is older.")


def _refuse_a_loss(target: Target, notes: Mapping[str, Noted]) -> None:
    """Raise CliError where Kafka may delete uncommitted records again, or where that is not known."""
    unread = target.cluster.unread(target.key)
    if unread.lag == 0:
        return
    for topic, one in notes.items():
        size, time = one.settings.get(SIZE), one.settings.get(TIME)
        if size is not None and size.setting.value >= 0:
            raise CliError(
                f"the pipeline has uncommitted records, and retention.bytes={size.setting.value} of topic {topic} may "
                "delete them",
                remedy=LOSS_REMEDY,
            )
        if time is None or time.setting.value < 0:
            continue
        if unread.oldest is None or unread.topic != topic:
            raise CliError(
                f"the operator does not say how old the oldest uncommitted record of topic {topic} is",
                remedy=LOSS_REMEDY,
            )
        if time.setting.value < (datetime.now(UTC) - unread.oldest) / timedelta(milliseconds=1):
            raise CliError(
                f"the pipeline has uncommitted records of {timestamp(unread.oldest)}, and"
                f" retention.ms={time.setting.value} of topic {topic} would delete them",
                remedy=LOSS_REMEDY,
            )


def _note_all(target: Target, wanted: list[tuple[Change, TopicSettings]], name: str) -> None:
    """Add the current settings to the note, provided that the pipeline did not change meanwhile. Raises CliError."""
    if not wanted:
        return

    def added(notes: dict[str, Noted]) -> dict[str, Noted]:
        now = datetime.now(UTC)
        return notes | {
            change.topic: noted(notes.get(change.topic), change, found, by=name, at=now) for change, found in wanted
        }

    _change_note(target, added)


def _forget(target: Target, topic: str) -> None:
    _change_note(target, lambda notes: {name: one for name, one in notes.items() if name != topic})


def _change_note(target: Target, change: Callable[[dict[str, Noted]], dict[str, Noted]]) -> None:
    for _ in range(ATTEMPTS):
        found = target.cluster.annotation(target.key, ANNOTATION)
        text = write_note(change(read_note(found.value)))
        if target.cluster.replace_annotation(target.key, ANNOTATION, text, found.version):
            return
    raise CliError("the pipeline changes too often to note anything on it", remedy="start the command again")


def _settings(target: Target) -> AbstractContextManager[TopicConfigs]:
    return target.ports.configs(target.kafka)


def _tell(target: Target, changes: list[tuple[Change, TopicSettings]], *, dry_run: bool) -> None:
    if target.is_json:
        print_json(
            {
                "pipeline": str(target.key),
                "dryRun": dry_run,
                "topics": [
                    {
                        "topic": change.topic,
                        "leftOut": change.why_not,
                        "settings": {
                            name: {"from": found.settings[name].value, "to": value}
                            for name, value in change.values.items()
                        },
                    }
                    for change, found in changes
                ],
            }
        )
        return
    rows = [
        (change.topic, name, found.settings[name].value, "inherited" if value is None else f"{value:,}")
        for change, found in changes
        for name, value in change.values.items()
    ]
    print_table([Column("TOPIC"), Column("SETTING"), number("FROM"), number("WOULD BE" if dry_run else "NOW")], rows)
    for change, _ in changes:
        if change.why_not:
            print_line(f"topic {change.topic} stays as it is: {change.why_not}")


def _before(one: Noted | None) -> tuple[str | None, str | None, str | None]:
    if one is None:
        return None, None, None
    values = (
        f"{name}={was.setting.value}{'' if was.setting.is_own else ' (inherited)'}"
        for name, was in one.settings.items()
    )
    return ", ".join(values), one.by, one.at


def _note_json(one: Noted | None) -> Mapping[str, object] | None:
    if one is None:
        return None
    return {
        "by": one.by,
        "at": one.at,
        "before": {name: {"value": was.setting.value, "own": was.setting.is_own} for name, was in one.settings.items()},
    }


def _ms(span: timedelta) -> int:
    return span // timedelta(milliseconds=1)
