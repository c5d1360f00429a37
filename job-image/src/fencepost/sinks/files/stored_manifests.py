"""The manifests of one sink in its store, and one in place of many.

A run of 100 manifests is folded into one, which grows to about 1 MiB before the next one begins.  So a list of the
manifests is short, and a reader opens few files, however many batches there were.  The folded manifest is put first;
then those that it replaces go.  A driver that ends in between leaves manifests that nothing leads to.

A replaced driver may do the same late.  It folds what lies below a committed batch that its successor had seen, down
to the same full manifest.  So what both have made is nested, and of two with one token, that with the older batches
counts.  This needs FULL never to become smaller, and that where a manifest is full depends on its batches alone.  So
a replaced driver never folds a full manifest otherwise than its successor, whose `compaction` then counts.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from itertools import takewhile
from pathlib import PurePosixPath
from typing import Final

from fencepost.sinks.files.manifest import (
    MANIFESTS,
    Entry,
    Manifest,
    chain,
    committed_head,
    decode,
    encode,
    gap,
    head,
)
from fencepost.sinks.files.store import Store

MANY: Final = 100
"""Manifests that follow each other are folded once there are so many that are not full."""
FULL: Final = 1024 * 1024
"""Bytes of batches from which a manifest is neither folded nor copied. A later version may have a larger bound, but no
smaller."""
ATTEMPTS: Final = 5
"""Lists of the store until a gap is not a manifest that is replaced meanwhile, but one that is not there."""
PAUSE: Final = 0.1
"""Seconds between them."""
_TOGETHER: Final = 16
"""Manifests that are read at the same time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    """The manifests as a list of the store shows them."""

    sizes: Mapping[Entry, int]
    """All of them, and the bytes of their batches, with a comma after each: a fold has as many as what it replaces."""
    led_to: tuple[Entry, ...]
    """The newest one and those that it leads to, newest first."""
    kept: tuple[Entry, ...] = ()
    """Those that the purge at the end of these has kept."""

    @property
    def visible(self) -> tuple[Entry, ...]:
        """What a reader reads."""
        return self.led_to + self.kept

    def is_full(self, entry: Entry) -> bool:
        """Return whether a manifest stays as it is: no driver folds it, and a purge of others keeps it."""
        return entry.compacted > 0 or self.sizes[entry] >= FULL

    @property
    def compacted(self) -> dict[Entry, Entry]:
        """Manifests that are kept beside those that replace them, and these."""
        winners = {entry.span: entry for entry in self.visible if entry.compacted}
        return {entry: winners[entry.span] for entry in self.sizes if winners.get(entry.span, entry) != entry}

    def stale(self, before: int) -> list[Entry]:
        """Return what is neither visible nor kept beside it of the manifests before a token.

        Nothing is known of those before a gap.
        """
        shown, missing = {*self.visible, *self.compacted}, gap(self.led_to)
        return [entry for entry in self.sizes if missing < entry.token < before and entry not in shown]


@dataclass(frozen=True, slots=True)
class Manifests:
    """The manifests of a sink. Methods raise OSError, pa.ArrowException."""

    store: Store
    owner: str
    """`<pipeline>/<sink>`."""

    def of_newest(self) -> View:
        """List all manifests."""
        return self._view(None, None)

    def of_committed(self, committed: int, *, before: int | None = None) -> View:
        """List the manifests as of the last committed batch, optionally without those from a token on."""
        return self._view(committed, before)

    def read(self, entries: Iterable[Entry]) -> Iterator[Manifest]:
        """Yield manifests in their order. Raises FileNotFoundError for one that was replaced meanwhile."""
        paths = [self.path(entry) for entry in entries]
        with ThreadPoolExecutor(_TOGETHER) as threads:
            for start in range(0, len(paths), _TOGETHER):
                yield from map(decode, threads.map(self.store.read, paths[start : start + _TOGETHER]))

    def put(self, entry: Entry, manifest: Manifest) -> None:
        """Create a manifest whole."""
        self.store.put(self.path(entry), encode(manifest))

    def delete(self, entries: Iterable[Entry]) -> None:
        """Delete manifests; their files stay."""
        self.store.delete(map(self.path, entries))

    def path(self, entry: Entry) -> str:
        """Return the name of a manifest in the store."""
        return f"{MANIFESTS}/{self.owner}/{entry.name}"

    def has(self, view: View, token: int) -> bool:
        """Return whether a batch is visible, or may be: a compaction merges batches."""
        if any(entry.token == token or (entry.compacted and entry.spans(token)) for entry in view.visible):
            return True
        spanning = [entry for entry in view.visible if entry.spans(token)]
        return any(batch.token == token for manifest in self.read(spanning) for batch in manifest.batches)

    def fold(self, committed: int) -> None:
        """Put one manifest in place of those that are not full, where they are many, and again while they are.

        It is made of the oldest ones that are full together, so that a fold takes little memory, however large they
        are.  The newest one stays: it shows that what it follows is committed, whatever the fence has forgotten.
        """
        with suppress(FileNotFoundError):  # a replaced driver has just done the same
            while replaced := _oldest(self.of_committed(committed)):
                found = list(self.read(replaced))
                batches = tuple(batch for manifest in found for batch in manifest.batches)
                made = Manifest(pipeline=found[0].pipeline, sink=found[0].sink, batches=batches)
                folded = Entry(replaced[0].token, replaced[-1].previous)
                self.put(folded, made)
                self.delete(entry for entry in replaced if entry != folded)

    def _view(self, committed: int | None, before: int | None) -> View:
        for attempt in range(ATTEMPTS):
            sizes = {entry: size for entry, size in self._listed().items() if before is None or entry.token < before}
            newest = head(sizes) if committed is None else committed_head(sizes, committed)
            led_to = tuple(chain(sizes, newest))
            if not gap(led_to):
                break
            if attempt < ATTEMPTS - 1:
                time.sleep(PAUSE)
        purges = (entry for entry in led_to[-1:] if entry.previous is None)
        kept = {name for manifest in self.read(purges) for name in manifest.kept}
        return View(sizes=sizes, led_to=led_to, kept=tuple(entry for entry in sizes if entry.name in kept))

    def _listed(self) -> dict[Entry, int]:
        found = self.store.list(f"{MANIFESTS}/{self.owner}").items()
        bare = len(encode(Manifest(pipeline=self.owner, sink="", batches=()))) - 2  # the slash, and a comma too few
        entries = ((Entry.of_name(PurePosixPath(name).name), size - bare) for name, size in found)
        return {entry: size for entry, size in entries if entry is not None}


def _oldest(view: View) -> list[Entry]:
    """Return what is folded into one manifest, newest first; nothing where those that are not full are few."""
    few = takewhile(lambda entry: entry.previous is not None and not view.is_full(entry), view.led_to[1:])
    loose, found, size = list(few), list[Entry](), 0
    if len(loose) < MANY:
        return []
    for entry in reversed(loose):
        found.insert(0, entry)
        size += view.sizes[entry]
        if size >= FULL:
            break
    return found
