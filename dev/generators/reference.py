"""Write docs/reference.md from the CRDs, so that it cannot say anything else; `make reference` runs it."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import yaml

from fencepost.contract import kafka_properties, spark_conf
from fencepost_operator.api.effects import declared_effects
from fencepost_operator.api.spec import Spec

ROOT: Final = Path(__file__).resolve().parents[2]
CRD: Final = ROOT / "crds/streamingpipelines.streaming.fencepost.dev.yaml"
REWINDS: Final = ROOT / "crds/pipelinerewinds.streaming.fencepost.dev.yaml"
TRIALS: Final = ROOT / "crds/pipelinetrials.streaming.fencepost.dev.yaml"
REFERENCE: Final = ROOT / "docs/reference.md"

HEAD: Final = """# Every field of a StreamingPipeline

`apiVersion: streaming.fencepost.dev/v1beta1`, `kind: StreamingPipeline`, short name `spl`. The same text is in the
cluster: `kubectl explain spl.spec.source.kafka`. This page is written from the CRDs (`make reference`).
"""
REWIND_HEAD: Final = """# Every field of a PipelineRewind

`kind: PipelineRewind`, short name `rw`: see [Rewind](operations.md#rewind).
"""
TRIAL_HEAD: Final = """# Every field of a PipelineTrial

`kind: PipelineTrial`, short name `tr`: see [Trial](authors.md#try-new-code-first).
"""

WHOLE: Final = {"spec.cluster.affinity", "spec.cluster.tolerations"}
"""Fields that are Kubernetes' own types: their inside is in Kubernetes' reference."""


def render(crd: dict[str, Any], rewinds: dict[str, Any], trials: dict[str, Any]) -> str:
    """Return the page for the CRDs, of the version that is stored."""
    schema, rewind, trial = _schema(crd), _schema(rewinds), _schema(trials)
    return "\n".join(
        [
            HEAD,
            *_section("spec", schema["spec"]),
            "",
            *_effects(),
            "",
            *_section("status", schema["status"]),
            "",
            *_kafka_properties(),
            "",
            *_spark_settings(),
            "",
            REWIND_HEAD,
            *_section("spec", rewind["spec"]),
            "",
            *_section("status", rewind["status"]),
            "",
            TRIAL_HEAD,
            *_section("spec", trial["spec"]),
            "",
            *_section("status", trial["status"]),
            "",
        ]
    )


def _schema(crd: dict[str, Any]) -> dict[str, Any]:
    properties: dict[str, Any] = crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]
    return properties


def _effects() -> Iterator[str]:
    yield "## What a change of a field does\n"
    yield (
        "A field that is not here does what the object does that it is in. Other content of a ConfigMap or Secret that"
        " the spec names starts a new run, on a new Spark cluster where the code or its environment comes from it. In a"
        " stateful pipeline the fields of `checkpoint` and its Secrets do that too: the data service beside each worker"
        " uses them."
        " Labels and annotations of the object restart nothing."
    )
    yield "\n| field | what a change does |\n|---|---|"
    for path, effect in sorted(declared_effects(Spec)):
        yield f"| `{path}` | {effect} |"


def _kafka_properties() -> Iterator[str]:
    yield "## Kafka properties\n"
    yield (
        "`source.kafka.properties` and the Secret of `source.kafka.propertiesFrom` may set these properties of"
        " librdkafka. Any other property is refused by name."
    )
    lists = (
        ("Used by the operator and the driver", kafka_properties.ALLOWED),
        ("Used by the driver, and ignored by the operator", kafka_properties.READER),
        (
            "Used by the driver only. The operator does not connect to Kafka then; lag comes from the driver's commits",
            kafka_properties.DRIVER_ONLY,
        ),
        ("Only allowed in the Secret", kafka_properties.SECRETS),
        ("Set by Fencepost, and refused", kafka_properties.RESERVED),
    )
    for title, keys in lists:
        yield f"\n{title}: {', '.join(f'`{key}`' for key in sorted(keys))}."


def _spark_settings() -> Iterator[str]:
    yield "## Spark settings\n"
    reserved = sorted({*spark_conf.RESERVED_KEYS, *(f"{prefix}*" for prefix in spark_conf.RESERVED_PREFIXES)})
    yield f"Set by Fencepost, and refused in `cluster.sparkConf`: {', '.join(f'`{key}`' for key in reserved)}."
    of_state = ", ".join(f"`{prefix}*`" for prefix in spark_conf.RESERVED_WITH_STATE)
    yield f"\nRefused with `job.mode: Stateful` as well: {of_state}."


def _section(name: str, schema: dict[str, Any]) -> Iterator[str]:
    yield f"## {name}\n"
    yield "| field | type | default | what it is |\n|---|---|---|---|"
    for path, field, required in _fields(name, schema):
        default = f"`{_literal(field['default'])}`" if "default" in field else ("required" if required else "")
        yield f"| `{path.removeprefix(name + '.')}` | {_type(field)} | {default} | {_cell(field)} |"


def _fields(path: str, schema: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any], bool]]:
    required = set(schema.get("required", ()))
    for name, field in schema.get("properties", {}).items():
        inner = f"{path}.{name}"
        yield inner, field, name in required
        if inner in WHOLE:
            continue
        if "properties" in field:
            yield from _fields(inner, field)
        elif "properties" in field.get("items", {}):
            yield from _fields(f"{inner}[]", field["items"])


def _type(field: dict[str, Any]) -> str:
    if "enum" in field:
        return " or ".join(str(value) for value in field["enum"])
    if field.get("x-kubernetes-int-or-string"):
        return "quantity"
    if field.get("type") == "array":
        return f"list of {_type(field['items'])}"
    if "additionalProperties" in field:
        return f"map to {_type(field['additionalProperties'])}"
    return str(field.get("type", ""))


def _literal(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _cell(field: dict[str, Any]) -> str:
    words = " ".join(str(field.get("description", "")).split())
    bounds = [f"{word} {field[key]}" for key, word in (("minimum", "at least"), ("maximum", "at most")) if key in field]
    return (f"{words} ({', '.join(bounds)})" if bounds else words).replace("|", "\\|")


if __name__ == "__main__":
    sys.stdout.write(render(*(yaml.safe_load(path.read_text()) for path in (CRD, REWINDS, TRIALS))))
