"""Two builds of Fencepost in turns on one machine: this one, and an earlier one whose images are still there.

A build is its two images: the operator's has the charts, the job's has driver, master and workers.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final

from bench.options import Options
from harness.kubernetes.kubectl import Kubectl
from testbed.environment import Environment
from testbed.home import Home
from testbed.images.built_images import load_one
from testbed.process import Transcript
from testbed.release import NAMESPACE, RELEASE

ROLLOUT_SECONDS: Final = 120.0
CONTAINER: Final = "operator"
BEFORE: Final = ", before"
"""What is added to the names of the samples of the earlier build."""


@dataclass(frozen=True, slots=True)
class Build:
    """`suffix` is added to the names of its samples; `operator` None is the operator that is installed."""

    suffix: str
    job: str
    operator: str | None

    def patched(self, spec: Mapping[str, Any]) -> dict[str, Any]:
        """Return a patch of the pipeline's spec with this build's image."""
        return {**spec, "job": {**spec.get("job", {}), "image": self.job}}


def blocks(options: Options, environment: Environment, *, rounds: int) -> Iterator[Build]:
    """Yield the build of each block, installed: this one and the earlier one in turns, the order reversed each round.

    Without an earlier one, this one once per round.
    """
    this = Build("", environment.job_image, None)
    builds = [this]
    if options.before_job or options.before_operator:
        builds.append(Build(BEFORE, options.before_job or this.job, options.before_operator))
    _load(builds[1:])
    for number in range(rounds):
        for build in builds if number % 2 == 0 else reversed(builds):
            with _installed(build, environment):
                yield build


def _load(builds: list[Build]) -> None:
    """Load the images into the nodes that lack them."""
    home = Home.of_user()
    for image in {image for build in builds for image in (build.job, build.operator) if image}:
        load_one(home, image, Transcript(home.logs / "before.log"))


@contextmanager
def _installed(build: Build, environment: Environment) -> Iterator[None]:
    """Let this build's operator run for as long as the block lasts."""
    if build.operator is None:
        yield
        return
    kubectl = Kubectl.of(environment, NAMESPACE)
    path = f"jsonpath={{.spec.template.spec.containers[?(@.name=='{CONTAINER}')].image}}"
    usual = kubectl.run("get", "deployment", RELEASE, "-o", path).strip()
    _install(kubectl, build.operator)
    try:
        yield
    finally:
        _install(kubectl, usual)


def _install(kubectl: Kubectl, image: str) -> None:
    kubectl.run("set", "image", f"deployment/{RELEASE}", f"{CONTAINER}={image}")
    kubectl.run("rollout", "status", f"deployment/{RELEASE}", f"--timeout={ROLLOUT_SECONDS:.0f}s", seconds=150)
