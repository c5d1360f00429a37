"""How much of a spec a run is given: its configuration is one ConfigMap, which Kubernetes limits to 1 MiB."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Final

from fencepost_operator.api.codec import encode
from fencepost_operator.api.spec import Spec, Violation

LONGEST_CONFIG: Final = 1_000_000
"""Bytes of JSON; what is left of a MiB holds what a spec does not set."""


def size_violations(spec: Spec) -> Iterator[Violation]:
    """Yield a violation for each large field of a spec that does not fit."""
    sizes = {
        "spec.job.args": _size(spec.job.args),
        "spec.cluster.sparkConf": _size(dict(spec.cluster.spark_conf)),
        "spec.source.kafka.bootstrapServers": _size(spec.source.kafka.bootstrap_servers),
        "spec.source.kafka.topics": _size(spec.source.kafka.topics),
        "spec.source.kafka.properties": _size(dict(spec.source.kafka.properties)),
        "spec.source.kafka.startingOffsets.partitions": _size(dict(spec.source.kafka.starting_offsets.partitions)),
        "spec.sinks": sum(_size(encode(sink)) for sink in spec.sinks),
        "spec.checkpoint": _size(encode(spec.checkpoint)),
    }
    total = sum(sizes.values())
    if total <= LONGEST_CONFIG:
        return
    for field, size in sizes.items():
        if size > LONGEST_CONFIG // len(sizes):
            yield Violation(
                field,
                f"takes {size} of the {total} bytes of the run's configuration, which may have {LONGEST_CONFIG}",
                "shorten it; large data belongs in the job's image or in the ConfigMap of spec.job.codeFrom",
            )


def _size(value: object) -> int:
    """Return the bytes of a value in the configuration's JSON."""
    return len(json.dumps(value))
