"""A commit with new code and, before it, the trial of examples/trials, for the real tools."""

from __future__ import annotations

from typing import Final

import yaml

from e2e.new_code import SMALL, job_of, new_code
from harness.kubernetes.kubectl import Object
from harness.pipelines import EXAMPLES

ROOT: Final = EXAMPLES / "trials"
WAVE: Final = "argocd.argoproj.io/sync-wave"


def example(file: str) -> list[Object]:
    """Return the manifests of one of the example's files."""
    return list(yaml.safe_load_all((ROOT / file).read_text()))


def trial(name: str, change: str) -> tuple[Object, Object]:
    """Return the example's code with a change, and the example's trial of it with limits of the testbed's size."""
    (found,) = example("argo-cd.yaml")
    found["metadata"] = {"name": name, "annotations": found["metadata"]["annotations"]}
    found["spec"] |= {"job": job_of(name), "limits": SMALL}
    code = new_code(name, change)
    # The trial waits for its code, and code that a pipeline runs is not pruned before the pipeline has other code.
    code["metadata"]["annotations"] = {WAVE: "-2"}
    return code, found
