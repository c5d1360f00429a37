"""What goes into the images is named by what it contains, or can be: packages by hash, base images by digest."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path
from types import ModuleType
from typing import Final

import pytest

from present import present

ROOT: Final = Path(__file__).parents[3]
DOCKERFILES: Final = (ROOT / "Dockerfile", ROOT / "job-image" / "Dockerfile")
EACH: Final = pytest.mark.parametrize("path", DOCKERFILES, ids=["operator", "job"])


@EACH
def test_each_base_image_is_an_argument_that_a_release_gives_by_digest(path: Path) -> None:
    text = path.read_text()
    bases = re.findall(r"^FROM (\S+)", text, re.MULTILINE)
    stages = set(re.findall(r"^FROM \S+ AS (\S+)", text, re.MULTILINE))
    arguments = re.findall(r"^ARG (\w+)=", text[: text.index("\nFROM ")], re.MULTILINE)
    assert {base for base in bases if base not in stages} == {f"${{{name}}}" for name in arguments}


@EACH
def test_python_packages_are_installed_by_hash_alone(path: Path) -> None:
    commands = re.findall(r"\bpip\b[^&]*? install [^&]*", path.read_text().replace("\\\n", " "))
    assert len(commands) == 2
    assert all("--require-hashes" in command for command in commands)


def test_uv_has_one_version_with_hashes() -> None:
    text = (ROOT / "uv.txt").read_text()
    assert re.search(r"^uv==[0-9.]+ \\\n( +--hash=sha256:[0-9a-f]{64}( \\)?\n)+$", text, re.MULTILINE)
    for path in (*DOCKERFILES, ROOT / "Makefile"):
        assert "uv.txt" in path.read_text()
        assert "uv==" not in path.read_text().replace("sed -n 's/^uv==", "")


def jars() -> ModuleType:
    spec = present(importlib.util.spec_from_file_location("jars", ROOT / "job-image" / "build" / "jars.py"))
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize(
    "name", ["spark-mllib_2.13-4.3.0.jar", "spark-graphx_2.13-4.3.0.jar", "breeze_2.13-2.1.0.jar", "blas-3.0.3.jar"]
)
def test_mllib_and_graphx_stay_where_the_build_keeps_them(name: str) -> None:
    module = jars()
    assert not module.is_needed(name)
    assert module.is_needed(name, keep_mllib=True)
    assert not module.is_needed("spark-hive_2.13-4.3.0.jar", keep_mllib=True)
    assert "ARG KEEP_MLLIB=false" in DOCKERFILES[1].read_text()
