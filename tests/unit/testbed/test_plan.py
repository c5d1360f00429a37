"""What each target of the Makefile waits for."""

from pathlib import Path

from testbed.home import Home
from testbed.plan import BESIDE, GITOPS, PICTURES, READY, RELEASE, TESTS, steps
from testbed.steps import closure


def names(until: str | None) -> set[str]:
    return {step.name for step in closure(steps(Home(Path("/nowhere")), dict), until)}


def test_only_the_tests_of_gitops_wait_for_its_programs() -> None:
    programs = {*BESIDE, "redis", "flux-crds", "argo-cd-crds"}
    assert not names(TESTS) & programs
    assert names(READY) < names(TESTS)
    assert names(TESTS) | programs < names(GITOPS)


def test_only_the_pictures_wait_for_a_browser() -> None:
    assert "browser" in names(PICTURES)
    assert "browser" not in names(TESTS) | names(GITOPS)


def test_only_a_release_waits_for_its_tools() -> None:
    assert {"cosign", "registry", "operator-image", "job-image"} <= names(RELEASE)
    assert not {"cosign", "registry"} & (names(TESTS) | names(GITOPS))
    assert "cluster" not in names(RELEASE)


def test_every_step_needs_steps_that_exist() -> None:
    every = steps(Home(Path("/nowhere")), dict)
    known = {step.name for step in every}
    assert len(known) == len(every)
    assert all(need in known for step in every for need in step.needs)
