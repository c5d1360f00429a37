"""An image, from what the inspection script found in it: code, packages and jars that a run would stumble over."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from fencepost_cli.ports import Finding

CODE: Final = "/opt/fencepost/code"
SPARK_JARS: Final = re.compile(r"/opt/fencepost/venv/lib/[^/]+/site-packages/pyspark/(jars|lib)/")
_PROVIDED: Final = frozenset(
    {"cassandra", "confluent_kafka", "fencepost", "msgspec", "numpy", "pandas", "py4j", "pyarrow", "pyspark"}
)
"""Modules of the base image: a second copy in the code folder is imported in their place."""
_JAR: Final = re.compile(r"(?P<name>[A-Za-z].*?)(_(?P<scala>2\.1[0-9]|3))?-(?P<version>[0-9][^/]*)\.jar")
_PYTHON_OF_NATIVE: Final = re.compile(r"\.cpython-(\d)(\d+)-")
_COMMAND: Final = ["fencepost", "run"]
_UID: Final = 10001

Report = Mapping[str, Any]


def findings(report: Report, entrypoint: str | None = None) -> list[Finding]:
    """Return what is wrong with an image; `entrypoint` is 'module:function', None where it is not known."""
    if not report["versions"] or not report["pythons"]:
        return [
            Finding(
                "image",
                "is not built from fencepost-job: it has no /opt/fencepost/versions.json",
                "begin the Dockerfile with FROM fencepost-job, in the version of your operator",
            )
        ]
    found = [*_configuration(report.get("config") or {}), *_code(report), *_packages(report), *_jars(report)]
    return [*found, *(_entrypoint(report, entrypoint) if entrypoint else ())]


def _configuration(config: Mapping[str, Any]) -> Iterator[Finding]:
    if not config:
        return
    if (config.get("Cmd") or _COMMAND) != _COMMAND:
        yield Finding(
            "CMD", f"is {config['Cmd']}, and the driver is started with {_COMMAND}", "remove it from the Dockerfile"
        )
    user = str(config.get("User") or "root").partition(":")[0]
    if user in {"root", "0"}:
        yield Finding("USER", "is root, which pods may not be", f"end the Dockerfile with USER {_UID}:0")
    path = dict(variable.partition("=")[::2] for variable in config.get("Env") or ()).get("PYTHONPATH", "")
    if CODE not in path.split(":"):
        yield Finding("ENV PYTHONPATH", f"is {path!r}, without {CODE}", f"add {CODE}, or remove the line")


def _code(report: Report) -> Iterator[Finding]:
    for broken in report["broken"]:
        yield Finding(broken["path"], broken["error"], "correct the file, for the Python of the image")
    for path in report["unreadable"]:
        yield Finding(path, f"cannot be read by uid {_UID}", "COPY it with --chmod=a+rX")
    (python,) = report["pythons"][:1]
    for path in report["native"]:
        built = _PYTHON_OF_NATIVE.search(path)
        if built and f"{built[1]}.{built[2]}" != python:
            yield Finding(
                path,
                f"is built for Python {built[1]}.{built[2]}, and the image has {python}",
                f"install the package with FROM python:{python}-slim, as in docs/authors.md",
            )


def _packages(report: Report) -> Iterator[Finding]:
    in_code = set(report["modules"].get(CODE, ()))
    base = {one["name"]: one["version"] for one in report["packages"] if one["folder"] != CODE}
    own: dict[str, list[str]] = {}
    for one in report["packages"]:
        if one["folder"] == CODE:
            own.setdefault(one["name"], []).append(one["version"])
    for name, versions in sorted(own.items()):
        if len(versions) > 1:
            yield Finding(
                f"{CODE}/{name}",
                f"is there in the versions {', '.join(sorted(versions))}",
                "install it once, into an empty folder",
            )
        if name in base:
            yield Finding(
                f"{CODE}/{name}",
                f"{versions[0]} is imported in place of the image's {base[name]}",
                "leave it out of the requirements, or delete its folders after pip install --target",
            )
    for module in sorted(in_code & _PROVIDED):
        if not any(module in {name, name.replace("-", "_")} for name in own):
            yield Finding(f"{CODE}/{module}", "hides a package of the image", "rename or remove it")


def _jars(report: Report) -> Iterator[Finding]:
    scala = report["versions"].get("scala", "")
    named = [(path, _JAR.fullmatch(path.rpartition("/")[2])) for path in report["jars"]]
    sparks = {found["name"]: found["version"] for path, found in named if found and SPARK_JARS.match(path)}
    own = [(path, found) for path, found in named if not SPARK_JARS.match(path)]
    yield from _misplaced(report["jars"])
    versions: dict[str, set[str]] = {}
    for path, found in own:
        if not found:
            continue
        if found["scala"] and found["scala"] != scala:
            yield Finding(
                path,
                f"is built for Scala {found['scala']}, and Spark of the image for {scala}",
                f"use {found['name']}_{scala}",
            )
        versions.setdefault(found["name"], set()).add(found["version"])
        if found["name"] in sparks and sparks[found["name"]] != found["version"]:
            yield Finding(
                path,
                f"is {found['version']}, and Spark's own {sparks[found['name']]} comes first on the class path",
                "leave it out, or shade its packages",
            )
    for name, several in sorted(versions.items()):
        if len(several) > 1:
            yield Finding(f"{name}.jar", f"is there in the versions {', '.join(sorted(several))}", "keep one of them")


def _misplaced(jars: Sequence[str]) -> Iterator[Finding]:
    for path in jars:
        place = SPARK_JARS.match(path)
        if place and place[1] == "jars" and not path.endswith("/fencepost-class-path.jar"):
            yield Finding(
                path,
                "is in a folder of Spark whose jars are not read one by one",
                "COPY it elsewhere, and name it in extraClassPath of driver and executor (docs/authors.md)",
            )


def _entrypoint(report: Report, entrypoint: str) -> Iterator[Finding]:
    module, _, function = entrypoint.partition(":")
    known = report["functions"]
    if module in known:
        if function.partition(".")[0] not in known[module]:
            yield Finding(
                f"entrypoint {entrypoint}",
                f"module {module} defines no {function}",
                f"use one of {', '.join(known[module]) or 'no names'}, or correct spec.job.entrypoint",
            )
    elif not any(module.partition(".")[0] in names for names in report["modules"].values()):
        there = ", ".join(sorted(known)) or "no module"
        yield Finding(
            f"entrypoint {entrypoint}",
            f"module {module} is not in the image; {CODE} has {there}",
            f"COPY {module.replace('.', '/')}.py {CODE}/",
        )
