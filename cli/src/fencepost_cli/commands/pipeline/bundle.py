"""`fencepost bundle`: an archive for whoever helps with a pipeline, without secrets."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from fencepost_cli.commands.options import Named, of_object
from fencepost_cli.commands.output import note, print_json, print_line, working
from fencepost_cli.errors import CliError
from fencepost_cli.explanation import explained
from fencepost_cli.ports import Json, Related
from fencepost_cli.support_bundle import Covers, archive_of, file_name, yaml_of
from fencepost_operator.api import ObjectKey
from fencepost_operator.desired import labels

MOST_PODS: Final = 20
"""Pods of each of LOGGED of which the logs are read."""
TAIL: Final = 20_000
"""Lines of one log."""
LOGGED: Final = (labels.DRIVER, labels.TRIAL, labels.PURGE)
"""Components whose logs are read; the container has the same name."""
_KINDS: Final = {
    Related.REWINDS: "rewinds.yaml",
    Related.TRIALS: "trials.yaml",
    Related.JOBS: "jobs.yaml",
    Related.PODS: "pods.yaml",
    Related.EVENTS: "events.yaml",
}


@of_object
def bundle(
    target: Named,
    *,
    to: Annotated[
        Path | None,
        typer.Option("--to", metavar="FILE", help="[default: NAMESPACE-NAME-TIME.tar.gz]", show_default=False),
    ] = None,
) -> None:
    """Write an archive with what the cluster has of a pipeline: no Secrets, and no values of variables."""
    now = datetime.now(UTC)
    folder = file_name(f"{target.key.namespace}-{target.key.name}-{now:%Y%m%dT%H%M%SZ}")
    path = to or Path(f"{folder}.tar.gz")
    body = target.objects.pipeline(target.key)
    with working(f"reading {target.key}") as progress:
        found = _Files(Covers(target.objects.secret_values(body)), progress.show)
        _collect(target, body, found)
    found.texts["README.txt"] = _readme(target, now, found)
    _write(path, archive_of(found.texts, folder))
    if target.is_json:
        print_json({"file": str(path), "files": sorted(found.texts), "missing": found.missing})
        return
    print_line(f"{path}: {len(found.texts)} files, secrets are covered")
    for name, why in found.missing.items():
        note(f"{name} is missing: {why}")
    note("read it before you send it: a log may hold what only you know to be secret")


@dataclass(slots=True)
class _Files:
    covers: Covers
    show: Callable[[str], None]
    texts: dict[str, str] = field(default_factory=dict)
    missing: dict[str, str] = field(default_factory=dict)

    def add(self, path: str, read: Callable[[], Any]) -> Any:  # noqa: ANN401 - JSON, or a text
        """Add what is read: a text as it is, else as YAML; remember why it cannot be read."""
        self.show(path)
        try:
            value = read()
        except CliError as error:
            self.missing[path] = self.covers.text(f"{error}; {error.remedy}")
            return None
        is_text = isinstance(value, str)
        self.texts[path] = self.covers.text(value) if is_text else yaml_of(self.covers.fields(value))
        return value


def _collect(target: Named, body: Json, found: _Files) -> None:
    objects, key = target.objects, target.key
    found.add("pipeline.yaml", lambda: body)
    found.add("explained.yaml", lambda: [_line(one) for one in explained(body)])
    kinds: Mapping[Related, Any] = {
        kind: found.add(path, partial(objects.related, key, kind)) for kind, path in _KINDS.items()
    }
    for component in LOGGED:
        for name in _newest(kinds[Related.PODS] or [], component):
            pod = ObjectKey(key.namespace, name)
            found.add(f"logs/{file_name(name)}.log", partial(_log, target, pod, component))
            if component == labels.DRIVER:
                found.add(f"metrics/{file_name(name)}.txt", partial(objects.driver_metrics, pod))
    found.add("operator.yaml", lambda: [_operator(one) for one in objects.operators()])


def _newest(pods: list[Json], component: str) -> list[str]:
    """Return the names of the newest pods of a component."""
    found = [
        pod["metadata"] for pod in pods if (pod["metadata"].get("labels") or {}).get(labels.COMPONENT) == component
    ]
    found.sort(key=lambda metadata: str(metadata.get("creationTimestamp")), reverse=True)
    return [str(metadata["name"]) for metadata in found[:MOST_PODS]]


def _log(target: Named, pod: ObjectKey, container: str) -> str:
    parts = list[str]()
    target.objects.container_log(pod, parts.append, container=container, tail=TAIL)
    return "".join(parts)


def _operator(deployment: Json) -> dict[str, Any]:
    """Return which operator it is; its settings are the platform's."""
    metadata, spec = deployment["metadata"], deployment.get("spec") or {}
    containers = ((spec.get("template") or {}).get("spec") or {}).get("containers") or []
    return {
        "namespace": metadata.get("namespace"),
        "name": metadata.get("name"),
        "version": (metadata.get("labels") or {}).get("app.kubernetes.io/version"),
        "images": [container.get("image") for container in containers],
        "replicas": spec.get("replicas"),
    }


def _line(one: Any) -> dict[str, Any]:  # noqa: ANN401 - an Explained
    return {
        "condition": one.kind,
        "status": one.status,
        "reason": one.reason,
        "message": one.message,
        "wrong": one.is_wrong,
    }


def _readme(target: Named, now: datetime, found: _Files) -> str:
    lines = [
        f"Pipeline {target.key}, at {now:%Y-%m-%dT%H:%M:%SZ}, by fencepost {version('fencepost-cli')}.",
        "Values of Secrets and of environment variables are covered with ***.",
        "",
        *(f"missing: {path}: {why}" for path, why in found.missing.items()),
    ]
    return "\n".join(lines) + "\n"


def _write(path: Path, content: bytes) -> None:
    """Write a new file that only this account reads. Raises CliError."""
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
    except OSError as error:
        raise CliError(f"{path} cannot be written: {error.strerror}", remedy="name another file with --to") from error
