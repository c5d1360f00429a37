"""ConfigMaps and Secrets that a spec names, as hashes of their content; a Secret's data where a port needs it."""

from __future__ import annotations

import asyncio
import base64
import binascii
import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from fencepost_operator.adapters.api_server import CONFIG_MAPS, SECRETS, ApiServer, Json
from fencepost_operator.api import ObjectKey
from fencepost_operator.errors import Rejected
from fencepost_operator.observation import References

_KINDS: Final = {"ConfigMap": CONFIG_MAPS, "Secret": SECRETS}


@dataclass(frozen=True, slots=True)
class KubernetesObjects:
    """Reads them one by one, by name: no list or watch of Secrets is needed."""

    api: ApiServer

    async def references(self, key: ObjectKey, names: Sequence[str]) -> References:
        """Return a hash of the content of each 'Kind/name', None where it does not exist."""
        digests = await asyncio.gather(*(self._digest(key.namespace, name) for name in names))
        return References(hashes=dict(zip(names, digests, strict=True)))

    async def secret(self, key: ObjectKey, name: str) -> Mapping[str, str]:
        """Return a Secret's data as text."""
        found = await self.api.get(SECRETS, namespace=key.namespace, name=name)
        if found is None:
            raise Rejected(
                f"Secret {key.namespace}/{name} does not exist", remedy=f"create Secret {name} in {key.namespace}"
            )
        try:
            return {k: base64.b64decode(v).decode() for k, v in (found.get("data") or {}).items()}
        except (binascii.Error, UnicodeDecodeError) as error:
            raise Rejected(
                f"Secret {key.namespace}/{name} holds bytes where text is needed",
                remedy=f"store plain text in Secret {name}",
            ) from error

    async def _digest(self, namespace: str, reference: str) -> str | None:
        kind, _, name = reference.partition("/")
        found = await self.api.get(_KINDS[kind], namespace=namespace, name=name)
        return content_hash(found) if found is not None else None


def content_hash(found: Json) -> str:
    """Return a short hash of what a ConfigMap or a Secret holds; its labels and annotations do not count."""
    content = {part: found.get(part) or {} for part in ("data", "binaryData")}
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:16]
