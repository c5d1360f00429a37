# ruff: noqa: INP001 - a script of the image build, no package
"""Reduce the jars of a pyspark wheel to what a Fencepost cluster runs, behind one class path jar.

usage: jars.py [--keep-mllib={true,false}] SPARK_HOME

Spark's launcher puts `jars/*` on the class path of executors, in the order of the directory, which differs from machine
to machine; a class-data-sharing archive needs the same path each time.  So the real jars move to `lib/`, and
`jars/` keeps one jar that names them in its manifest, in a fixed order, and holds the log configuration.
"""

from __future__ import annotations

import argparse
import platform
import shutil
import zipfile
from collections.abc import Callable
from pathlib import Path

MLLIB = "MLlib and GraphX: 41 MB; the image can be built with them"
NOT_NEEDED = {
    "Hive's metastore and its Thrift server: the catalog is in memory": (
        "hive-beeline-", "hive-cli-", "hive-common-", "hive-exec-", "hive-jdbc-", "hive-metastore-", "hive-serde-",
        "hive-service-rpc-", "hive-shims-", "spark-hive", "datanucleus-", "derby", "HikariCP-", "commons-dbcp-",
        "commons-pool-1.", "jdo-api-", "javax.jdo-", "jta-", "transaction-api-", "libfb303-", "libthrift-", "ST4-",
        "antlr-runtime-3.", "stax-api-", "super-csv-", "jpam-", "javolution-", "opencsv-", "json-1.8",
    ),
    "Other cluster managers: Fencepost runs Spark standalone": (
        "kubernetes-", "spark-kubernetes", "vertx-", "volcano-", "zjsonpatch-", "snakeyaml-engine-", "spark-yarn",
    ),
    "ZooKeeper: the master recovers from a volume": ("zookeeper-", "curator-"),
    MLLIB: (
        "spark-mllib", "spark-graphx", "breeze", "spire", "cats-kernel", "algebra_", "JTransforms-", "JLargeArrays-",
        "arpack", "blas-", "lapack-",
    ),
    "Shells, Connect and declarative pipelines: the driver is a Python process": (
        "spark-repl", "spark-connect", "spark-pipelines", "connect-repl", "scala-compiler-", "jline-",
    ),
    "Avro on Hadoop's old interface": ("avro-ipc-", "avro-mapred-"),
}  # fmt: skip
"""Beginnings of names that go, by reason. What stays was found by running the tests on the image."""

CLASS_PATH_JAR = "fencepost-class-path.jar"


def main(spark_home: Path, *, keep_mllib: bool) -> None:
    """Move the needed jars to lib/, and leave only the class path jar in jars/."""
    jars, lib = spark_home / "jars", spark_home / "lib"
    lib.mkdir(exist_ok=True)
    for path in sorted(jars.iterdir()):
        if is_needed(path.name, keep_mllib=keep_mllib):
            path.rename(lib / path.name)
        elif path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink()
    for path in lib.glob("rocksdbjni-*.jar"):
        unpack_library(path, lib)
    for path in [*lib.glob("janino-*.jar"), *lib.glob("commons-compiler-*.jar")]:
        rewrite(path, lambda name: not name.endswith(_SIGNATURES))
    write_class_path_jar(jars / CLASS_PATH_JAR, lib)


def is_needed(name: str, *, keep_mllib: bool = False) -> bool:
    """Return whether a jar stays: not in NOT_NEEDED, and not another platform's native code."""
    removed = (beginnings for group, beginnings in NOT_NEEDED.items() if not (keep_mllib and group == MLLIB))
    if any(name.startswith(beginnings) for beginnings in removed):
        return False
    native = name.startswith(("netty-tcnative-boringssl-", "netty-transport-native-epoll", "netty-transport-native-kq"))
    return not native or name.endswith(f"-linux-{maven_machine()}.jar")


def maven_machine() -> str:
    """Return this machine's name as jars spell it: x86_64 or aarch_64."""
    return {"aarch64": "aarch_64"}.get(platform.machine(), platform.machine())


def unpack_library(path: Path, lib: Path) -> None:
    """Move this platform's library out of RocksDB's jar, and drop the others, which are 60 of its 72 MB.

    RocksDB looks for it on Java's library path first.  From the jar, each JVM unpacks a copy of its own in 0.3 s.
    """
    name = {"x86_64": "librocksdbjni-linux64.so", "aarch64": "librocksdbjni-linux-aarch64.so"}[platform.machine()]
    with zipfile.ZipFile(path) as jar:
        jar.extract(name, lib)
    rewrite(path, lambda entry: not entry.startswith("librocksdbjni-"))


_SIGNATURES = (".SF", ".RSA", ".DSA")
"""Files of a signed jar: the archive takes no class from one, and 331 of Janino's are loaded at the first query."""


def rewrite(path: Path, keep: Callable[[str], bool]) -> None:
    """Rewrite a jar with the entries whose names are to be kept."""
    slim = path.with_suffix(".slim")
    with zipfile.ZipFile(path) as source, zipfile.ZipFile(slim, "w", zipfile.ZIP_DEFLATED) as target:
        for entry in source.infolist():
            if keep(entry.filename):
                target.writestr(entry, source.read(entry))
    slim.replace(path)


def write_class_path_jar(path: Path, lib: Path) -> None:
    """Write the jar whose manifest lists lib/: slf4j first, as Spark's launcher has it, the rest by name."""
    names = sorted((jar.name for jar in lib.glob("*.jar")), key=lambda name: (not name.startswith("slf4j-api-"), name))
    line = "Class-Path: " + " ".join(f"../lib/{name}" for name in names)
    wrapped = [line[:72]] + [" " + line[start : start + 71] for start in range(72, len(line), 71)]
    manifest = "\r\n".join(["Manifest-Version: 1.0", *wrapped, "", ""])
    log_configuration = Path(__file__).with_name("log4j2.properties").read_text()
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as jar:
        jar.writestr("META-INF/MANIFEST.MF", manifest)
        jar.writestr("log4j2.properties", log_configuration)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--keep-mllib", choices=["true", "false"], default="false")
    parser.add_argument("spark_home", type=Path)
    given = parser.parse_args()
    main(given.spark_home, keep_mllib=given.keep_mllib == "true")
