"""docs/job-image.md and the labels of the image have the versions that are locked."""

from __future__ import annotations

import tomllib

from generators.image_versions import DOCKERFILE, PAGE, ROOT, labels_of, of_spark, packages, page


def test_the_page_is_what_is_locked() -> None:
    assert PAGE.read_text() == page(), "run `make reference`"


def test_the_labels_are_what_is_locked() -> None:
    labels, spark = labels_of(DOCKERFILE.read_text()), of_spark()
    project = tomllib.loads((ROOT / "job-image" / "pyproject.toml").read_text())["project"]
    assert labels["org.opencontainers.image.version"] == project["version"]
    assert (labels["dev.fencepost.spark"], labels["dev.fencepost.scala"]) == (packages()["pyspark"], spark["scala"])
    assert spark["spark"] == packages()["pyspark"]
    assert f"python:{labels['dev.fencepost.python']}-slim" in (ROOT / "docs" / "authors.md").read_text()
