"""What every pod of both charts keeps to."""

from typing import Any

import pytest

from unit.charts.pod_security import violations
from unit.charts.rendering import cases, objects, pod_templates

TEMPLATES = [
    pytest.param(template, id=f"{chart}-{case}-{name}")
    for chart, case in cases()
    for name, template in pod_templates(objects(chart, case))
]


def test_there_are_pods_to_look_at() -> None:
    assert len(TEMPLATES) == 10


@pytest.mark.parametrize("template", TEMPLATES)
def test_a_pod_is_valid_under_pod_security_restricted(template: dict[str, Any]) -> None:
    assert list(violations(template)) == []


@pytest.mark.parametrize("template", TEMPLATES)
def test_a_container_has_a_read_only_root_and_bounded_scratch_space(template: dict[str, Any]) -> None:
    spec = template["spec"]
    assert all(container["securityContext"]["readOnlyRootFilesystem"] for container in spec["containers"])
    assert all("sizeLimit" in volume["emptyDir"] for volume in spec.get("volumes", ()) if "emptyDir" in volume)


@pytest.mark.parametrize("template", TEMPLATES)
def test_a_container_says_what_it_needs_and_is_probed(template: dict[str, Any]) -> None:
    for container in template["spec"]["containers"]:
        assert set(container["resources"]["requests"]) == {"cpu", "memory"}
        assert "memory" in container["resources"]["limits"]
        ends = template["spec"].get("restartPolicy") == "Never"
        assert ends or {"startupProbe", "readinessProbe", "livenessProbe"} <= set(container)


@pytest.mark.parametrize("template", TEMPLATES)
def test_services_of_the_namespace_do_not_leak_into_the_environment(template: dict[str, Any]) -> None:
    assert template["spec"]["enableServiceLinks"] is False


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"hostNetwork": True}, "hostNetwork"),
        ({"securityContext": {}}, "runAsNonRoot"),
        ({"securityContext": {"runAsNonRoot": True}}, "seccomp"),
        ({"volumes": [{"name": "host", "hostPath": {"path": "/"}}]}, "hostPath"),
        ({"containers": [{"name": "bare"}]}, "capabilities"),
    ],
)
def test_the_checker_sees_what_is_forbidden(change: dict[str, Any], problem: str) -> None:
    _, template = next(pod_templates(objects("fencepost")))
    assert problem in " ".join(violations({"spec": {**template["spec"], **change}}))
