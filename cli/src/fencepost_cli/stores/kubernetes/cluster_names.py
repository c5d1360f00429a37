"""Names of the cluster's DNS: which Service and pod they mean, and which ports of which pods are behind them."""

from __future__ import annotations

import re
import socket
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from fencepost_cli.errors import CliError
from fencepost_cli.ports import Dial

_LABEL: Final = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
_SERVICE, _POD = 2, 3
"""Labels before 'svc': SERVICE.NAMESPACE, and POD.SERVICE.NAMESPACE of a headless Service."""


@dataclass(frozen=True, slots=True)
class Place:
    """A Service, or one pod of a headless Service."""

    namespace: str
    service: str
    pod: str | None = None

    def __str__(self) -> str:
        """The Service as people write it."""
        return f"Service {self.namespace}/{self.service}"


@dataclass(frozen=True, slots=True)
class Backend:
    """A ready pod, and its port."""

    pod: str
    port: int


def resolves(host: str) -> bool:
    """Return whether this machine has an address for the name."""
    try:
        return bool(socket.getaddrinfo(host.strip("[]"), None, type=socket.SOCK_STREAM))
    except (OSError, ValueError):
        return False


def dialled(names: Sequence[str], port: int, dial: Dial, *, without_names: CliError) -> tuple[str, str, int] | None:
    """Return the first name that `dial` reaches, with its host and port here; None where this machine has an address.

    Raises CliError, for the first of them; `without_names` where none is given.
    """
    if any(map(resolves, names)):
        return None
    failure: CliError | None = None
    for name in names:
        try:
            return (name, *dial(name, port))
        except CliError as error:
            failure = failure or error
    raise failure or without_names


def places(host: str, namespace: str) -> tuple[Place, ...]:
    """Return what the name may mean to a pod of the namespace, in the order in which its resolver asks.

    A short name is completed with 'NAMESPACE.svc', then with 'svc'. Empty unless the name is of a Service or its pod.
    """
    labels = host.lower().removesuffix(".").split(".")
    if not all(map(_LABEL.fullmatch, labels)):
        return ()
    if "svc" in labels[_SERVICE : _POD + 1]:
        found = [labels[: labels.index("svc", _SERVICE)]]
    else:
        found = [[*labels, namespace], labels]
    return tuple(
        Place(before[-1], before[-2], before[0] if len(before) == _POD else None)
        for before in found
        if len(before) in {_SERVICE, _POD}
    )


def problem(service: Mapping[str, Any], port: int) -> str | None:
    """Return why no pod is behind this port of a Service, None where one may be.

    A port that the Service does not have is refused: whoever may write a pipeline chooses the name.
    """
    spec = service.get("spec") or {}
    if not spec.get("selector"):
        return "has no selector, so the API server cannot say which pods are behind it"
    ports = [one.get("port") for one in spec.get("ports") or [] if one.get("protocol", "TCP") == "TCP"]
    if port not in ports:
        return f"has no TCP port {port}, only {', '.join(map(str, ports)) or 'none'}"
    return None


def backends(service: Mapping[str, Any], pods: Iterable[Mapping[str, Any]], place: Place, port: int) -> list[Backend]:
    """Return the ready pods that a connection to this port of the place may reach."""
    spec = service["spec"]
    (target,) = [one.get("targetPort", port) for one in spec["ports"] if one["port"] == port][:1]
    if spec.get("clusterIP") == "None":
        target = port  # the name has the pods' addresses, so nothing translates the port
    named = [pod for pod in pods if place.pod in {None, _hostname(pod)} and _is_ready(pod)]
    found = ((pod["metadata"]["name"], _number(pod, target)) for pod in named)
    return [Backend(name, number) for name, number in found if number is not None]


def selector(service: Mapping[str, Any]) -> str:
    """Return the label selector of a Service's pods."""
    return ",".join(f"{key}={value}" for key, value in service["spec"]["selector"].items())


def _hostname(pod: Mapping[str, Any]) -> str:
    """Return the first label of the pod's name in DNS."""
    return str(pod["spec"].get("hostname") or pod["metadata"]["name"])


def _is_ready(pod: Mapping[str, Any]) -> bool:
    conditions: Sequence[Mapping[str, Any]] = (pod.get("status") or {}).get("conditions") or []
    ready = any(one.get("type") == "Ready" and one.get("status") == "True" for one in conditions)
    return ready and not pod["metadata"].get("deletionTimestamp")


def _number(pod: Mapping[str, Any], target: int | str) -> int | None:
    """Return the number of a Service's targetPort in a pod, None where no container has a port of that name."""
    if isinstance(target, int):
        return target
    ports = (port for container in pod["spec"]["containers"] for port in container.get("ports") or [])
    return next((port["containerPort"] for port in ports if port.get("name") == target), None)
