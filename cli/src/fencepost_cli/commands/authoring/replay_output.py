"""What `fencepost replay` prints beside the rows: the batch, its code, and how the rows compare with the tables."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fencepost_cli.commands.output import Column, note, number, print_fields, print_line, print_table
from fencepost_cli.history.past_batch import Found
from fencepost_cli.history.table_rows import Comparison


def describe(past: Found, records: int, said: str) -> None:
    """Print the batch; `said` is of its code."""
    row = past.row
    print_fields(
        {
            "Batch": f"begun on version {row.version} of epoch {row.epoch}"
            + (f", committed as version {past.committed}" if past.committed else ", not committed"),
            "Offsets": ", ".join(f"{part.key} [{part.start}, {part.until})" for part in past.ranges),
            "Records": records,
            "Token": str(row.write_timestamp),
            "Repeated": past.is_repeated,
            "Code": said,
        }
    )
    print_line()


def facts(past: Found, results: Sequence[Comparison]) -> dict[str, Any]:
    """Return the batch and the comparisons for a script."""
    return {
        "pipeline": past.row.pipeline,
        "version": past.row.version,
        "committed": past.committed,
        "epoch": past.row.epoch,
        "token": past.row.write_timestamp,
        "isRepeated": past.is_repeated,
        "offsets": {part.key: {"from": part.start, "until": part.until} for part in past.ranges},
        "tables": [
            {
                "table": one.table,
                "skipped": one.skipped,
                "equal": one.equal,
                "changed": one.changed,
                "missing": one.missing,
                "newer": one.newer,
                "notCompared": one.left_out,
                "rowsBeyond": one.beyond,
            }
            for one in results
        ],
    }


def print_comparisons(results: Sequence[Comparison]) -> None:
    """Print how many rows are equal, and the first ones that are not."""
    if read := [one for one in results if not one.skipped]:
        print_table(
            [Column("TABLE"), *map(number, ("EQUAL", "CHANGED", "MISSING", "NEWER"))],
            [(one.table, one.equal, one.changed, one.missing, one.newer) for one in read],
        )
    for one in results:
        if one.skipped:
            note(f"{one.table} is not compared: {one.skipped}")
        if one.left_out:
            note(f"{one.table}: not compared are {', '.join(one.left_out)}, whose types have no equal in SQLite")
        if one.beyond:
            note(f"{one.table}: {one.beyond:,} more rows were not looked up")
        for each in one.differences:
            key = ", ".join(f"{name} {value}" for name, value in zip(one.key, each.key, strict=True))
            what = "is not there" if each.column is None else f"{each.column} is {each.there}, and again {each.again}"
            print_line(f"{one.table}, {key}: {what}")
