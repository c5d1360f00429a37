"""The example repository, with an overlay for the testbed on top of one of its own."""

from __future__ import annotations

from typing import Any, Final

import yaml

from harness.pipelines import EXAMPLES, SECRET, Place, example_file, merged

ROOT: Final = EXAMPLES / "gitops"
PATH: Final = "overlays/testbed"
PIPELINE: Final = "departures"
CODE: Final = example_file("departures", "departures.py")
"""Of the example without GitOps, whose rows the tests can check."""


def example(file: str) -> list[dict[str, Any]]:
    """Return the manifests of one of the example's files."""
    return [dict(one) for one in yaml.safe_load_all((ROOT / file).read_text())]


def files(
    place: Place,
    *,
    overlay: str = "production",
    with_pipelines: bool = True,
    more: tuple[dict[str, Any], ...] = (),
    code: str | None = None,
    **spec: Any,
) -> dict[str, str]:
    """Return the repository: `overlay` for this place, with `spec` merged into the pipeline's, and `more` manifests.

    `code` takes the place of the example's transform.
    """
    found = {path.relative_to(ROOT).as_posix(): path.read_text() for path in sorted(ROOT.rglob("*")) if path.is_file()}
    if code is not None:
        found[f"base/{PIPELINE}.py"] = code
    here = {
        "job": {"image": place.environment.job_image},
        "source": {"kafka": {"bootstrapServers": place.environment.kafka_cluster}},
        "checkpoint": {
            "cassandra": {
                "contactPoints": [place.environment.cassandra_cluster],
                "keyspace": place.fences,
                "credentialsFrom": {"secretName": SECRET},
            }
        },
    }
    patch = {
        "apiVersion": "streaming.fencepost.dev/v1beta1",
        "kind": "StreamingPipeline",
        "metadata": {"name": PIPELINE},
        "spec": merged(here, spec),
    }
    kustomization: dict[str, Any] = {
        "apiVersion": "kustomize.config.k8s.io/v1beta1",
        "kind": "Kustomization",
        "namespace": place.namespace,
        "resources": [*([f"../{overlay}"] if with_pipelines else []), *(["more.yaml"] if more else [])],
    }
    if with_pipelines:
        kustomization["patches"] = [{"path": "patch.yaml"}]
    found[f"{PATH}/kustomization.yaml"] = yaml.safe_dump(kustomization)
    found[f"{PATH}/patch.yaml"] = yaml.safe_dump(patch)
    found[f"{PATH}/more.yaml"] = yaml.safe_dump_all(more)
    return found
