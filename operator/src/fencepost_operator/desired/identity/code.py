"""What decides how records become rows: the code as the fence row names it, and whether two specs write the same."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

from fencepost_operator.api import SourceSpec, Spec, is_revision_of
from fencepost_operator.api.codec import encode
from fencepost_operator.desired.identity.hashes import code_hash, config_map_hashes, digest

_SHAPING: Final = ("spark.sql.", "spark.executorEnv.")
"""Prefixes of Spark's properties that author's code may compute rows from."""
_ISOLATION: Final = "isolation.level"
"""Kafka's property that decides whether records of aborted transactions are read."""


def code_text(spec: Spec, references: Mapping[str, str | None], revision: str = "") -> str:
    """Return what identifies the code in the fence row and its history; the revision of its spec is the last word."""
    parts = (spec.job.image, spec.job.entrypoint, code_hash(spec, references), revision)
    return " ".join(part for part in parts if part)


def revision_in(pipeline: str, code: str | None) -> str:
    """Return the revision that a fence row's code names, '' for one of an older release."""
    last = (code or "").rpartition(" ")[2]
    return last if is_revision_of(pipeline, last) else ""


def tasks_image(spec: Spec) -> str:
    """Return the image whose code processes the records: that of the workers, or without them the driver's."""
    return (spec.cluster.image if spec.cluster.exists else None) or spec.job.image


def has_fixed_images(spec: Spec) -> bool:
    """Return whether a digest names each image: a tag may name another image by now."""
    return all("@sha256:" in image for image in (spec.job.image, tasks_image(spec)))


def code_identity(spec: Spec) -> str:
    """Return the hash of what a spec says of its code: where it is, and with which arguments it is called."""
    job = spec.job
    return digest(
        {
            "images": [job.image, tasks_image(spec)],
            "code": [job.entrypoint, list(job.args), job.code_config_map],
        }
    )


def tried_identity(spec: Spec, references: Mapping[str, str | None]) -> str:
    """Return the hash of what a trial of an upgrade says something of: which rows are compared, and of which records.

    What it must find is not a part of it: a trial that has ended is judged again by other bounds.
    """
    asked = spec.upgrade.trial
    return digest(
        {
            "output": output_shape(spec, references),
            "since": asked.since,
            "compare": encode(asked.compare),
            "limits": encode(asked.limits),
        }
    )


def output_shape(spec: Spec, references: Mapping[str, str | None]) -> str:
    """Return the hash of everything that decides which rows a record produces; sizes and connections do not count."""
    job, cluster = spec.job, spec.cluster
    content: dict[str, Any] = {
        "images": [job.image, tasks_image(spec)],
        "code": [job.entrypoint, list(job.args), job.code_config_map],
        "environment": encode([job.env, job.env_from]),
        "spark": _shaping(cluster.spark_conf),
        "outputMode": spec.stateful.output_mode if spec.stateful else "",
        "isolation": spec.source.kafka.properties.get(_ISOLATION, ""),
        "formats": [encode(each) for each in (spec.source.kafka.key, spec.source.kafka.value)],
        "sinks": encode(spec.sinks),
        "configMaps": config_map_hashes(spec, references),
    }
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:16]


def _shaping(spark_conf: Mapping[str, str]) -> dict[str, str]:
    return {key: value for key, value in spark_conf.items() if key.startswith(_SHAPING)}


def finishing_spec(old: Spec, new: Spec) -> Spec:
    """Return the spec with which old code finishes its batch: what it writes is the old spec's, all else the new one's.

    Of the new spec are the connections and the sizes: a password may have been replaced since, and a batch that did not
    fit into memory fits now.
    """
    job = replace(
        new.job,
        image=old.job.image,
        entrypoint=old.job.entrypoint,
        code_from=old.job.code_from,
        args=old.job.args,
        env=old.job.env,
        env_from=old.job.env_from,
    )
    sizes = {key: value for key, value in new.cluster.spark_conf.items() if not key.startswith(_SHAPING)}
    spark_conf = {**sizes, **_shaping(old.cluster.spark_conf)}
    cluster = replace(new.cluster, image=old.cluster.image, spark_conf=spark_conf)
    before, after = old.source.kafka, new.source.kafka
    properties = {key: value for key, value in after.properties.items() if key != _ISOLATION}
    if _ISOLATION in before.properties:
        properties[_ISOLATION] = before.properties[_ISOLATION]
    kafka = replace(
        after,
        topics=before.topics,
        properties=properties,
        schema_registry=after.schema_registry or before.schema_registry,
        key=before.key,
        value=before.value,
    )
    kept, state = old.stateful, new.stateful
    if kept is not None and state is not None:
        state = replace(state, output_mode=kept.output_mode)
    return replace(new, job=job, cluster=cluster, source=SourceSpec(kafka=kafka), sinks=old.sinks, state=state)
