"""Where the pods of a pipeline start: next to anchors, which are gone before the test begins."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Final

from harness.kubernetes.kubectl import Kubectl, Object

COMPONENT: Final = "streaming.fencepost.dev/component"
_ANCHOR: Final = "fencepost.test/anchor"


def next_to_anchors(pipeline: str) -> Object:
    """Return an affinity by which each component of a pipeline prefers the node of its own anchor."""
    term = {
        "topologyKey": "kubernetes.io/hostname",
        "labelSelector": {"matchLabels": {_ANCHOR: pipeline}},
        "matchLabelKeys": [COMPONENT],
    }
    return {
        "podAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 100, "podAffinityTerm": term}]}
    }


@contextmanager
def anchored(kubectl: Kubectl, image: str, places: Mapping[str, Mapping[str, str]]) -> Iterator[None]:
    """Keep anchors while the block runs: `places` has a node by pipeline and component."""
    try:
        kubectl.apply(
            *(
                _anchor(pipeline, component, node, image)
                for pipeline, nodes in places.items()
                for component, node in nodes.items()
            )
        )
        yield
    finally:
        kubectl.run("delete", "pods", f"--selector={_ANCHOR}", "--grace-period=1", "--timeout=60s", seconds=70)


def _anchor(pipeline: str, component: str, node: str, image: str) -> Object:
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": f"anchor-{pipeline}-{component}", "labels": {_ANCHOR: pipeline, COMPONENT: component}},
        "spec": {
            "nodeName": node,
            "terminationGracePeriodSeconds": 1,
            "securityContext": {"runAsNonRoot": True, "runAsUser": 10001, "seccompProfile": {"type": "RuntimeDefault"}},
            "containers": [
                {
                    "name": "anchor",
                    "image": image,
                    "imagePullPolicy": "Never",
                    "command": ["sleep", "600"],
                    "securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}},
                }
            ],
        },
    }
