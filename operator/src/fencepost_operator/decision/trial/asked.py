"""What the Job of a trial is given."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any

from fencepost.contract.trial import TrialRequest
from fencepost_operator.api import Pipeline, ReconcileConfig, Spec, Trial, TrialSpec
from fencepost_operator.desired import names
from fencepost_operator.desired.jobs.driver_config import driver_config
from fencepost_operator.desired.jobs.trial_job import trial_config, trial_manifests, tried_spec


def manifests(
    trial: Trial,
    asked: TrialSpec,
    pipeline: Pipeline,
    spec: Spec,
    references: Mapping[str, str | None],
    config: ReconcileConfig,
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the Job and the ConfigMap of a trial whose offsets are recorded; `spec` is the pipeline's."""
    tried = tried_spec(spec, asked)
    run = driver_config(key=pipeline.key, spec=tried, references=references, config=config, epoch=0, generation=0)
    return trial_manifests(
        pipeline=pipeline,
        spec=tried,
        config=trial_config(run, spec, asked),
        trial=trial,
        request=_request(trial, asked, spec, names.fence_key(config.scope, pipeline.key)),
    )


def progress_key(trial: Trial, fence_key: str) -> str:
    """Return the partition of `fence_progress` for the trial: no pipeline's key has a `#`."""
    return f"{fence_key}#trial-{hashlib.sha256(trial.uid.encode()).hexdigest()[:16]}"


def compared_sinks(trial: TrialSpec, spec: Spec) -> tuple[str, ...]:
    """Return the names of the Cassandra sinks that are compared."""
    tables = [sink.name for sink in spec.sinks if sink.cassandra is not None]
    return tuple(name for name in tables if not trial.compare.sinks or name in trial.compare.sinks)


def _request(trial: Trial, asked: TrialSpec, spec: Spec, fence_key: str) -> TrialRequest:
    status, compare = trial.status, asked.compare
    return TrialRequest(
        start=status.start,
        until=status.until,
        written_after=status.written_after or 0,
        written_until=status.written_until or 0,
        sinks=compared_sinks(asked, spec),
        ignored=compare.ignore_columns,
        show_values=compare.show_values,
        rows_per_second=compare.max_rows_per_second,
        seconds=asked.limits.max_duration,
        snapshot=status.snapshot if spec.stateful else "",
        progress_key=progress_key(trial, fence_key),
    )
