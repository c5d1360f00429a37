"""Kubernetes' Pod Security Standard `restricted`, as far as a pod template can break it.

The rules are those of https://kubernetes.io/docs/concepts/security/pod-security-standards/ (baseline and restricted).
The API server decides: the end-to-end tests run in namespaces that enforce the standard.
"""

from collections.abc import Iterator
from typing import Any

VOLUMES = {"configMap", "csi", "downwardAPI", "emptyDir", "ephemeral", "persistentVolumeClaim", "projected", "secret"}
SYSCTLS = {
    "kernel.shm_rmid_forced",
    "net.ipv4.ip_local_port_range",
    "net.ipv4.ip_unprivileged_port_start",
    "net.ipv4.tcp_syncookies",
    "net.ipv4.ping_group_range",
}


def violations(template: dict[str, Any]) -> Iterator[str]:
    """What in a Linux pod's template the standard forbids."""
    spec = template["spec"]
    pod = spec.get("securityContext", {})
    yield from (f"{name} is set" for name in ("hostNetwork", "hostPID", "hostIPC") if spec.get(name))
    yield from (f"sysctl {sysctl['name']}" for sysctl in pod.get("sysctls", []) if sysctl["name"] not in SYSCTLS)
    for volume in spec.get("volumes", []):
        yield from (f"volume {volume['name']} is a {kind}" for kind in set(volume) - {"name"} - VOLUMES)
    for kind in ("initContainers", "containers", "ephemeralContainers"):
        for container in spec.get(kind, []):
            yield from (f"{container['name']}: {problem}" for problem in _container(container, pod))


def _container(container: dict[str, Any], pod: dict[str, Any]) -> Iterator[str]:
    own = container.get("securityContext", {})
    both = {**pod, **own}
    capabilities = own.get("capabilities", {})
    forbidden = {
        "privileged": own.get("privileged"),
        "allowPrivilegeEscalation is not false": own.get("allowPrivilegeEscalation") is not False,
        "runAsNonRoot is not true": both.get("runAsNonRoot") is not True,
        "runs as root": both.get("runAsUser") == 0,
        "no seccomp profile": both.get("seccompProfile", {}).get("type") not in {"RuntimeDefault", "Localhost"},
        "does not drop all capabilities": "ALL" not in capabilities.get("drop", []),
        "adds capabilities": set(capabilities.get("add", [])) - {"NET_BIND_SERVICE"},
        "procMount": both.get("procMount", "Default") != "Default",
        "a host port": any("hostPort" in port for port in container.get("ports", [])),
        "a probe or hook of another host": any(_names_a_host(handler) for handler in _handlers(container)),
    }
    yield from (problem for problem, found in forbidden.items() if found)


def _handlers(container: dict[str, Any]) -> Iterator[dict[str, Any]]:
    for name in ("livenessProbe", "readinessProbe", "startupProbe"):
        yield container.get(name, {})
    yield from container.get("lifecycle", {}).values()


def _names_a_host(handler: dict[str, Any]) -> bool:
    return any("host" in part for part in handler.values() if isinstance(part, dict))
