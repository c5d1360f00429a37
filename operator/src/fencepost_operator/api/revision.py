"""A revision: a spec that was in effect, as it was written, under a name that only this content has.

Specs are kept in ControllerRevisions, which whoever may edit them there can change or delete: content that does not
match its name is refused, and the spec in it is parsed like any other.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Self

from fencepost_operator.api.parsing import parse
from fencepost_operator.api.spec import Spec, Violation
from fencepost_operator.api.vocabulary import GROUP, KIND, VERSION

_DIGITS: Final = 20
"""Hexadecimal, of the content's SHA-256: finding other content of the same name is infeasible."""
_DIGEST: Final = re.compile(f"[0-9a-f]{{{_DIGITS}}}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Revision:
    """A spec as `written`, and the hash of each ConfigMap that its code or its environment comes from.

    `config_maps` maps 'ConfigMap/name' to the hash, None where the ConfigMap did not exist.
    """

    name: str
    written: Mapping[str, Any]
    config_maps: Mapping[str, str | None]

    @classmethod
    def of(cls, pipeline: str, written: Mapping[str, Any], config_maps: Mapping[str, str | None]) -> Self:
        """Return the revision of a pipeline's spec."""
        return cls(
            name=_name(pipeline, _data(written, config_maps)), written=dict(written), config_maps=dict(config_maps)
        )

    @classmethod
    def read(cls, pipeline: str, name: str, data: object) -> Self:
        """Return the revision of this name that `data` is. Raises ValueError for other content."""
        if not isinstance(data, Mapping) or not isinstance(data.get("spec"), Mapping):
            raise ValueError("has no spec")
        try:
            found = _name(pipeline, data)
        except (TypeError, RecursionError) as error:
            raise ValueError("is not JSON of a reasonable depth") from error
        if found != name:
            raise ValueError("has been changed: its content does not match its name")
        maps = data.get("configMaps")
        known = maps.items() if isinstance(maps, Mapping) else ()
        return cls(
            name=name,
            written=data["spec"],
            config_maps={key: digest for key, digest in known if digest is None or isinstance(digest, str)},
        )

    @property
    def data(self) -> dict[str, Any]:
        """What is stored."""
        return _data(self.written, self.config_maps)

    @property
    def spec(self) -> Spec | tuple[Violation, ...]:
        """The spec, or what this release of the operator finds wrong with it."""
        return parse({"spec": self.written})


def is_revision_of(pipeline: str, name: str) -> bool:
    """Return whether a name may be that of a pipeline's revision."""
    return name.startswith(f"{pipeline}-") and bool(_DIGEST.fullmatch(name.removeprefix(f"{pipeline}-")))


def _data(written: Mapping[str, Any], config_maps: Mapping[str, str | None]) -> dict[str, Any]:
    return {
        "apiVersion": f"{GROUP}/{VERSION}",
        "kind": KIND,
        "spec": dict(written),
        "configMaps": dict(config_maps),
    }


def _name(pipeline: str, data: Mapping[str, Any]) -> str:
    text = json.dumps(data, sort_keys=True, separators=(",", ":"))
    return f"{pipeline}-{hashlib.sha256(text.encode(errors='surrogatepass')).hexdigest()[:_DIGITS]}"
