"""New code of the departures example, as a PipelineTrial tries it: one version changes rows, one changes none."""

from __future__ import annotations

from typing import Any, Final

from harness.kubernetes.kubectl import Object
from harness.pipelines import code

TRIAL: Final = "pipelinetrials.streaming.fencepost.dev"
UNITED: Final = "UA"
FARTHER: Final = f"""

_transform = transform


def transform(batch, context):
    rows, miles = _transform(batch, context), f.col("distance_miles")
    return rows.withColumn("distance_miles", f.when(f.col("carrier") == "{UNITED}", miles + 1).otherwise(miles))
"""
"""Code that changes the rows of one carrier."""
SAME: Final = "\n# another version\n"
SMALL: Final = {"cpu": "500m", "memory": "2Gi"}
"""Limits of a trial beside a pipeline, on the testbed's nodes."""


def code_of(name: str) -> str:
    """Return the name of the ConfigMap with a trial's code."""
    return f"code-{name}"


def new_code(name: str, change: str) -> Object:
    """Return the ConfigMap with the example's code and a change at its end."""
    example = code()
    modules = {file: text + change for file, text in example["data"].items()}
    return {**example, "metadata": {"name": code_of(name)}, "data": modules}


def job_of(name: str) -> dict[str, Any]:
    """Return `spec.job` of a trial, or a change of a pipeline's, that runs a trial's code."""
    return {"codeFrom": {"configMapName": code_of(name)}}
