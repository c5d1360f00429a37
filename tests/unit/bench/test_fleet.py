"""What the bench of fleets reads: an audit log, a process's figures, and its options."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from bench.__main__ import main
from bench.fleet.audit import Audit, is_write
from bench.fleet.operator import Usage


def event(agent: str, verb: str, resource: str, subresource: str = "") -> str:
    place = {"resource": resource, **({"subresource": subresource} if subresource else {})}
    return json.dumps({"userAgent": agent, "verb": verb, "objectRef": place}) + "\n"


def test_requests_of_the_operator_and_of_what_it_starts_are_counted_once(tmp_path: Path) -> None:
    log = tmp_path / "audit.log"
    log.write_text(
        event("fencepost-operator", "list", "pods")
        + event("Helm/3", "create", "secrets")
        + event("kube-controller-manager/v1", "list", "pods")
    )
    audit = Audit(log)
    assert audit.new() == {"list pods": 1, "create secrets": 1}
    whole = event("fencepost-operator", "update", "streamingpipelines", "status")
    with log.open("a") as file:
        file.write(whole[:20])
    assert audit.new() == {}, "the line is not complete yet"
    with log.open("a") as file:
        file.write(whole[20:])
    assert audit.new() == {"update streamingpipelines/status": 1}


@pytest.mark.parametrize(("request_", "writes"), [("patch events", True), ("list pods", False), ("watch jobs", False)])
def test_what_changes_something_is_a_write(request_: str, writes: bool) -> None:
    assert is_write(request_) is writes


def test_a_process_says_what_it_uses() -> None:
    usage = Usage.of(os.getpid())
    assert usage.own > 0
    assert 1 < usage.memory <= usage.most_memory


def test_the_number_of_pipelines_is_for_a_fleet_alone(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["images", "--pipelines", "5"])
    assert "--pipelines is for fleet" in capsys.readouterr().err
