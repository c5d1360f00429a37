"""`fencepost offsets`."""

from __future__ import annotations

from fencepost_cli.commands.options import Needs, Target, of_pipeline
from fencepost_cli.commands.output import Column, number, print_json, print_table
from fencepost_cli.lag import partitions, total


@of_pipeline(Needs.FENCE, Needs.KAFKA)
def offsets(target: Target) -> None:
    """Show for each partition the log's begin and end, what is committed and planned, and the lag."""
    with target.store() as store:
        row = target.row(store)
    log = target.watermarks()
    parts = partitions(row, log)
    if target.is_json:
        print_json(
            {
                "pipeline": row.pipeline,
                "lag": total(parts),
                "missingTopics": sorted(log.missing),
                "partitions": [
                    {
                        "partition": part.partition,
                        "begin": part.begin,
                        "committed": part.committed,
                        "planned": part.planned,
                        "end": part.end,
                        "lag": part.lag,
                        "lost": part.lost,
                    }
                    for part in parts
                ],
            }
        )
        return
    numbers = ("BEGIN", "COMMITTED", "PLANNED", "END", "LAG", "LOST")
    print_table(
        [Column("PARTITION"), *map(number, numbers)],
        [(p.partition, p.begin, p.committed, p.planned, p.end, p.lag, p.lost) for p in parts],
    )
