"""`fencepost dead-letters list`, `show`, `retry` and `skip`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Annotated, Any, Final

import typer

from fencepost.contract import offset_key
from fencepost.fence import FenceRow
from fencepost.fence.left_out import LeftOut
from fencepost.fence.letters import DeadLetter
from fencepost_cli.commands.confirmation import ask, who
from fencepost_cli.commands.options import Needs, Target, of_pipeline, parse_place, parse_since
from fencepost_cli.commands.output import (
    Column,
    bytes_json,
    moment,
    note,
    number,
    print_block,
    print_bytes,
    print_fields,
    print_json,
    print_line,
    print_table,
    working,
)
from fencepost_cli.dead_letters import HIGHEST, Selection, again, headers_of, page, partitions_of, place_of, why_not
from fencepost_cli.errors import CliError, ExitCode
from fencepost_cli.ports import Producer, Store
from fencepost_cli.readable import age
from fencepost_operator.api import RETRY_ANNOTATION

MOST: Final = 10_000
"""Letters of one list, or of one retry."""
_SHOWN: Final = 200
"""Characters of an error in a list."""

app = typer.Typer(
    no_args_is_help=True, rich_markup_mode=None, help="The records that a driver set aside because each fails alone."
)


@dataclass(frozen=True, slots=True)
class Chosen:
    """The options by which dead letters are chosen."""

    topic: Annotated[str | None, typer.Option("--topic", help="Of this topic.")] = None
    partition: Annotated[int | None, typer.Option("--partition", min=0, help="Of this partition.")] = None
    from_offset: Annotated[int, typer.Option("--from-offset", min=0, help="From this offset on.")] = 0
    until_offset: Annotated[int | None, typer.Option("--until-offset", min=0, help="Below this offset.")] = None
    since: Annotated[
        str | None, typer.Option("--since", help="Set aside in the last 90m, 12h, 2d, or since a time.")
    ] = None
    before: Annotated[
        str | None, typer.Option("--before", help="Set aside before 90m, 12h, 2d ago, or before a time.")
    ] = None
    limit: Annotated[int, typer.Option("--limit", min=1, max=MOST, help="How many, at most.")] = 100

    def selection(self, after: str | None = None) -> Selection:
        """Return which letters these are, of a list after that place. Raises CliError."""
        return Selection(
            topic=self.topic,
            partition=self.partition,
            start=self.from_offset,
            until=HIGHEST if self.until_offset is None else self.until_offset,
            since=parse_since(self.since),
            before=parse_since(self.before, option="--before"),
            after=parse_place(after, "--after") if after else None,
        )


@app.command("list")
@of_pipeline(Needs.FENCE)
def list_letters(
    target: Target,
    chosen: Chosen,
    after: Annotated[
        str | None,
        typer.Option("--after", metavar="TOPIC/PARTITION@OFFSET", help="Continue after this one: the next page."),
    ] = None,
) -> None:
    """List dead letters by topic, partition and offset, a page at a time."""
    selection = chosen.selection(after)
    with target.store() as store, working("reading the dead letters"):
        found = page(store, partitions_of(selection, _row(target, store, selection)), selection, limit=chosen.limit)
    if target.is_json:
        print_json(
            {
                "pipeline": target.fence.pipeline,
                "deadLetters": [_facts(letter) for letter in found.letters],
                "next": found.following,
            }
        )
        return
    now = datetime.now(UTC)
    print_table(
        [
            Column("TOPIC"), number("PARTITION"), number("OFFSET"), Column("AGE"), number("BYTES"), Column("RETRIED"),
            Column("REASON"), Column("ERROR"),
        ],
        [
            (
                one.topic, one.partition, str(one.offset), age(now - one.at), one.value_size, one.retried_to,
                one.reason, (one.error or "")[:_SHOWN],
            )
            for one in found.letters
        ],
    )  # fmt: skip
    if found.following:
        note(f"there may be more: add --after {found.following}")


@app.command()
@of_pipeline(Needs.FENCE)
def show(
    target: Target,
    topic: Annotated[str, typer.Argument(metavar="TOPIC", help="The record's topic.")],
    partition: Annotated[int, typer.Argument(metavar="PARTITION", min=0, help="Its partition.")],
    offset: Annotated[int, typer.Argument(metavar="OFFSET", min=0, help="Its offset.")],
    topic_id: Annotated[
        str | None, typer.Option("--topic-id", help="Kafka's id of the topic, where two topics of that name had one.")
    ] = None,
) -> None:
    """Show one dead letter: key, value, headers, error and traceback."""
    with target.store() as store:
        listed = list(store.letters(topic, partition, start=offset, until=offset + 1))
        found = [one for one in listed if topic_id in {None, one.topic_id}]
        if len(found) > 1:
            raise CliError(
                f"topic {topic} was deleted and created again, and {len(found)} records of {topic}/{partition}@{offset}"
                " are dead letters",
                remedy=f"add --topic-id, one of {', '.join(one.topic_id for one in found)}",
            )
        letter = store.letter(found[0]) if found else None
    if letter is None:
        raise CliError(
            f"{target.key} has no dead letter of {topic}/{partition}@{offset}",
            remedy=f"choose one of `fencepost dead-letters list {target.key}`; they expire after onPoison.retention",
        )
    headers = headers_of(letter)
    if target.is_json:
        content = [{"key": name, "value": bytes_json(value)} for name, value in headers or ()]
        print_json(
            {
                "pipeline": target.fence.pipeline,
                **_facts(letter),
                "key": bytes_json(letter.key),
                "value": bytes_json(letter.value),
                "headers": None if headers is None else content,
                "whole": letter.is_whole,
                "traceback": letter.traceback,
            }
        )
        return
    print_fields(
        {
            "Record": place_of(letter),
            "Timestamp": moment(letter.timestamp),
            "Set aside": moment(letter.at),
            "Epoch": letter.epoch,
            "Code": letter.code,
            "Reason": letter.reason,
            "Topic id": letter.topic_id,
            "Whole": letter.is_whole,
            "Retried": f"{moment(letter.retried_at)} by {letter.retried_by}, to {letter.retried_to}"
            if letter.retried_at
            else None,
        }
    )
    print_line()
    print_bytes("Key", letter.key)
    print_bytes("Value", letter.value, size=letter.value_size)
    for name, value in headers or ():
        print_bytes(f"Header {name}", value)
    if headers is None:
        print_line("Headers: not what a driver writes; the table has them")
    print_line("Error:")
    print_block(letter.error or "")
    print_line("Traceback:")
    print_block(letter.traceback or "")


@dataclass(frozen=True, slots=True)
class _Outcome:
    """The result for one letter: where its record is now, or why it was left out."""

    letter: DeadLetter
    to: str | None = None
    why: str | None = None


@app.command()
@of_pipeline(Needs.FENCE, Needs.KAFKA)
def retry(
    target: Target,
    chosen: Chosen,
    *,
    every: Annotated[bool, typer.Option("--all", help="All of them, where nothing else chooses.")] = False,
    to_topic: Annotated[
        str | None, typer.Option("--to-topic", metavar="TOPIC", help="In place of the record's own topic.")
    ] = None,
    repeat: Annotated[bool, typer.Option("--again", help="Also those that were retried before.")] = False,
    by: Annotated[str | None, typer.Option("--by", help="Who retries them. [default: your account's name]")] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what would be sent, and send nothing.")] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
) -> None:
    """Send the records of dead letters to Kafka again, and mark the letters. Exit code 1: some cannot be sent."""
    selection = chosen.selection()
    if not (selection.is_narrow or every):
        raise CliError("nothing says which dead letters", remedy="choose with --topic and the others, or say --all")
    with target.store() as store:
        row = target.row(store)
        found = page(store, partitions_of(selection, row), selection, limit=chosen.limit)
        wanted = [one for one in found.letters if repeat or one.retried_at is None]
        if found.following:
            note(f"these are the first {chosen.limit}: start the command again for the others, or raise --limit")
        if not dry_run and wanted and not yes:
            where = f"topic {to_topic}" if to_topic else "their topics"
            ask(f"Send up to {len(wanted):,} records to {where} again?")
            row = target.row(store)  # a rewind may have gone back while the user read
        retries = _Retries(target, store, row, target.watermarks().topic_ids, to_topic, who(by))
        try:
            if dry_run:
                retries.send(wanted, None)
            else:
                with target.ports.producer(target.kafka) as producer:
                    retries.send(wanted, producer)
        except CliError:
            if retries.done:
                retries.print_results(len(found.letters) - len(wanted), dry_run=dry_run)
            raise
    retries.print_results(len(found.letters) - len(wanted), dry_run=dry_run)
    if any(outcome.why for outcome in retries.done):
        raise typer.Exit(ExitCode.FOUND)


@app.command()
@of_pipeline(Needs.FENCE, Needs.KAFKA)
def skip(
    target: Target,
    record: Annotated[str, typer.Argument(metavar="TOPIC/PARTITION@OFFSET", help="The record's place.")],
    *,
    by: Annotated[str | None, typer.Option("--by", help="Who leaves it out. [default: your account's name]")] = None,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
) -> None:
    """Let the next runs leave out one record that is not committed, for good, and record who wants that."""
    topic, partition, offset = parse_place(record, "RECORD")
    key, place = offset_key(topic, partition), f"{topic}/{partition}@{offset}"
    with target.store() as store:
        row = target.row(store)
        committed = row.offsets.get(key)
        if committed is None or topic not in row.topic_ids:
            raise CliError(
                f"{target.key} has not read {key} yet", remedy="name the record that status.failure names, or its log"
            )
        if offset < committed:
            raise CliError(
                f"{place} is committed: {key} continues at {committed}",
                remedy="rewind to before the record first, then leave it out",
            )
        if offset >= (end := max(row.log_ends.get(key, 0), row.written_until.get(key, 0))):
            raise CliError(
                f"{place} is beyond what a run has seen: {key} ended at {end}",
                remedy="name the record that status.failure names, or its log",
            )
        epoch = target.ports.leader_epoch(target.kafka, topic, partition, offset)
        if not yes:
            ask(f"Let {target.key} leave out {place}? No run will read the record, also after a rewind.")
        left_out = LeftOut(
            topic=topic, partition=partition, offset=offset, topic_id=row.topic_ids[topic], leader_epoch=epoch,
            by=who(by), at=datetime.now(UTC),
        )  # fmt: skip
        store.leave_out(left_out)
    if target.is_json:
        print_json({"pipeline": target.fence.pipeline, "leftOut": place, "by": left_out.by, "at": left_out.at})
        return
    print_line(f"{place} is left out from the next run on")
    note(
        "where the pipeline is Stalled, start a run: kubectl annotate spl"
        f" -n {target.key.namespace} {target.key.name} {RETRY_ANNOTATION}=$(date +%s) --overwrite"
    )


@dataclass(slots=True)
class _Retries:
    """The retries of one command; `topic_ids` are Kafka's, `done` are those so far."""

    target: Target
    store: Store
    row: FenceRow
    topic_ids: Mapping[str, str]
    to_topic: str | None
    who: str
    done: list[_Outcome] = field(default_factory=list)

    def send(self, wanted: Iterable[DeadLetter], producer: Producer | None) -> None:
        """Send each record, then mark its letter: what is stopped in between is sent again. None sends nothing."""
        for each in wanted:
            letter = self.store.letter(each)
            if letter is not None and letter.retried_at == each.retried_at:  # neither expired nor retried meanwhile
                self.done.append(self._outcome(letter, producer))

    def _outcome(self, letter: DeadLetter, producer: Producer | None) -> _Outcome:
        topics = self.target.spec.source.kafka.topics
        why = why_not(letter, self.row, topics, self.topic_ids, to_topic=self.to_topic)
        if why is not None:
            return _Outcome(letter, why=why)
        record = again(letter, self.target.fence.pipeline, to_topic=self.to_topic)
        if producer is None:
            return _Outcome(letter, to=record.topic)
        place = producer.send(record)
        self.store.mark_retried(letter, by=self.who, at=datetime.now(UTC), to=place)
        return _Outcome(letter, to=place)

    def print_results(self, retried_before: int, *, dry_run: bool) -> None:
        """Print the result of each."""
        if self.target.is_json:
            print_json(
                {
                    "pipeline": self.target.fence.pipeline,
                    "dryRun": dry_run,
                    "retriedBefore": retried_before,
                    "deadLetters": [{**_facts(one.letter), "to": one.to, "leftOut": one.why} for one in self.done],
                }
            )
            return
        columns = [Column("RECORD"), Column("TO"), Column("LEFT OUT")]
        print_table(columns, [(place_of(one.letter), one.to, one.why) for one in self.done])
        sent = sum(one.to is not None for one in self.done)
        print_line(f"{sent:,} {'would be sent' if dry_run else 'sent'}, {len(self.done) - sent:,} left out")
        if retried_before:
            note(f"{retried_before:,} were retried before: --again sends them once more")


def _row(target: Target, store: Store, selection: Selection) -> FenceRow | None:
    """Return the fence row, which names the partitions; letters outlive it, and one partition needs none."""
    return None if selection.topic is not None and selection.partition is not None else target.row(store)


def _facts(letter: DeadLetter) -> dict[str, Any]:
    return {
        "topic": letter.topic,
        "topicId": letter.topic_id,
        "partition": letter.partition,
        "offset": letter.offset,
        "at": letter.at,
        "epoch": letter.epoch,
        "code": letter.code,
        "reason": letter.reason,
        "error": letter.error,
        "timestamp": letter.timestamp,
        "valueSize": letter.value_size,
        "retriedAt": letter.retried_at,
        "retriedBy": letter.retried_by,
        "retriedTo": letter.retried_to,
    }
