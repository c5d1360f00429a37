"""What the command line says to a program that measures, and what such a program has done already."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from bench.samples import commit_id

FOLDER: Final = Path(".cache/bench")


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """`rows`, `rounds` and `pipelines` replace the program's own; `only` names parts of it; `again` forgets what was
    measured.

    `before_job` and `before_operator` are images of an earlier build, to be measured in turns with this one.
    """

    into: Path = FOLDER
    rows: int | None = None
    rounds: int | None = None
    only: tuple[str, ...] = ()
    again: bool = False
    pipelines: int | None = None
    before_job: str | None = None
    before_operator: str | None = None

    def chosen(self, parts: Iterator[str] | list[str]) -> list[str]:
        """Return those of a program's parts that are to be measured, in its order. Raises ValueError for another."""
        known = list(parts)
        if unknown := [name for name in self.only if name not in known]:
            raise ValueError(f"--only {unknown[0]}: unknown part; one of {'; '.join(known)}")
        return [name for name in known if not self.only or name in self.only]


@dataclass(frozen=True, slots=True)
class Journal:
    """Each part's figures, a line of JSON, written as soon as they are there: an interrupted program resumes from it.

    `conditions` are part of every line; lines of other conditions count as not measured.
    """

    path: Path
    conditions: Mapping[str, str | int | float]

    @classmethod
    def of(cls, name: str, options: Options, conditions: Mapping[str, str | int | float]) -> Journal:
        """Open the journal of a program; with `again` the parts that will be measured are taken out of it."""
        journal = cls(options.into / f"{name}.jsonl", dict(conditions))
        if options.again and journal.path.is_file():
            kept = [
                line for line in journal.path.read_text().splitlines() if options.only and not _of(line, options.only)
            ]
            journal.path.write_text("".join(f"{line}\n" for line in kept))
        return journal

    def add(self, part: str, number: int, **figures: Any) -> None:
        """Note the figures of a part in a round."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        line = {
            "part": part,
            "round": number,
            "at": datetime.now(UTC).isoformat(timespec="seconds"),
            "commit": commit_id(),
            "conditions": dict(self.conditions),
            **figures,
        }
        with self.path.open("a") as file:
            file.write(json.dumps(line) + "\n")

    def lines(self, part: str) -> list[dict[str, Any]]:
        """Return what is known of a part, by round ascending; the newest line of a round counts."""
        if not self.path.is_file():
            return []
        found: dict[int, dict[str, Any]] = {}
        for text in self.path.read_text().splitlines():
            try:
                line = json.loads(text)
            except ValueError:
                continue  # the write of a line was interrupted
            if line["part"] == part and line["conditions"] == self.conditions:
                found[line["round"]] = line
        return [found[number] for number in sorted(found)]

    def has(self, part: str, number: int) -> bool:
        """Whether a part was measured in a round."""
        return any(line["round"] == number for line in self.lines(part))


def _of(text: str, parts: tuple[str, ...]) -> bool:
    try:
        return json.loads(text)["part"] in parts
    except ValueError:
        return True
