"""What Helm applied, as the Secret of a revision keeps it, and whether a live object still is that.

The comparison is Helm's own: what the manifest does not name belongs to the API server's defaults or to others.
"""

from __future__ import annotations

import base64
import gzip
import json
import zlib
from collections.abc import Iterator, Mapping
from typing import Any, Final

from fencepost_operator.api.quantities import parse_quantity
from fencepost_operator.desired import labels

Manifest = Mapping[str, Any]

_KEYS: Final = ("uid", "mountPath", "name")
"""Fields by which lists are merged: items of others may stand beside ours, as the sidecars of a mesh do."""
_METADATA: Final = ("labels", "annotations", "ownerReferences")
_CONTENT: Final = ("type", "data", "spec")


def applied_objects(secret: Manifest) -> tuple[Manifest, ...]:
    """Return the objects of a revision from its Secret: the post-renderer wrote each as one line of JSON.

    Raises ValueError, KeyError or OSError for what Helm does not write.
    """
    packed = base64.b64decode(base64.b64decode(secret["data"]["release"]))
    try:
        release = gzip.decompress(packed)
    except (EOFError, zlib.error) as error:  # gzip raises neither as an OSError
        raise ValueError(f"the release is not whole: {error}") from error
    lines: list[str] = json.loads(release)["manifest"].splitlines()
    return tuple(json.loads(line) for line in lines if line != "---")


def damage(wanted: Manifest, live: Manifest | None) -> str:
    """Return that an object is missing, or which field is not as it was applied; '' otherwise.

    The number of workers is left out: it is compared with what the spec asks for, not with the last installation.
    """
    metadata = wanted["metadata"]
    place = f"{wanted['kind']} {metadata['name']} was"
    if live is None:
        return f"{place} deleted"
    if "deletionTimestamp" in live["metadata"]:
        return ""
    content = {name: wanted[name] for name in _CONTENT if name in wanted}
    if metadata.get("labels", {}).get(labels.COMPONENT) == labels.WORKER and "spec" in content:
        content["spec"] = {name: value for name, value in content["spec"].items() if name != "replicas"}
    compared = {"metadata": {name: metadata.get(name) for name in _METADATA}, **content}
    changed = next(_changes(compared, live, ()), None)
    return f"{place} changed ({'.'.join(changed)})" if changed else ""


def _changes(wanted: Any, live: Any, path: tuple[str, ...]) -> Iterator[tuple[str, ...]]:  # noqa: ANN401 - JSON
    """Yield the path of each field that is not as wanted."""
    if isinstance(wanted, dict) and isinstance(live, dict):
        for name, part in wanted.items():
            yield from _changes(part, live.get(name), (*path, name))
    elif isinstance(wanted, list) and isinstance(live, list):
        key = next((key for key in _KEYS if all(isinstance(item, dict) and key in item for item in wanted)), None)
        if key is not None:
            by_key = {item.get(key): item for item in live if isinstance(item, dict)}
            for item in wanted:
                yield from _changes(item, by_key.get(item[key]), (*path, str(item[key])))
        elif len(wanted) == len(live):
            for number, (one, other) in enumerate(zip(wanted, live, strict=True)):
                yield from _changes(one, other, (*path, str(number)))
        else:
            yield path
    elif wanted is not None and not _is_same(wanted, live):
        yield path


def _is_same(wanted: object, live: object) -> bool:
    """Return whether two values are equal, both empty, or the same quantity: the API server writes 1024Mi as 1Gi."""
    if wanted == live or (_is_empty(wanted) and _is_empty(live)):
        return True
    if not isinstance(wanted, str | int | float) or not isinstance(live, str | int | float):
        return False
    try:
        return parse_quantity(wanted) == parse_quantity(live)
    except ValueError:
        return False


def _is_empty(value: object) -> bool:
    return value is None or value in ("", False, 0, [], {})
