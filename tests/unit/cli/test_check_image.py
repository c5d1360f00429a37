"""Broken images: folders with the files of one, each broken in one way."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from fencepost_cli.checking.image import findings
from fencepost_cli.checking.inspection import report

ENTRYPOINT = "orders:transform"
LIBRARIES = "opt/fencepost/venv/lib/python3.11/site-packages"
CODE = "opt/fencepost/code"
CONFIG = {
    "Cmd": ["fencepost", "run"],
    "User": "10001:0",
    "Env": ["PATH=/bin", "PYTHONPATH=/opt/fencepost/code"],
}


def package(root: Path, folder: str, name: str, version: str, module: str | None = None) -> None:
    info = root / folder / f"{name}-{version}.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n\nText.\n")
    (root / folder / (module or name)).mkdir(exist_ok=True)
    (root / folder / (module or name) / "__init__.py").touch()


def file(root: Path, path: str, text: str = "") -> None:
    (root / path).parent.mkdir(parents=True, exist_ok=True)
    (root / path).write_text(text)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """An image without mistakes, with a jar and a package of its own."""
    file(tmp_path, "opt/fencepost/versions.json", json.dumps({"python": "3.11.2", "scala": "2.13"}))
    for name, version in (("pyspark", "4.3.0"), ("pyarrow", "24.0.0"), ("numpy", "2.3.1")):
        package(tmp_path, LIBRARIES, name, version)
    file(tmp_path, f"{LIBRARIES}/pyspark/jars/fencepost-class-path.jar")
    for jar in ("spark-core_2.13-4.3.0", "guava-33.4.0-jre", "scala-library-2.13.16"):
        file(tmp_path, f"{LIBRARIES}/pyspark/lib/{jar}.jar")
    file(tmp_path, f"{CODE}/orders.py", "import shapely\n\ndef transform(batch, context):\n    return batch\n")
    package(tmp_path, CODE, "shapely", "2.1.0")
    file(tmp_path, f"{CODE}/shapely/lib.cpython-311-x86_64-linux-gnu.so")
    file(tmp_path, "opt/jars/sedona_2.13-1.8.0.jar")
    return tmp_path


def found(root: Path, config: Mapping[str, Any] = CONFIG, entrypoint: str = ENTRYPOINT) -> list[tuple[str, str]]:
    seen = findings({**report(root), "config": config}, entrypoint)
    assert all(one.remedy for one in seen)
    return [(one.place, one.problem) for one in seen]


def test_an_image_without_mistakes_has_no_findings(root: Path) -> None:
    assert found(root) == []


def rewrite(path: str, text: str) -> Callable[[Path], None]:
    return lambda root: file(root, path, text)


BROKEN: Mapping[str, tuple[Callable[[Path], object], str, str]] = {
    "no base image": (
        lambda root: (root / "opt/fencepost/versions.json").unlink(), "image", "is not built from fencepost-job"),
    "no module": (
        lambda root: (root / CODE / "orders.py").unlink(), "entrypoint orders:transform", "module orders is not in"),
    "no function": (
        rewrite(f"{CODE}/orders.py", "def transfrom(batch, context): ..."), "entrypoint orders:transform",
        "module orders defines no transform"),
    "syntax of another Python": (
        rewrite(f"{CODE}/shapes.py", "match value\n"), f"/{CODE}/shapes.py", "SyntaxError"),
    "a second pyspark": (
        lambda root: package(root, CODE, "pyspark", "3.5.1"), f"/{CODE}/pyspark",
        "3.5.1 is imported in place of the image's 4.3.0"),
    "a second Arrow": (
        lambda root: package(root, CODE, "pyarrow", "15.0.0"), f"/{CODE}/pyarrow",
        "15.0.0 is imported in place of the image's 24.0.0"),
    "a module that hides a package": (
        rewrite(f"{CODE}/fencepost.py", ""), f"/{CODE}/fencepost", "hides a package of the image"),
    "a package twice": (
        lambda root: package(root, CODE, "shapely", "1.8.0"), f"/{CODE}/shapely", "in the versions 1.8.0, 2.1.0"),
    "a package for another Python": (
        rewrite(f"{CODE}/shapely/geos.cpython-313-x86_64-linux-gnu.so", ""),
        f"/{CODE}/shapely/geos.cpython-313-x86_64-linux-gnu.so", "is built for Python 3.13, and the image has 3.11"),
    "another Scala": (
        rewrite("opt/jars/spark-cassandra-connector_2.12-3.5.1.jar", ""),
        "/opt/jars/spark-cassandra-connector_2.12-3.5.1.jar", "is built for Scala 2.12"),
    "a jar of Spark in another version": (
        rewrite("opt/jars/guava-19.0.jar", ""), "/opt/jars/guava-19.0.jar", "Spark's own 33.4.0-jre comes first"),
    "a jar twice": (
        rewrite("home/me/sedona_2.13-1.7.0.jar", ""), "sedona.jar", "in the versions 1.7.0, 1.8.0"),
    "a jar in Spark's folder": (
        rewrite(f"{LIBRARIES}/pyspark/jars/my-udfs-1.0.jar", ""), f"/{LIBRARIES}/pyspark/jars/my-udfs-1.0.jar",
        "are not read one by one"),
    "code that the driver cannot read": (
        lambda root: (root / CODE / "orders.py").chmod(0o600), f"/{CODE}/orders.py", "cannot be read by uid 10001"),
}  # fmt: skip


@pytest.mark.parametrize("name", BROKEN)
def test_what_is_broken_is_the_only_finding(root: Path, name: str) -> None:
    breaks, place, problem = BROKEN[name]
    breaks(root)
    ((where, what),) = found(root)
    assert where == place
    assert problem in what


@pytest.mark.parametrize(
    ("change", "place"),
    [
        ({"Cmd": ["python", "orders.py"]}, "CMD"),
        ({"User": ""}, "USER"),
        ({"User": "0:0"}, "USER"),
        ({"Env": ["PYTHONPATH=/app"]}, "ENV PYTHONPATH"),
    ],
)
def test_a_configuration_that_the_pods_do_not_get_is_named(root: Path, change: Mapping[str, Any], place: str) -> None:
    assert [where for where, _ in found(root, {**CONFIG, **change})] == [place]


def test_a_module_of_a_package_needs_no_file_in_the_code_folder(root: Path) -> None:
    package(root, LIBRARIES, "team-jobs", "1.0", module="team_jobs")
    assert found(root, entrypoint="team_jobs.orders:transform") == []
