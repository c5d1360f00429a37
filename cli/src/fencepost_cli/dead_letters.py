"""Dead letters: which ones a command selects, and how a record is sent to Kafka again.

A retried record is a new record of a topic that a pipeline reads, so it reaches the sinks as every other does: read,
written and committed behind the fence.  Its headers name the record that it repeats.  The letter is marked once Kafka
has stored the new record; whoever is stopped between the two sends it again the next time.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from fencepost.contract import offset_key, record_place, split_offset_key
from fencepost.fence import FenceRow
from fencepost.fence.letters import DeadLetter
from fencepost_cli.errors import CliError
from fencepost_cli.ports import NewRecord, Store

ORIGIN: Final = "fencepost-dead-letter"
"""Header: `topic/partition/offset` of the record that failed first. A record that fails again keeps it."""
PIPELINE: Final = "fencepost-dead-letter-pipeline"
"""Header: `<scope>/<namespace>/<name>` of the pipeline that set it aside."""
TIMESTAMP: Final = "fencepost-dead-letter-timestamp"
"""Header: the timestamp of the record that failed, in ms since 1970."""
RETRIES: Final = "fencepost-dead-letter-retries"
"""Header: how often it has been sent again."""
_OWN: Final = frozenset({ORIGIN, PIPELINE, TIMESTAMP, RETRIES})

MOST_PARTITIONS: Final = 10_000
"""Partitions that one command asks for letters, a request each."""
MOST_LOOKED_AT: Final = 100_000
"""Letters that one command reads to find those that are asked for."""
HIGHEST: Final = 2**63 - 1
"""Above every offset."""

Header = tuple[str, bytes | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """Which letters: offsets [start, until) and letters written in [since, before). What is None does not matter."""

    topic: str | None = None
    partition: int | None = None
    start: int = 0
    until: int = HIGHEST
    since: datetime | None = None
    before: datetime | None = None
    after: tuple[str, int, int] | None = None
    """The place after which a list continues."""

    @property
    def is_narrow(self) -> bool:
        """Whether it leaves anything out."""
        return self != Selection(after=self.after)

    def has_time_of(self, letter: DeadLetter) -> bool:
        """Return whether a letter was written when it should be."""
        is_late = self.since is None or letter.at >= self.since
        return is_late and (self.before is None or letter.at < self.before)


@dataclass(frozen=True, slots=True)
class Page:
    """Letters by place. `following` is where the next page begins, None at the end."""

    letters: tuple[DeadLetter, ...]
    following: str | None


def place_of(letter: DeadLetter) -> str:
    """Return 'topic/partition@offset'."""
    return record_place(offset_key(letter.topic, letter.partition), letter.offset)


def partitions_of(selection: Selection, row: FenceRow | None) -> list[str]:
    """Return the partitions to look at, in order: the one that is named, or those of the fence row.

    Raises CliError where they are more than MOST_PARTITIONS.
    """
    if selection.topic is not None and selection.partition is not None:
        return [offset_key(selection.topic, selection.partition)]
    known = {*row.offsets, *row.planned} if row is not None else set()
    wanted = (key for key in known if selection.topic in {None, split_offset_key(key)[0]})
    found = [key for key in wanted if selection.partition in {None, split_offset_key(key)[1]}]
    if len(found) > MOST_PARTITIONS:
        raise CliError(
            f"the fence row has {len(found):,} partitions, and no more than {MOST_PARTITIONS:,} are looked at",
            remedy="choose with --topic and --partition",
        )
    return sorted(found, key=split_offset_key)


def page(store: Store, partitions: Iterable[str], selection: Selection, *, limit: int) -> Page:
    """Return the first `limit` letters that are asked for, and the others of the last one's place. Raises CliError."""
    found: list[DeadLetter] = []
    last: str | None = None
    for looked_at, letter in enumerate(_in_order(store, partitions, selection)):
        # Letters of one place, of two topics of that name, stay on one page.
        if (len(found) >= limit or looked_at >= MOST_LOOKED_AT) and place_of(letter) != last:
            return Page(tuple(found), last)
        last = place_of(letter)
        if selection.has_time_of(letter):
            found.append(letter)
    return Page(tuple(found), None)


def _in_order(store: Store, partitions: Iterable[str], selection: Selection) -> Iterator[DeadLetter]:
    for key in partitions:
        topic, partition = split_offset_key(key)
        start = selection.start
        if selection.after is not None:
            if (topic, partition) < selection.after[:2]:
                continue
            if (topic, partition) == selection.after[:2]:
                start = max(start, selection.after[2] + 1)
        yield from store.letters(topic, partition, start=start, until=selection.until)


def why_not(
    letter: DeadLetter, row: FenceRow, topics: Sequence[str], topic_ids: Mapping[str, str], *, to_topic: str | None
) -> str | None:
    """Return why a letter's record cannot go to Kafka again, None when it can.

    `topic_ids` are Kafka's now; a topic that it does not name is left to the producer.
    """
    now = topic_ids.get(letter.topic, letter.topic_id)
    if now != letter.topic_id and to_topic is None:
        return (
            f"topic {letter.topic} was deleted and created again since: its id is {now}, the record's topic had"
            f" {letter.topic_id or 'none'}; if the record belongs into the new one, say --to-topic {letter.topic}"
        )
    committed = row.offsets.get(offset_key(letter.topic, letter.partition))
    is_of_row = row.topic_ids.get(letter.topic, "") == letter.topic_id
    if is_of_row and committed is not None and letter.offset >= committed:
        return f"the pipeline has not committed beyond it (committed {committed}) and reads it again automatically"
    if to_topic is None and letter.topic not in topics:
        return f"the pipeline no longer reads topic {letter.topic}: choose one with --to-topic"
    return _what_it_lacks(letter)


def _what_it_lacks(letter: DeadLetter) -> str | None:
    """Return why a letter does not hold the record that the driver wrote, None when it does."""
    if not letter.is_whole or len(letter.value or b"") != (letter.value_size or 0):
        return "the letter does not hold all of it: copy the record from its topic while Kafka has it"
    if letter.value is not None and hashlib.sha256(letter.value).hexdigest() != letter.value_sha256:
        return "its value is not the one that the driver wrote: the SHA-256 differs"
    if headers_of(letter) is None:
        return "its headers are not what the driver wrote"
    return None


def again(letter: DeadLetter, pipeline: str, *, to_topic: str | None) -> NewRecord:
    """Return the record that repeats a letter's, in its own partition where it stays in its topic."""
    given = headers_of(letter) or ()
    before: Mapping[str, bytes | None] = dict(given)
    origin = before.get(ORIGIN) or f"{offset_key(letter.topic, letter.partition)}/{letter.offset}".encode()
    retries = (before.get(RETRIES) or b"").decode(errors="replace")
    own: list[Header] = [
        (ORIGIN, origin),
        (PIPELINE, pipeline.encode()),
        (RETRIES, str(int(retries) + 1 if _is_count(retries) else 1).encode()),
    ]
    if letter.timestamp is not None:
        first = before.get(TIMESTAMP) or str(round(letter.timestamp.timestamp() * 1000)).encode()
        own.append((TIMESTAMP, first))
    stays = to_topic is None or to_topic == letter.topic
    return NewRecord(
        topic=to_topic or letter.topic,
        partition=letter.partition if stays else None,
        key=letter.key,
        value=letter.value,
        headers=(*(header for header in given if header[0] not in _OWN), *own),
    )


def headers_of(letter: DeadLetter) -> tuple[Header, ...] | None:
    """Return the record's headers, None when the letter holds something that no driver writes."""
    try:
        pairs = json.loads(letter.headers or "[]")
        return tuple((_name(name), None if content is None else _bytes(content)) for name, content in pairs)
    except (ValueError, TypeError, RecursionError, binascii.Error):
        return None


def _name(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError
    return value


def _bytes(value: object) -> bytes:
    if not isinstance(value, str):
        raise TypeError
    return base64.b64decode(value, validate=True)


def _is_count(text: str) -> bool:
    return text.isascii() and text.isdecimal() and len(text) <= 6  # noqa: PLR2004 - digits
