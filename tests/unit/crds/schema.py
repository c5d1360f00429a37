"""The CRDs as data, and the parts of the API server's behaviour that need no API server."""

import copy
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import yaml

REPOSITORY: Final = Path(__file__).resolve().parents[3]
FOLDER: Final = REPOSITORY / "crds"
FILE: Final = FOLDER / "streamingpipelines.streaming.fencepost.dev.yaml"

Schema = dict[str, Any]

# The loader in C reads them in a tenth of the time, and each process of the tests reads them.
CRDS: Final[dict[str, dict[str, Any]]] = {
    crd["spec"]["names"]["plural"]: crd
    for crd in (yaml.load(path.read_text(), yaml.CSafeLoader) for path in sorted(FOLDER.glob("*.yaml")))
}
"""Each by its plural name."""
CRD: Final = CRDS["streamingpipelines"]
VERSION: Final[dict[str, Any]] = CRD["spec"]["versions"][0]
ROOT: Final[Schema] = VERSION["schema"]["openAPIV3Schema"]


def walk(schema: Schema, path: str = "") -> Iterator[tuple[str, Schema]]:
    """Every (path, schema), from the root down; `[]` is an item of a list, `{}` a value of a map."""
    yield path, schema
    for name, part in schema.get("properties", {}).items():
        yield from walk(part, f"{path}.{name}" if path else name)
    if "items" in schema:
        yield from walk(schema["items"], f"{path}[]")
    if "additionalProperties" in schema:
        yield from walk(schema["additionalProperties"], f"{path}{{}}")


def at(path: str) -> Schema:
    """The schema at a path as `walk` writes it."""
    (found,) = [schema for place, schema in walk(ROOT) if place == path]
    return found


def defaulted(value: Any, schema: Schema = ROOT) -> Any:
    """`value` with the schema's defaults filled in, as the API server stores it."""
    if isinstance(value, dict):
        value = dict(value)
        for name, part in schema.get("properties", {}).items():
            if name not in value and "default" in part:
                value[name] = copy.deepcopy(part["default"])
            if name in value:
                value[name] = defaulted(value[name], part)
    elif isinstance(value, list):
        value = [defaulted(item, schema.get("items", {})) for item in value]
    return value


def strict(schema: Schema = ROOT) -> Schema:
    """As JSON Schema of today, and refusing unknown fields, as kubectl asks the API server to."""
    result = {key: part for key, part in schema.items() if not key.startswith("x-") and key != "format"}
    if "properties" in schema:
        result["properties"] = {name: strict(part) for name, part in schema["properties"].items()}
        result["additionalProperties"] = False
    for key in ("items", "additionalProperties"):
        if key in schema:
            result[key] = strict(schema[key])
    if "pattern" in schema:
        # The API server's engine ends at the end of the text, Python's `$` also before a last newline.
        result["pattern"] = schema["pattern"].removesuffix("$") + r"\Z"
    if schema.get("x-kubernetes-int-or-string"):
        result["type"] = ["integer", "string"]
    if schema is ROOT:
        result["properties"]["metadata"] = {"type": "object"}
    return result


def minimal() -> dict[str, Any]:
    """A pipeline that says no more than it must."""
    body: dict[str, Any] = yaml.safe_load((REPOSITORY / "examples" / "minimal.yaml").read_text())
    return body
