"""The examples of trials: a pull request's workflow is a command line of `fencepost`, and a gate has bounds."""

from __future__ import annotations

import shlex
from dataclasses import replace
from typing import Any

import pytest
import yaml

from fencepost_operator.api import TrialSpec, read_trial_spec
from generators.reference import ROOT
from unit.cli.test_trial import EQUAL, completed, trial
from unit.cli.world import World

FOLDER = ROOT / "examples/trials"
ONE_HOUR = 3600


def documents(name: str) -> list[dict[str, Any]]:
    return list(yaml.safe_load_all((FOLDER / name).read_text()))


@pytest.mark.parametrize(("changed", "code"), [(0, 0), (1, 1)])
def test_the_check_of_a_pull_request_fails_if_a_row_differs(changed: int, code: int) -> None:
    (workflow,) = documents("pull-request.yaml")
    job = workflow["jobs"]["trial"]
    lines = [line.strip() for step in job["steps"] for line in step.get("run", "").splitlines()]
    (line,) = [line for line in lines if line.startswith("fencepost ")]
    world = World.usual()
    world.any_name = True
    world.trials = [trial(completed(replace(EQUAL, changed=changed)))]
    words = [word.replace("$IMAGE", "r.example/d:1").replace("$TRIAL", "pr-1") for word in shlex.split(line)]
    ended = world.run(*words[1:])
    assert ended.exit_code == code, ended.output
    assert "${{" not in line
    assert len(world.created_trials) == 1


def test_the_trial_before_a_sync_wave_has_bounds_and_is_not_deleted_and_created_again() -> None:
    (found,) = documents("argo-cd.yaml")
    spec = read_trial_spec(found["spec"])
    assert isinstance(spec, TrialSpec)
    assert spec.promote_when is not None
    assert spec.ttl_after_finished is None
    assert int(found["metadata"]["annotations"]["argocd.argoproj.io/sync-wave"]) < 0


def test_flux_waits_longer_for_trials_than_one_takes_and_then_applies_the_pipelines() -> None:
    trials, pipelines = documents("flux.yaml")
    assert pipelines["spec"]["dependsOn"] == [{"name": trials["metadata"]["name"]}]
    assert trials["spec"]["wait"] is True
    assert int(trials["spec"]["timeout"].removesuffix("m")) * 60 > ONE_HOUR
