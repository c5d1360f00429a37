"""The manifests of a sink of files: JSON files that list the batches and their files, and which of them are visible.

The name of a manifest is `<token>-<previous>.json`: the token of its newest batch, and that of the batch before its
oldest one, 0 before the first one.  A batch puts one of its own; from time to time, one manifest replaces many that
follow each other, and `<token>-<previous>-<compacted>.json` replaces one by larger files.  A purge leaves
`<token>-purge.json`, which names the manifests that stay.  The newest manifest and those that it leads to are visible.
So one file, which the store creates whole or not at all, replaces what a driver wrote that did not commit it, and what
a replaced driver writes late leads nowhere.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal, Self

import msgspec

MANIFESTS: Final = "_manifests"
"""The folder of the manifests of all sinks with this path: `<pipeline>/<sink>/` are its folders."""
TASKS: Final = "_tasks"
"""The folder in which tasks list their files until the batch has its manifest."""
Format = Literal["parquet", "jsonLines"]
SUFFIXES: Final[Mapping[Format, str]] = {"parquet": "parquet", "jsonLines": "jsonl"}
_NAME: Final = re.compile(r"(?P<token>[0-9]{20})-(purge|(?P<previous>[0-9]{20})(-(?P<compacted>[0-9]{20}))?)\.json")


class DataFile(msgspec.Struct, frozen=True, kw_only=True):
    """A file of rows: its path below that of the sink, and the values of its folders' columns as text."""

    path: str
    rows: int
    size: int
    folders: dict[str, str | None] = msgspec.field(default_factory=dict)


class Batch(msgspec.Struct, frozen=True, kw_only=True):
    """What a batch wrote, without what a purge deleted of it. `offsets` maps 'topic/partition' to [start, until)."""

    epoch: int
    token: int
    offsets: dict[str, tuple[int, int]]
    format: Format
    files: tuple[DataFile, ...]

    @property
    def rows(self) -> int:
        """Rows in all files."""
        return sum(file.rows for file in self.files)


class Manifest(msgspec.Struct, frozen=True, kw_only=True):
    """Batches, the newest first. `kept`, of a purge: the names of the older manifests that are visible too."""

    pipeline: str
    sink: str
    batches: tuple[Batch, ...]
    kept: tuple[str, ...] = ()


def encode(content: object) -> bytes:
    """Return what `decode` reads."""
    return msgspec.json.encode(content)


def decode(content: bytes) -> Manifest:
    """Return a manifest. Raises msgspec.MsgspecError."""
    return msgspec.json.decode(content, type=Manifest)


@dataclass(frozen=True, slots=True)
class Entry:
    """The name of a manifest. `previous` is None of a purge."""

    token: int
    previous: int | None
    compacted: int = 0
    """The token of the batch before which it was compacted, 0 without that."""

    @classmethod
    def of_name(cls, name: str) -> Self | None:
        """Return the entry of a file name, None for any other file."""
        found = _NAME.fullmatch(name)
        if found is None:
            return None
        token, previous, compacted = found["token"], found["previous"], found["compacted"]
        return cls(int(token), None if previous is None else int(previous), int(compacted or 0))

    @property
    def name(self) -> str:
        """The file name."""
        compacted = f"-{self.compacted:020d}" if self.compacted else ""
        return f"{self.token:020d}-{'purge' if self.previous is None else f'{self.previous:020d}{compacted}'}.json"

    @property
    def span(self) -> tuple[int, int | None]:
        """What it has in common with the manifest that it replaces after a compaction."""
        return self.token, self.previous

    def spans(self, token: int) -> bool:
        """Return whether the batch with a token could be in this manifest."""
        return (self.previous or 0) < token <= self.token


def by_token(entries: Iterable[Entry]) -> dict[int, Entry]:
    """Return the entry of each token: of several, the one that replaces the others.

    That has the oldest batches, and was compacted last.
    """
    ranked = sorted(entries, key=lambda entry: (-(entry.previous or 0), entry.compacted))
    return {entry.token: entry for entry in ranked}


def chain(entries: Iterable[Entry], newest: int) -> list[Entry]:
    """Return the manifests to which one leads, newest first, with a purge as the last one."""
    known = by_token(entries)
    found: list[Entry] = []
    token: int | None = newest
    while token and token in known and (not found or token < found[-1].token):
        found.append(known[token])
        token = known[token].previous
    return found


def gap(found: Sequence[Entry]) -> int:
    """Return the token at which a chain ends although older batches are named, 0 where it is whole.

    A list of files that is made while manifests are replaced may lack the old ones and the new one.
    """
    return found[-1].token if found and found[-1].previous else 0


def head(entries: Iterable[Entry]) -> int:
    """Return the token of the newest manifest, 0 without one."""
    return max((entry.token for entry in entries), default=0)


def committed_head(entries: Iterable[Entry], committed: int) -> int:
    """Return the token of the manifest that the next batch follows, 0 without one.

    `committed` is the token of the last committed batch.  A manifest of a later batch is not committed.  A manifest
    that follows such a one shows that the fence has forgotten its commits: then all that is there counts.
    """
    found = by_token(entries)
    purges = {token for token, entry in found.items() if entry.previous is None}
    if any((entry.previous or 0) > committed and entry.previous not in purges for entry in found.values()):
        return head(found.values())
    newest_purge = max(purges, default=0)
    return max(newest_purge, max((token for token in found if token <= committed), default=0))
