"""`fencepost sample`: records of a pipeline's topics, as a file for tests and local runs."""

from __future__ import annotations

import os
import secrets
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Final

import typer

from fencepost.batch import Range
from fencepost.contract import Reason, offset_key
from fencepost.local.record_lines import FileRecord, line_of
from fencepost_cli.commands.options import Needs, Target, of_pipeline, parse_place
from fencepost_cli.commands.output import Column, note, number, print_json, print_line, print_table, working
from fencepost_cli.errors import CliError
from fencepost_cli.masking import Masking, parse_masks
from fencepost_cli.sampling import around as ranges_around
from fencepost_cli.sampling import newest

MASK_KEY: Final = "FENCEPOST_MASK_KEY"
"""The variable with the secret of the masks."""
MOST: Final = 10_000_000
"""Offsets of one sample."""
MEBIBYTE: Final = 1024 * 1024
LINES: Final = ".jsonl"
PARQUET: Final = ".parquet"
REPORT_EVERY: Final = 1_000
"""Records between two reports of progress."""


@of_pipeline(Needs.FENCE, Needs.KAFKA)
def sample(
    target: Target,
    *,
    records: Annotated[int, typer.Option("--records", min=1, max=MOST, help="How many offsets, together.")] = 1_000,
    around: Annotated[
        str | None,
        typer.Option(
            "--around",
            metavar="TOPIC/PARTITION@OFFSET",
            help="Those before and after this record. [default: the last committed ones of each partition]",
        ),
    ] = None,
    mask: Annotated[
        list[str] | None,
        typer.Option("--mask", metavar="FIELD", help="Replace key, value.FIELD or headers.NAME; may be repeated."),
    ] = None,
    into: Annotated[
        Path | None,
        typer.Option("--into", metavar="FILE", help="A new file, .jsonl or .parquet. [default: TOPIC.jsonl]"),
    ] = None,
    max_mib: Annotated[
        int, typer.Option("--max-mib", min=1, max=64 * 1024, help="MiB of keys, values and headers, at most.")
    ] = 64,
) -> None:
    """Write records of a pipeline's topics to a file that `run --local` and tests read."""
    path = _path(target, into)
    masking = Masking(parse_masks(mask or ()), _mask_key(is_used=bool(mask)))
    place = parse_place(around, "--around") if around else None
    ranges, left_out = _ranges(target, records, place)
    found = _Sample(masking, left_out, max_mib * MEBIBYTE)
    with _new_file(path, LINES) as new:
        with (
            working("reading Kafka") as progress,
            new.open("w", encoding="utf-8", newline="") as lines,
            closing(target.ports.records(target.kafka, ranges)) as read,
        ):
            for line in found.lines(read):
                lines.write(f"{line}\n")
                if found.count % REPORT_EVERY == 0:
                    progress.show(f"{found.count:,} records")
        found.check()
        if path.suffix == LINES:
            new.rename(path)
        else:
            with working("writing Parquet"), _new_file(path, PARQUET) as other:
                target.ports.parquet(new, other)
                other.rename(path)
    _print(target, found, ranges, path)


@dataclass(slots=True)
class _Sample:
    """What is written, up to `most` bytes."""

    masking: Masking
    left_out: frozenset[tuple[str, int]]
    """The partition and offset of records that the pipeline leaves out."""
    most: int
    size: int = 0
    is_cut: bool = False
    skipped: int = 0
    counts: Counter[str] = field(default_factory=Counter)

    @property
    def count(self) -> int:
        """Records so far."""
        return self.counts.total()

    def lines(self, records: Iterator[FileRecord]) -> Iterator[str]:
        """Yield the lines of records. Raises CliError for one that cannot be masked."""
        for record in records:
            key = offset_key(record.topic or "", record.partition)
            if (key, record.offset) in self.left_out:
                self.skipped += 1
                continue
            if self.size + record.size > self.most:
                self.is_cut = True
                return
            self.size += record.size
            self.counts[key] += 1
            yield line_of(self.masking.apply(record))

    def check(self) -> None:
        """Raise CliError for a sample without records, and for a mask without a field."""
        if not self.count:
            if self.is_cut:
                raise CliError("the first record is larger than --max-mib", remedy="raise --max-mib")
            raise CliError(
                "these offsets have no record: they were compacted, or are markers of transactions",
                remedy="choose more with --records, or others with --around",
            )
        self.masking.check_used()


def _ranges(
    target: Target, records: int, place: tuple[str, int, int] | None
) -> tuple[list[Range], frozenset[tuple[str, int]]]:
    """Return what to read, and the records of it that the pipeline leaves out. Raises CliError."""
    with target.store() as store, working("reading the fence"):
        row, accepted = store.row(), store.accepted()
    with working("asking Kafka"):
        log = target.watermarks()
    if log.missing:
        raise CliError(
            f"Kafka has no topic {', '.join(sorted(log.missing))}",
            remedy="create it, or correct spec.source.kafka.topics",
        )
    if place is not None:
        return ranges_around(place, log, records), frozenset()
    ranges = newest(None if row is None or row.is_released else row, log, records)
    if not ranges:
        raise CliError(
            "Kafka has no record that the pipeline has committed",
            remedy="wait for the first commit, or choose records with --around",
        )
    skipped = {
        (loss.partition, loss.start)
        for loss in accepted
        if loss.reason == Reason.POISON_RECORD and loss.topic_id in log.topic_ids.values()
    }
    return ranges, frozenset(skipped)


def _path(target: Target, into: Path | None) -> Path:
    """Return the file, which does not exist. Raises CliError."""
    topics = target.spec.source.kafka.topics
    # A topic's name may begin as a hidden file's or an option's does.
    topic = topics[0].lstrip(".-") if len(topics) == 1 else ""
    path = into or Path(f"{topic or target.key.name}.jsonl")
    if path.suffix not in {LINES, PARQUET}:
        raise CliError(f"--into {path} is neither JSON lines nor Parquet", remedy="end it with .jsonl or .parquet")
    if path.exists():
        raise CliError(f"{path} exists", remedy="name another file with --into, or delete it first")
    if not path.parent.is_dir():
        raise CliError(f"--into {path}: folder {path.parent} does not exist", remedy="create it first")
    return path


@contextmanager
def _new_file(path: Path, suffix: str) -> Iterator[Path]:
    """Yield a file beside `path`, which only this account may read; it is deleted unless it gets another name."""
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}-", suffix=suffix)
    os.close(handle)
    try:
        yield Path(name)
    finally:
        Path(name).unlink(missing_ok=True)


def _mask_key(*, is_used: bool) -> bytes:
    if key := os.environ.get(MASK_KEY):
        return key.encode()
    if is_used:
        note(f"the masks are those of this sample alone: set {MASK_KEY} to a secret for the same ones in each sample")
    return secrets.token_bytes(32)


def _print(target: Target, found: _Sample, ranges: Sequence[Range], path: Path) -> None:
    parts = [(part.key, part.start, part.until, found.counts[part.key]) for part in ranges]
    if target.is_json:
        names = ("partition", "from", "until", "records")
        print_json(
            {
                "file": str(path),
                "records": found.count,
                "bytes": found.size,
                "isCut": found.is_cut,
                "leftOut": found.skipped,
                "masked": [str(mask) for mask in found.masking.masks],
                "partitions": [dict(zip(names, part, strict=True)) for part in parts],
            }
        )
        return
    print_table([Column("PARTITION"), number("FROM"), number("UNTIL"), number("RECORDS")], parts)
    print_line(f"{found.count:,} records are in {path}")
    if found.skipped:
        note(f"{found.skipped:,} that the pipeline leaves out are not (fencepost dead-letters skip)")
    if found.is_cut:
        note(f"the sample ended at {found.most // MEBIBYTE:,} MiB: --max-mib allows more")
