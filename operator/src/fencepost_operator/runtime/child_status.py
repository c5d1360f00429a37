"""What a decision reads of the status of a Job, a pod or a StatefulSet.

Kubernetes writes a status more often than that changes: a pod that is placed, has an address and gets its containers
shows nothing that a pipeline waits for.  A pass asks for 10 objects and lists, so only what it would read wakes one.
`adapters.kubernetes` reads the same; what it began to read and is missing here would wait for the next census.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any, Final, TypeAlias

Status: TypeAlias = Mapping[str, Any]
"""The status of an object, as JSON; empty before there is one."""

_CONDITIONS_OF_A_POD: Final = frozenset({"Ready", "ContainersReady", "DisruptionTarget"})
_ON_THE_WAY: Final = frozenset({"ContainerCreating", "PodInitializing"})
_COUNTS: Final = ("active", "succeeded", "failed", "terminating")


def of_pod(status: Status) -> object:
    """Return its phase, its conditions, and the state of each container, but for the steps of a start."""
    containers = [*(status.get("initContainerStatuses") or ()), *(status.get("containerStatuses") or ())]
    return [
        status.get("phase"),
        status.get("reason"),
        status.get("message"),
        list(_conditions(status, _CONDITIONS_OF_A_POD)),
        [each for each in _conditions(status, {"PodScheduled"}) if each[1] == "False"],
        [each for each in map(_container, containers) if any(each[1:])],
    ]


def of_job(status: Status) -> object:
    """Return whether it has ended, and whether it has counted a pod."""
    uncounted = status.get("uncountedTerminatedPods") or {}
    counts_a_pod = any(status.get(count) for count in _COUNTS) or any(uncounted.values())
    return [list(_conditions(status, {"Complete", "Failed"})), counts_a_pod]


def of_stateful_set(status: Status) -> object:
    """Return which template its controller has seen; whether its pods are ready, they say themselves."""
    return [status.get("observedGeneration"), status.get("updateRevision")]


OF_CHILD: Final[Mapping[str, Callable[[Status], object]]] = {
    "pods": of_pod,
    "jobs": of_job,
    "statefulsets": of_stateful_set,
}
"""By the plural of the kind."""


def _conditions(status: Status, kinds: Collection[str]) -> Iterator[list[object]]:
    for each in status.get("conditions") or ():
        if each.get("type") in kinds:
            yield [each.get(part) for part in ("type", "status", "reason", "message", "lastTransitionTime")]


def _container(status: Status) -> list[object]:
    """Return the name of a container, and its state as far as it is not one of a start."""
    state = dict(status.get("state") or {})
    if (state.get("waiting") or {}).get("reason") in _ON_THE_WAY:
        del state["waiting"]
    return [status.get("name"), state, status.get("lastState"), status.get("restartCount")]
