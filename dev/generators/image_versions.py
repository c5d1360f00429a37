"""Write docs/job-image.md: the version of each part of the job image; `make reference` runs it."""

from __future__ import annotations

import importlib.util
import re
import tomllib
from collections.abc import Iterator, Mapping
from importlib.metadata import distribution
from pathlib import Path
from types import ModuleType
from typing import Any, Final

from packaging.markers import Marker

from present import present

ROOT: Final = Path(__file__).resolve().parents[2]
PAGE: Final = ROOT / "docs/job-image.md"
DOCKERFILE: Final = ROOT / "job-image/Dockerfile"
_LABEL: Final = re.compile(r"([a-z.]+)=(\S+)")

HEAD: Final = """# What is in the job image

Written from the locked packages (`make reference`). An image has the same in `/opt/fencepost/versions.json`, with the
versions of Debian, Python and Java of its build, and the main ones as labels.
[`fencepost check IMAGE`](cli.md#checks-before-the-first-run) compares your image with them.

```console
$ docker run --rm IMAGE cat /opt/fencepost/versions.json
$ docker image inspect --format '{{json .Config.Labels}}' IMAGE
```
"""


def page() -> str:
    """Return the page."""
    spark = of_spark()
    labels = labels_of(DOCKERFILE.read_text())
    main = {
        "Python": labels["dev.fencepost.python"],
        "Java": "17",
        "Spark": spark["spark"],
        "Scala": spark["scala"],
        "Hadoop client": spark["hadoop"],
    }
    parts = [HEAD, *_table("part", main), "", "## Python packages", "", *_table("package", packages())]
    return "\n".join([*parts, "", "## Jars of Spark", "", *_table("jar", spark["jars"]), ""])


def labels_of(dockerfile: str) -> dict[str, str]:
    """Return the labels of the image."""
    (text,) = re.findall(r"^LABEL ((?:.*\\\n)*.*)$", dockerfile, re.MULTILINE)
    return dict(_LABEL.findall(text))


def of_spark() -> Mapping[str, Any]:
    """Return the versions of the jars of the installed PySpark that the image keeps; each machine has the same."""
    jars = present(distribution("pyspark").locate_file("pyspark/jars"))
    kept = _script("jars").is_needed
    names = (path.name for path in Path(str(jars)).glob("*.jar") if kept(path.name))
    found: Mapping[str, Any] = _script("versions").of_spark(
        re.sub(r"-linux-[a-z0-9_]+(?=\.jar)", "", one) for one in names
    )
    return found


def packages() -> dict[str, str]:
    """Return the locked packages of the driver with Spark, on the image's Python, by their names."""
    locked = tomllib.loads((ROOT / "uv.lock").read_text())["package"]
    python = labels_of(DOCKERFILE.read_text())["dev.fencepost.python"]
    image = {
        "python_version": python,
        "python_full_version": f"{python}.0",
        "sys_platform": "linux",
        "implementation_name": "cpython",
    }

    def chosen(needed: Mapping[str, Any]) -> Mapping[str, Any]:
        several = [one for one in locked if one["name"] == needed["name"]]
        (one,) = [one for one in several if one["version"] == needed.get("version", one["version"])]
        return dict(one)

    found, left = dict[str, str](), [{"name": "fencepost", "extra": ["spark"]}]
    while left:
        one = chosen(wanted := left.pop())
        found[one["name"]] = one["version"]
        extras = one.get("optional-dependencies", {})
        needed = [*one.get("dependencies", []), *(each for name in wanted.get("extra", ()) for each in extras[name])]
        left += [
            each
            for each in needed
            if each["name"] not in found and ("marker" not in each or Marker(each["marker"]).evaluate(image))
        ]
    return dict(sorted(found.items()))


def _script(name: str) -> ModuleType:
    spec = present(importlib.util.spec_from_file_location(name, ROOT / "job-image" / "build" / f"{name}.py"))
    module = importlib.util.module_from_spec(spec)
    present(spec.loader).exec_module(module)
    return module


def _table(title: str, versions: Mapping[str, str]) -> Iterator[str]:
    yield f"| {title} | version |"
    yield "|---|---|"
    yield from (f"| {name} | {version} |" for name, version in versions.items())


if __name__ == "__main__":
    PAGE.write_text(page())
