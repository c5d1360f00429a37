"""A pipeline.yaml: what the API server or the operator would refuse."""

from __future__ import annotations

import difflib
import typing
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, is_dataclass
from pathlib import Path
from typing import Any, Final

import yaml

from fencepost_cli.errors import CliError
from fencepost_cli.ports import Finding
from fencepost_operator.api import GROUP, KIND, SERVED_TOO, VERSION, Spec, parse
from fencepost_operator.api.model import fields_of, without_marks

API_VERSION: Final = f"{GROUP}/{VERSION}"
_KNOWN: Final = frozenset(f"{GROUP}/{version}" for version in (VERSION, *SERVED_TOO))


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest:
    """A StreamingPipeline of a file; `spec` is None where it cannot be understood."""

    name: str
    namespace: str | None
    spec: Spec | None
    findings: tuple[Finding, ...]


def read_manifests(path: Path) -> list[Manifest]:
    """Return the StreamingPipelines of a file. Raises CliError for a file without one."""
    try:
        documents = list(yaml.load_all(path.read_text(), _Loader))
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise CliError(f"cannot read {path}: {error}", remedy="correct the file") from error
    found = [_manifest(one) for one in documents if isinstance(one, Mapping) and one.get("kind") == KIND]
    if not found:
        raise CliError(f"{path} has no object of kind {KIND}", remedy=f"set kind: {KIND}, or name another file")
    return found


class _Loader(yaml.SafeLoader):
    """Refuses a key that is there twice, of which PyYAML would take the last one."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        """Return the mapping of a node. Raises yaml.YAMLError."""
        seen = set[Any]()
        for key, _ in node.value:
            if key.value in seen and key.value != "<<":
                raise yaml.constructor.ConstructorError(None, None, f"key {key.value!r} is there twice", key.start_mark)
            seen.add(key.value)
        return super().construct_mapping(node, deep)


def _manifest(document: Mapping[str, Any]) -> Manifest:
    metadata = document.get("metadata")
    metadata = metadata if isinstance(metadata, Mapping) else {}
    name = str(metadata.get("name") or "")
    raw = document.get("spec")
    parsed = parse(document)
    findings = [*_identity(document, name), *_unknown(raw, Spec, "spec")]
    if not isinstance(parsed, Spec):
        findings += [Finding(one.field, one.problem, one.remedy) for one in parsed]
    return Manifest(
        name=name,
        namespace=metadata.get("namespace"),
        spec=parsed if isinstance(parsed, Spec) else None,
        findings=tuple(findings),
    )


def _identity(document: Mapping[str, Any], name: str) -> Iterator[Finding]:
    if document.get("apiVersion") not in _KNOWN:
        yield Finding("apiVersion", f"is {document.get('apiVersion')!r}", f"set it to {API_VERSION}")
    if not name:
        yield Finding("metadata.name", "is missing", "add it")


def _unknown(raw: Any, kind: Any, path: str) -> Iterator[Finding]:  # noqa: ANN401 - JSON, and a type
    """Yield the fields that the API does not have: kubectl refuses them, other tools drop them silently."""
    kind, _ = without_marks(kind)
    origin, parts = typing.get_origin(kind), typing.get_args(kind)
    if is_dataclass(kind) and isinstance(raw, Mapping):
        known = {field.in_json: field.kind for field in fields_of(kind)}
        for key, value in raw.items():
            if key in known:
                yield from _unknown(value, known[key], f"{path}.{key}")
            else:
                near = difflib.get_close_matches(str(key), known, n=1)
                remedy = f"write {near[0]}" if near else f"use one of {', '.join(sorted(known))}"
                yield Finding(f"{path}.{key}", "is not a field of the API", remedy)
    elif origin is tuple and isinstance(raw, list):
        for index, item in enumerate(raw):
            yield from _unknown(item, parts[0], f"{path}[{index}]")
    elif isinstance(origin, type) and issubclass(origin, Mapping) and isinstance(raw, Mapping):
        for key, value in raw.items():
            yield from _unknown(value, parts[1], f"{path}.{key}")
