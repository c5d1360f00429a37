"""`fencepost trial`: the object it creates, what it prints of one, its exit code for CI, and what it changes."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from fencepost_cli.commands.pipeline import trial as trial_command
from fencepost_cli.ports import Related
from fencepost_operator.api import (
    ACCEPT_CODE_ANNOTATION,
    ObjectKey,
    ProcessUse,
    Promotion,
    PromotionState,
    RowCounts,
    Trial,
    TrialPhase,
    TrialResources,
    TrialSample,
    TrialSink,
    TrialSpec,
    TrialStatus,
    read_trial,
    read_trial_spec,
    write_trial_status,
)
from unit.cli.world import KEY, World

IMAGE = "registry.example/orders:2"
JOB = {"image": IMAGE}
EQUAL = RowCounts(compared=90, equal=90, missing=0)
PLACE = "shop/next"


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> World:
    monkeypatch.setattr(trial_command, "POLL", 0.0)
    return World.usual()


def body(status: TrialStatus | None = None, **spec: Any) -> dict[str, Any]:
    metadata = {
        "namespace": "shop", "name": "next", "uid": "uid-7", "generation": 1, "resourceVersion": "3",
        "creationTimestamp": "2026-01-01T11:59:00Z",
    }  # fmt: skip
    asked = {"pipeline": "orders", "job": JOB, "since": {"duration": "1h"}, **spec}
    return {"metadata": metadata, "spec": asked, "status": write_trial_status(status or TrialStatus())}


def trial(status: TrialStatus | None = None, **spec: Any) -> Trial:
    return read_trial(body(status, **spec))


def completed(rows: RowCounts = EQUAL, **given: Any) -> TrialStatus:
    usual: dict[str, Any] = {
        "phase": TrialPhase.COMPLETED, "message": "90 rows compared", "pipeline_generation": 1,
        "pipeline_uid": "uid-1", "job": "orders-trial-1", "records": 90, "records_total": 90, "complete": True,
        "seconds": 2.0, "records_per_second": 45.0, "rows": rows, "sinks": (TrialSink(name="orders", rows=rows),),
    }  # fmt: skip
    return TrialStatus(**{**usual, **given})


# What is created


def create(*words: str) -> list[str]:
    return ["trial", "create", "shop/orders", *words]


CREATED: Mapping[str, tuple[list[str], Mapping[str, Any]]] = {
    "an image": (["--image", IMAGE], {}),
    "modules": (["--code-from", "orders-2"], {"job": {"codeFrom": {"configMapName": "orders-2"}}}),
    "a function": (
        ["--entrypoint", "orders:new", "--arg", "--fast", "--arg", "x"],
        {"job": {"entrypoint": "orders:new", "args": ["--fast", "x"]}},
    ),
    "no arguments": (["--no-args"], {"job": {"args": []}}),
    "two days": (["--image", IMAGE, "--since", "2d"], {"since": {"duration": "48h"}}),
    "a moment": (
        ["--image", IMAGE, "--since", "2026-01-31T12:00:00"], {"since": {"timestamp": "2026-01-31T12:00:00Z"}},
    ),
    "a snapshot": (["--image", IMAGE, "--snapshot", "before"], {"since": {"snapshot": "before"}}),
    "what is compared": (
        ["--image", IMAGE, "--sink", "orders", "--ignore-column", "at", "--show-values",
         "--max-rows-per-second", "9"],
        {"compare": {"sinks": ["orders"], "ignoreColumns": ["at"], "showValues": True, "maxRowsPerSecond": 9}},
    ),
    "limits": (
        ["--image", IMAGE, "--max-duration", "30m", "--cpu", "2", "--memory", "3Gi"],
        {"limits": {"maxDuration": "30m", "cpu": "2", "memory": "3Gi"}},
    ),
    "a promotion": (
        ["--image", IMAGE, "--promote-when", "changed=5, missing=any"],
        {"promoteWhen": {"changedRows": 5, "ignoreMissing": True}},
    ),
    "for a week": (["--image", IMAGE, "--ttl", "7d"], {"ttlAfterFinished": "168h"}),
    "a strict promotion": (["--image", IMAGE, "--promote-when", "changed=0"], {"promoteWhen": {}}),
}  # fmt: skip


@pytest.mark.parametrize("case", CREATED)
def test_a_trial_is_created_as_it_is_asked_for(world: World, case: str) -> None:
    words, spec = CREATED[case]
    assert world.json(*create(*words)) == {"trial": "shop/orders-x7d2q"}
    asked = read_trial_spec({"pipeline": "orders", "job": JOB, "since": {"duration": "1h"}, **spec})
    assert isinstance(asked, TrialSpec)
    assert world.created_trials == [(ObjectKey("shop", "orders-x7d2q"), asked)]


@pytest.mark.parametrize(
    ("words", "printed"),
    [
        ([], "nothing is new"),
        (["--arg", "x", "--no-args"], "--arg and --no-args contradict"),
        (["--image", "two words"], "spec.job.image"),
        (["--image", IMAGE, "--code-from", "../x"], "spec.job.codeFrom.configMapName"),
        (["--image", IMAGE, "--since", "yesterday"], "--since 'yesterday' is not a time"),
        (["--image", IMAGE, "--since", "900d"], "spec.since.duration"),
        (["--image", IMAGE, "--since", "1h", "--snapshot", "a"], "two starts"),
        (["--image", IMAGE, "--memory", "1Ki"], "spec.limits.memory"),
        (["--image", IMAGE, "--promote-when", "changed"], "--promote-when 'changed' does not bound rows"),
        (["--image", IMAGE, "--promote-when", "changed=any"], "does not bound rows"),
        (["--image", IMAGE, "--promote-when", "added=1,added=2"], "does not bound rows"),
        (["--image", IMAGE, "--allow", ""], "--allow '' does not bound rows"),
        (["--image", IMAGE, "--name", "No Name"], "is not a valid object name"),
    ],
)
def test_what_cannot_be_meant_creates_nothing(world: World, words: list[str], printed: str) -> None:
    assert printed in world.refused(*create(*words))
    assert world.created_trials == []


def test_a_trial_of_a_pipeline_that_does_not_exist_is_not_created(world: World) -> None:
    assert "not found" in world.refused("trial", "create", "shop/other", "--image", IMAGE)
    assert world.created_trials == []


def test_a_pull_request_creates_and_follows_in_one_command(world: World) -> None:
    world.trials = [trial(), trial(completed())]
    printed = world.json(*create("--image", IMAGE, "--name", "pr-17", "--watch"))
    assert world.created_trials[0][0] == ObjectKey("shop", "pr-17")
    assert printed["passed"] is True


# The outcome


RUNNING = TrialStatus(phase=TrialPhase.RUNNING, message="The new code has processed 5 of 90 records")
PROMOTE = {"promoteWhen": {"changedRows": 2}}
CHANGED = RowCounts(compared=90, equal=88, changed=2, missing=0)
UNSEEN = replace(EQUAL, missing=None)


def promoted(state: PromotionState, rows: RowCounts = CHANGED) -> TrialStatus:
    return completed(rows, promotion=Promotion(state=state, message="as the operator has it"))


ENDS: Mapping[str, tuple[list[str], Trial, int, str]] = {
    "no row differs": ([], trial(completed()), 0, "Passed"),
    "rows differ": ([], trial(completed(CHANGED)), 1, "2 changed rows are more than 0"),
    "rows may differ": (["--allow", "changed=2"], trial(completed(CHANGED)), 0, "Passed"),
    "too many differ": (["--allow", "changed=1"], trial(completed(CHANGED), **PROMOTE), 1, "are more than 1"),
    "within promoteWhen": ([], trial(promoted(PromotionState.PROMOTED), **PROMOTE), 0, "Passed"),
    "a patch to commit": ([], trial(promoted(PromotionState.REPORTED), **PROMOTE), 0, "Passed"),
    "not promoted": ([], trial(promoted(PromotionState.REFUSED), **PROMOTE), 1, "as the operator has it"),
    "missing not looked for": ([], trial(completed(UNSEEN)), 1, "were not looked for"),
    "missing are of no interest": (["--allow", "missing=any"], trial(completed(UNSEEN)), 0, "Passed"),
    "not all was compared": ([], trial(completed(complete=False)), 1, "not all rows were compared"),
    "it failed": ([], trial(TrialStatus(phase=TrialPhase.FAILED, message="Refused: no")), 1, "Refused: no"),
}


@pytest.mark.parametrize("case", ENDS)
def test_the_exit_code_is_the_outcome(world: World, case: str) -> None:
    words, last, code, printed = ENDS[case]
    pending = trial(promoted(PromotionState.PROMOTING), **PROMOTE)
    world.trials = [trial(), trial(RUNNING), trial(RUNNING), pending, last]
    ended = world.run("trial", "watch", PLACE, *words)
    assert ended.exit_code == code, ended.output
    assert printed in ended.stdout.splitlines()[-1]
    assert ended.stdout.count("5 of 90 records") == 1
    world.trials = [last]
    assert world.json("trial", "watch", PLACE, *words, code=code)["passed"] is (code == 0)


def test_a_trial_that_is_deleted_or_late_is_no_outcome(world: World) -> None:
    world.trials = [trial(), None]
    assert "trial shop/next not found" in world.refused("trial", "watch", PLACE)
    world.trials = [trial(RUNNING)]
    assert "5 of 90 records" in world.refused("trial", "watch", PLACE, "--timeout", "1")


# What is shown


def test_a_trial_is_shown_with_its_rows_samples_and_figures(world: World) -> None:
    use = (ProcessUse(name="jvm", peak_memory=512 * 1024 * 1024, cpu_seconds=3.25, peak_cpu=1.5),)
    resources = TrialResources(processes=use, peak_memory=900 * 1024 * 1024, memory_limit=2 * 1024**3, fits=True)
    samples = (TrialSample(sink="orders", kind="Changed", key="id=5", columns="price"),)
    world.trials = [trial(completed(CHANGED, resources=resources, samples=samples))]
    ended = world.run("trial", "show", "next", "-n", "shop")
    assert ended.exit_code == 0
    words = [line.split() for line in ended.stdout.splitlines()]
    for line in (
        ["orders", "90", "88", "2", "0", "0", "0", "0", "-"],
        ["orders", "Changed", "id=5", "price"],
        ["jvm", "512", "MiB", "3.2", "1.50"],
        ["pod", "900", "MiB", "-", "-"],
        ["Catch-up:", "45", "records/s,", "in", "2", "s"],
        ["Code:", IMAGE],
    ):
        assert line in words, ended.stdout
    assert "It fits its limits: the pod has 2Gi" in ended.stdout
    printed = world.json("trial", "show", PLACE)
    assert printed["passed"] is False
    assert printed["why"] == "2 changed rows are more than 0"
    assert printed["status"]["rows"]["changed"] == 2
    assert printed["spec"]["job"] == JOB


def test_a_trial_that_waits_is_shown_without_an_outcome(world: World) -> None:
    world.trials = [trial(TrialStatus(message="StreamingPipeline orders does not exist"))]
    assert "assed" not in world.run("trial", "show", PLACE).stdout
    assert world.json("trial", "show", PLACE)["passed"] is None


def test_the_trials_of_a_pipeline_are_listed_the_newest_first(world: World) -> None:
    old, new = body(completed(CHANGED)), body()
    new["metadata"] |= {"name": "newer", "creationTimestamp": "2026-01-02T00:00:00Z"}
    world.related_objects[Related.TRIALS] = [old, new]
    printed = world.json("trial", "list", "shop/orders")
    assert [(one["trial"], one["passed"]) for one in printed["trials"]] == [("shop/newer", None), (PLACE, False)]
    lines = [line.split() for line in world.run("trial", "list", "shop/orders").stdout.splitlines()]
    assert [line[0] for line in lines[2:]] == ["newer", "next"]
    assert lines[3][2:] == ["Completed", "90", "2", "0", "0", "no", "-", IMAGE]


def test_text_of_a_tenant_draws_nothing_on_the_terminal(world: World) -> None:
    """Injected: escape sequences, markup and marks that turn text around, wherever a tenant's text is."""
    hostile = "\x1b[2J[bold red]x[/bold red]\u202e\n"
    samples = (TrialSample(sink=hostile, kind=hostile, key=hostile, columns=hostile),)
    status = completed(
        CHANGED,
        message=hostile,
        samples=samples,
        sinks=(TrialSink(name=hostile, rows=CHANGED, message=hostile),),
        resources=TrialResources(processes=(ProcessUse(name=hostile),)),
        promotion=Promotion(state=hostile, message=hostile, patch=hostile),
    )
    one = replace(trial(status), pipeline=hostile)
    world.trials, world.related_objects[Related.TRIALS] = [one], [body(status, job={"image": hostile})]
    for words in (["show", PLACE], ["watch", PLACE], ["list", "shop/orders"]):
        output = world.run("trial", *words).stdout
        assert "[bold red]x[/bold red]" in output or words[0] == "list"
        assert "\x1b" not in output
        assert "\u202e" not in output
        printed = world.run("trial", *words, "-o", "json").stdout
        assert "\x1b" not in printed
        assert "\u202e" not in printed


# What is changed


def test_the_code_of_a_trial_becomes_the_pipelines_over_what_was_read(world: World) -> None:
    world.trials = [trial(completed(CHANGED))]
    assert "add --yes" in world.refused("trial", "promote", PLACE)
    assert world.merged == []
    assert world.json("trial", "promote", PLACE, "--yes")["promoted"] is True
    assert world.merged == [(KEY, {"metadata": {"resourceVersion": "1"}, "spec": {"job": JOB}})]


def test_code_that_the_pipeline_has_is_not_set_again(world: World) -> None:
    world.trials = [trial(completed())]
    world.body["spec"]["job"] |= JOB
    world.body["metadata"]["generation"] = 2
    assert "has the code already" in world.run("trial", "promote", PLACE).stdout
    assert world.merged == []


def test_a_trial_without_a_result_or_of_another_spec_is_not_promoted(world: World) -> None:
    for status in (TrialStatus(), RUNNING, TrialStatus(phase=TrialPhase.FAILED)):
        world.trials = [trial(status)]
        assert "no result" in world.refused("trial", "promote", PLACE, "--yes")
    world.trials = [trial(completed())]
    world.body["metadata"]["generation"] = 2
    assert "was changed since the trial began" in world.refused("trial", "promote", PLACE, "--yes")
    world.body["metadata"] |= {"generation": 1, "uid": "another"}
    assert "was created again" in world.refused("trial", "promote", PLACE, "--yes")
    assert world.merged == []


@pytest.mark.parametrize("status", [TrialStatus(phase=TrialPhase.FAILED, message="no result"), completed(CHANGED)])
def test_the_code_of_an_upgrade_is_accepted_whatever_its_trial_found(world: World, status: TrialStatus) -> None:
    world.trials = [replace(trial(status), owner_uid="uid-1")]
    world.body["status"] = {"upgradeTrial": {"name": "next"}}
    assert "add --yes" in world.refused("trial", "promote", PLACE)
    assert world.merged == []
    assert world.json("trial", "promote", PLACE, "--yes")["promoted"] is True
    assert world.merged == [(KEY, {"metadata": {"annotations": {ACCEPT_CODE_ANNOTATION: "next"}}})]


@pytest.mark.parametrize(("owner", "awaited"), [("another", "next"), ("uid-1", "later"), ("uid-1", None)])
def test_code_that_no_upgrade_waits_for_is_not_accepted(world: World, owner: str, awaited: str | None) -> None:
    world.trials = [replace(trial(completed()), owner_uid=owner)]
    world.body["status"] = {"upgradeTrial": {"name": awaited}} if awaited else {}
    assert "does not wait for trial shop/next" in world.refused("trial", "promote", PLACE, "--yes")
    assert world.merged == []


def test_a_pipeline_from_a_repository_gets_its_code_by_a_commit(world: World) -> None:
    world.trials = [trial(completed())]
    world.body["metadata"]["labels"] = {"kustomize.toolkit.fluxcd.io/name": "apps"}
    ended = world.run("trial", "promote", PLACE, "--yes")
    assert ended.exit_code == 1
    assert json.loads(ended.stdout) == {"spec": {"job": JOB}}
    assert "Flux writes shop/orders" in ended.stderr
    assert world.merged == []


def test_a_trial_is_deleted_after_a_question(world: World) -> None:
    world.trials = [trial(RUNNING)]
    assert "add --yes" in world.refused("trial", "delete", PLACE)
    assert world.deleted_trials == []
    assert world.json("trial", "delete", PLACE, "--yes") == {"trial": PLACE, "deleted": True}
    assert world.deleted_trials == [ObjectKey("shop", "next")]


@pytest.mark.parametrize("words", [["show", "a/b/c"], ["show", "shop/next", "-n", "bar"], ["show", "shop/gone"]])
def test_a_trial_that_cannot_be_found_is_named(world: World, words: list[str]) -> None:
    said = world.refused("trial", *words)
    assert "trial" in said or "-n says bar" in said
