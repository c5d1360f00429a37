"""`fencepost offsets`."""

from __future__ import annotations

import typer

from fencepost_cli.lag import partitions, total
from fencepost_cli.options import (
    CassandraOption,
    ContextOption,
    KafkaOption,
    NamespaceOption,
    OutputOption,
    PipelineArgument,
    ScopeOption,
    target,
)
from fencepost_cli.output import Column, Format, number, print_json, print_table


def offsets(  # each is an option of the command line
    context: typer.Context,
    pipeline: PipelineArgument,
    namespace: NamespaceOption = None,
    kubeconfig_context: ContextOption = None,
    output: OutputOption = Format.TABLE,
    scope: ScopeOption = None,
    cassandra: CassandraOption = None,
    kafka: KafkaOption = None,
) -> None:
    """Show for each partition the log's begin and end, what is committed and planned, and the lag."""
    found = target(
        context,
        pipeline,
        namespace=namespace,
        kubeconfig_context=kubeconfig_context,
        scope=scope,
        cassandra=cassandra,
        kafka=kafka,
    )
    with found.store() as store:
        row = found.row(store)
    log = found.watermarks()
    parts = partitions(row, log)
    if output is Format.JSON:
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
