"""The decoding of a pipeline's source, with the schemas to read with."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from fencepost.contract import KafkaSource, Reason
from fencepost.errors import BadSpec
from fencepost.formats.access import Access
from fencepost.formats.decoding import AS_BYTES, Decoding, decoded_column


def open_decoding(source: KafkaSource, folder: Path, *, patience: float, task_patience: float) -> Decoding:
    """Ask for the schemas that the source declares; `folder` has the registry's credentials, if it is there.

    `patience` is for these questions, and `task_patience` for those of each task, in seconds. Raises BadSpec,
    DependencyDown.
    """
    declared = {name: each for name, each in (("key", source.key), ("value", source.value)) if each is not None}
    if not declared:
        return AS_BYTES
    if source.schema_registry is None:
        raise BadSpec(
            f"spec.source.kafka.{min(declared)} is there without spec.source.kafka.schemaRegistry",
            reason=Reason.SCHEMA_INVALID,
            remedy="Add schemaRegistry.",
        )
    access = Access.of(source.schema_registry.url, folder, field="spec.source.kafka.schemaRegistry.credentialsFrom")
    columns = (decoded_column(name, each, access, patience=patience) for name, each in declared.items())
    return Decoding(tuple(replace(column, patience=task_patience) for column in columns))
