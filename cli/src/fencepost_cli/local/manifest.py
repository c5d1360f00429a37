"""The pipeline of a manifest file."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from fencepost_cli.errors import CliError
from fencepost_operator.api import ObjectKey, Spec
from fencepost_operator.api.parsing import parse

KIND = "StreamingPipeline"


@dataclass(frozen=True, slots=True)
class Manifest:
    """A pipeline that is in no cluster."""

    path: Path
    key: ObjectKey
    spec: Spec


def read_manifest(path: Path) -> Manifest:
    """Return the only pipeline of a YAML file. Raises CliError."""
    try:
        documents = list(yaml.safe_load_all(path.read_text(encoding="utf-8")))
    except (OSError, UnicodeDecodeError) as error:
        raise CliError(f"{path}: {error}", remedy="name the file with the StreamingPipeline") from error
    except yaml.YAMLError as error:
        raise CliError(f"{path} is not YAML: {error}", remedy="correct the file") from error
    found = [each for each in documents if isinstance(each, dict) and each.get("kind") == KIND]
    if len(found) != 1:
        raise CliError(f"{path} has {len(found)} objects of kind {KIND}", remedy="name a file that has one")
    spec = parse(found[0])
    if not isinstance(spec, Spec):
        raise CliError(f"{path}: {spec[0]}", remedy="correct the manifest")
    return Manifest(path, _key(found[0]), spec)


def _key(body: dict[str, Any]) -> ObjectKey:
    metadata = body.get("metadata") or {}
    return ObjectKey(str(metadata.get("namespace") or "default"), str(metadata.get("name") or "pipeline"))
