"""What Helm applied, as the Secret of a revision keeps it, and whether a live object still is that.

The comparison is Helm's own: what the manifest does not name belongs to the API server's defaults or to others.
"""

from __future__ import annotations

import base64
import gzip
import json
from collections.abc import Mapping, Sequence
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
    lines: list[str] = json.loads(gzip.decompress(packed))["manifest"].splitlines()
    return tuple(json.loads(line) for line in lines if line != "---")


def difference(wanted: Manifest, live: Manifest) -> str:
    """Return the path of the first field that is not as it was applied, '' where all are.

    The number of workers is left out: it is compared with what the spec asks for, not with the last installation.
    """
    metadata = {name: wanted["metadata"][name] for name in _METADATA if name in wanted["metadata"]}
    content = {name: wanted[name] for name in _CONTENT if name in wanted}
    if metadata.get("labels", {}).get(labels.COMPONENT) == labels.WORKER and "spec" in content:
        content["spec"] = {name: value for name, value in content["spec"].items() if name != "replicas"}
    return _difference({"metadata": metadata, **content}, live, ())


def _difference(wanted: Any, live: Any, path: tuple[str, ...]) -> str:  # noqa: ANN401 - JSON
    if wanted is None or (_is_empty(wanted) and _is_empty(live)):
        return ""
    if isinstance(wanted, Mapping) and isinstance(live, Mapping):
        found = (_difference(part, live.get(name), (*path, name)) for name, part in wanted.items())
        return next(filter(None, found), "")
    if isinstance(wanted, Sequence) and isinstance(live, Sequence) and not isinstance(wanted, str):
        return _difference_of_lists(wanted, live, path)
    return "" if wanted == live or _is_same_quantity(wanted, live) else ".".join(path)


def _difference_of_lists(wanted: Sequence[Any], live: Sequence[Any], path: tuple[str, ...]) -> str:
    if key := next((key for key in _KEYS if all(isinstance(item, Mapping) and key in item for item in wanted)), None):
        by_key = {item.get(key): item for item in live if isinstance(item, Mapping)}
        found = (_difference(item, by_key.get(item[key]), (*path, str(item[key]))) for item in wanted)
        return next(filter(None, found), "")
    if len(wanted) != len(live):
        return ".".join(path)
    pairs = enumerate(zip(wanted, live, strict=True))
    return next(filter(None, (_difference(one, other, (*path, str(n))) for n, (one, other) in pairs)), "")


def _is_empty(value: object) -> bool:
    return value is None or value in ("", False, 0, [], {})


def _is_same_quantity(wanted: object, live: object) -> bool:
    """Return whether two texts are the same amount: the API server writes 1024Mi as 1Gi."""
    if not isinstance(wanted, str | int | float) or not isinstance(live, str | int | float):
        return False
    try:
        return parse_quantity(wanted) == parse_quantity(live)
    except ValueError:
        return False
