# ruff: noqa: INP001 - a script of the image build, no package
"""Write the version of everything in the image, as JSON.

usage: versions.py PYPROJECT OUTPUT
"""

from __future__ import annotations

import json
import platform
import re
import sys
import tomllib
from collections.abc import Iterable, Mapping
from importlib.metadata import distributions
from pathlib import Path
from typing import Any

_JAR = re.compile(r"(?P<name>.+?)-(?P<version>\d[^/]*)\.jar")


def main(pyproject: Path, output: Path) -> None:
    """Write the file."""
    release = dict(re.findall(r'^(\w+)="(.*)"$', Path("/opt/java/release").read_text(), re.MULTILINE))
    found = {
        "fencepost": tomllib.loads(pyproject.read_text())["project"]["version"],
        "debian": Path("/etc/debian_version").read_text().strip(),
        "python": platform.python_version(),
        "java": release["JAVA_VERSION"],
        "machine": platform.machine(),
        **of_spark(path.name for path in Path("/opt/spark/lib").glob("*.jar")),
        "packages": dict(sorted((one.name, one.version) for one in distributions())),
    }
    output.write_text(json.dumps(found, indent=2) + "\n")


def of_spark(jars: Iterable[str]) -> Mapping[str, Any]:
    """Return the versions of Spark, Scala and Hadoop, and of each jar by its name."""
    named = (_JAR.fullmatch(name) for name in sorted(jars))
    versions = {jar["name"]: jar["version"] for jar in named if jar}
    (core,) = (name for name in versions if name.startswith("spark-core_"))
    return {
        "spark": versions[core],
        "scala": core.removeprefix("spark-core_"),
        "hadoop": versions["hadoop-client-runtime"],
        "jars": versions,
    }


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
