"""What the chart installs for Argo CD, and the versions of Argo CD that the tests run it with."""

from __future__ import annotations

from typing import Final

from harness.kubernetes.kubectl import Object
from unit.charts.rendering import objects, one

PROGRAMS: Final = ("argo-cd", "argo-cd-3")


def config_map() -> Object:
    """Return the ConfigMap that the chart installs."""
    return one(objects("fencepost", values={"argoCD.customizations": True}), "ConfigMap", "argo-cd")


def customizations() -> dict[str, str]:
    """Return its data."""
    data: dict[str, str] = config_map()["data"]
    return data
