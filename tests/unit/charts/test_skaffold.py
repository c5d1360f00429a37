"""skaffold.yaml speaks of files, images and values that exist, and builds what the testbed builds."""

import re
from pathlib import Path
from typing import Any, Final

import jsonschema
import pytest
import yaml

from testbed import release
from testbed.home import Home
from testbed.images.built_images import Image
from testbed.plan import steps
from unit.charts.rendering import REPOSITORY, objects, one
from unit.crds.schema import CRD, at

CONFIG: Final[dict[str, Any]] = yaml.safe_load((REPOSITORY / "skaffold.yaml").read_text())
ARTIFACTS: Final[dict[str, Any]] = {artifact["image"]: artifact for artifact in CONFIG["build"]["artifacts"]}
(RELEASE,) = CONFIG["deploy"]["helm"]["releases"]

SHAPE: Final = {
    "type": "object",
    "required": ["apiVersion", "kind", "build", "deploy"],
    "additionalProperties": False,
    "properties": {
        "apiVersion": {"pattern": "^skaffold/v4beta[0-9]+$"},
        "kind": {"const": "Config"},
        **{name: {} for name in ("metadata", "build", "deploy", "manifests", "resourceSelector", "profiles")},
    },
}
"""Skaffold's own schema is large and versioned; these are the parts of it that the file uses."""


def dockerfile(artifact: dict[str, Any]) -> Path:
    """The artifact's Dockerfile; its path is relative to the context."""
    path: Path = REPOSITORY / artifact["context"] / artifact["docker"]["dockerfile"]
    return path.resolve()


def test_it_is_a_skaffold_configuration() -> None:
    jsonschema.validate(CONFIG, SHAPE)


def test_it_builds_what_the_testbed_builds_in_the_same_way() -> None:
    built = {
        step.repository: (step.dockerfile, step.context)
        for step in steps(Home.of_user(), dict)
        if isinstance(step, Image) and not step.repository.startswith("fencepost-testbed/")
    }
    ours = {
        image: (dockerfile(artifact), (REPOSITORY / artifact["context"]).resolve())
        for image, artifact in ARTIFACTS.items()
    }
    assert ours == built


@pytest.mark.parametrize("image", sorted(ARTIFACTS))
def test_a_dockerfile_exists_and_copies_what_exists(image: str) -> None:
    artifact = ARTIFACTS[image]
    text = dockerfile(artifact).read_text()
    context = REPOSITORY / artifact["context"]
    for line in re.findall(r"^COPY (?!.*--from=)(.+)$", text, flags=re.MULTILINE):
        *sources, _ = [word for word in line.split() if not word.startswith("--")]
        for source in sources:
            assert list(context.glob(source.rstrip("/"))), f"{image}: COPY {source}"


@pytest.mark.parametrize("image", sorted(ARTIFACTS))
def test_a_target_is_a_stage_of_its_dockerfile(image: str) -> None:
    target = ARTIFACTS[image]["docker"].get("target")
    stages = re.findall(
        r"^FROM .* AS (\S+)", dockerfile(ARTIFACTS[image]).read_text(), flags=re.MULTILINE | re.IGNORECASE
    )
    assert target is None or target in stages


def test_it_installs_the_chart_where_the_testbed_does() -> None:
    assert (REPOSITORY / RELEASE["chartPath"]).resolve() == release.CHART.resolve()
    assert (RELEASE["name"], RELEASE["namespace"]) == (release.RELEASE, release.NAMESPACE)


def test_the_chart_runs_the_image_that_was_built() -> None:
    """As Skaffold fills its templates for an image that was pushed."""
    digest = f"sha256:{'0' * 64}"
    filled = {"IMAGE_REPO": "registry.example/fencepost-operator", "IMAGE_TAG": "v1", "IMAGE_DIGEST": digest}
    values = {}
    for name, template in RELEASE["setValueTemplates"].items():
        field, image = re.fullmatch(r"\{\{\.(IMAGE_[A-Z]+)_(\w+)\}\}", template).groups()  # type: ignore[union-attr]
        assert image.replace("_", "-") in ARTIFACTS
        values[name] = filled[field]
    (container,) = one(objects("fencepost", values=values), "Deployment", "")["spec"]["template"]["spec"]["containers"]
    assert container["image"] == f"{filled['IMAGE_REPO']}@{digest}"


def test_the_jobs_image_is_put_into_the_field_that_holds_it() -> None:
    (selected,) = CONFIG["resourceSelector"]["allow"]
    assert selected["groupKind"] == f"{CRD['spec']['names']['kind']}.{CRD['spec']['group']}"
    (field,) = selected["image"]
    assert at(field.removeprefix("."))["type"] == "string"


def test_the_example_uses_the_image_that_was_built() -> None:
    (profile,) = CONFIG["profiles"]
    (folder,) = profile["manifests"]["kustomize"]["paths"]
    kustomization = yaml.safe_load((REPOSITORY / folder / "kustomization.yaml").read_text())
    bodies = [yaml.safe_load((REPOSITORY / folder / name).read_text()) for name in kustomization["resources"]]
    (pipeline,) = [body for body in bodies if body["kind"] == "StreamingPipeline"]
    assert pipeline["spec"]["job"]["image"].split(":")[0] in ARTIFACTS
