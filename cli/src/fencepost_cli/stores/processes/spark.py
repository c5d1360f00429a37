"""A Python process with Spark, for commands that do without Spark themselves."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from importlib.util import find_spec
from typing import Final

from fencepost_cli.errors import CliError

_OF_ANOTHER_SPARK: Final = ("HADOOP_", "PYSPARK_", "SPARK_")
"""Variables that would bring another Spark, or another session's JVM."""
NO_ANSWER: Final = "see whether `java -version` is 17 or 21, and whether this machine has 2 GiB of free memory"
"""The remedy for such a process that ends without its answer."""


def check_installed(purpose: str, *, otherwise: str = "") -> None:
    """Raise CliError where Spark or Java is missing.

    `purpose` begins the message, as in 'the state is read'. `otherwise` ends the remedy: what works without Spark.
    """
    if find_spec("pyspark") is None:
        raise CliError(
            f"{purpose} with Spark, and the package pyspark is not installed",
            remedy=f"install the command with its extra: uv tool install './cli[spark]'{otherwise}",
        )
    home = os.environ.get("JAVA_HOME")
    if not home and shutil.which("java") is None:
        raise CliError(
            f"{purpose} with Spark, and no java is on the PATH",
            remedy="install Java 17 or 21 (Debian: apt-get install openjdk-17-jre-headless; macOS: brew install"
            f" openjdk@21), or set JAVA_HOME to its folder{otherwise}",
        )
    if home and shutil.which("java", path=os.path.join(home, "bin")) is None:  # noqa: PTH118 - a PATH is text
        raise CliError(
            f"{purpose} with Spark, and JAVA_HOME={home} has no bin/java", remedy=f"correct JAVA_HOME{otherwise}"
        )


def variables() -> Mapping[str, str]:
    """Return the environment of such a process."""
    return {**{key: value for key, value in os.environ.items() if not key.startswith(_OF_ANOTHER_SPARK)}, "TZ": "UTC"}
