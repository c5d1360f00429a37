"""ConfigMaps and Secrets that a spec names, as hashes of their content; a Secret's data where a port needs it."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import json
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, TypeAlias
from weakref import WeakValueDictionary

from fencepost_operator.adapters.kubernetes.api_server import CONFIG_MAPS, SECRETS, ApiServer, Json
from fencepost_operator.api import ObjectKey
from fencepost_operator.errors import Rejected
from fencepost_operator.observation import References

_KINDS: Final = {"ConfigMap": CONFIG_MAPS, "Secret": SECRETS}
_REMEMBERED: Final = 10_000
"""Versions of objects, of which the newest hashes are remembered."""

_Version: TypeAlias = tuple[str, str, str, str]
"""Namespace, 'Kind/name', uid and resourceVersion: what has them all has the same content."""


@dataclass(frozen=True, slots=True)
class KubernetesObjects:
    """Reads them one by one, by name: no list or watch of Secrets is needed.

    A pipeline may name 120 objects of 1 MiB.  So the content of each version is read once, and one at a time for each
    namespace; other passes ask for the metadata alone.
    """

    api: ApiServer
    _hashes: OrderedDict[_Version, str] = field(default_factory=OrderedDict)
    _turns: WeakValueDictionary[str, asyncio.Lock] = field(default_factory=WeakValueDictionary)

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
            return secret_text(found)
        except ValueError as error:
            raise Rejected(
                f"Secret {key.namespace}/{name} holds bytes where text is needed",
                remedy=f"store plain text in Secret {name}",
            ) from error

    async def _digest(self, namespace: str, reference: str) -> str | None:
        kind, _, name = reference.partition("/")
        metadata = await self.api.metadata(_KINDS[kind], namespace=namespace, name=name)
        if metadata is None:
            return None
        if known := self._known(_version(namespace, reference, metadata)):
            return known
        async with self._turn(namespace):
            if known := self._known(_version(namespace, reference, metadata)):
                return known  # another pipeline read it meanwhile
            found = await self.api.get(_KINDS[kind], namespace=namespace, name=name)
            if found is None:
                return None
            digest = await asyncio.to_thread(content_hash, found)
        self._remember(_version(namespace, reference, found.get("metadata") or {}), digest)
        return digest

    def _known(self, version: _Version | None) -> str | None:
        if version is None or version not in self._hashes:
            return None
        self._hashes.move_to_end(version)
        return self._hashes[version]

    def _remember(self, version: _Version | None, digest: str) -> None:
        if version is not None:
            self._hashes[version] = digest
            while len(self._hashes) > _REMEMBERED:
                self._hashes.popitem(last=False)

    def _turn(self, namespace: str) -> asyncio.Lock:
        """Return the lock of a namespace; it lives as long as a task holds it or waits for it."""
        turn = self._turns.get(namespace)
        if turn is None:
            turn = self._turns[namespace] = asyncio.Lock()
        return turn


def _version(namespace: str, reference: str, metadata: Json) -> _Version | None:
    """Return what identifies an object's content, None when the API server does not say it."""
    uid, version = metadata.get("uid"), metadata.get("resourceVersion")
    return (namespace, reference, uid, version) if uid and version else None


def content_hash(found: Json) -> str:
    """Return a short hash of what a ConfigMap or a Secret holds; its labels and annotations do not count."""
    content = {part: found.get(part) or {} for part in ("data", "binaryData")}
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:16]


def secret_text(found: Json) -> dict[str, str]:
    """Return a Secret's data as text. Raises ValueError for bytes."""
    return {key: base64.b64decode(value).decode() for key, value in (found.get("data") or {}).items()}
