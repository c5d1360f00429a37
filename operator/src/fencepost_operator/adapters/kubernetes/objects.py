"""ConfigMaps and Secrets that a spec names, as hashes of their content; a Secret's data where a port needs it."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import json
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, TypeAlias
from weakref import WeakValueDictionary

from fencepost_operator.adapters.kubernetes.api_server import CONFIG_MAPS, SECRETS, ApiServer, Json
from fencepost_operator.api import ObjectKey
from fencepost_operator.errors import Rejected
from fencepost_operator.observation import References

_KINDS: Final = {"ConfigMap": CONFIG_MAPS, "Secret": SECRETS}
_REMEMBERED: Final = 10_000
"""Versions of objects, and objects, of which the newest hashes are remembered."""

SECRET_HOLDS: Final = 90.0
"""Seconds for which a Secret's data is used, unless another version is seen or a server refuses what it says.

Longer than the time between two looks at the version: a Secret that does not change is not read again.
"""
_LARGEST_SECRET: Final = 64 * 1024
"""Characters of a Secret that is kept in memory."""
_SECRETS: Final = 4_000
"""Secrets that are kept, those that were used last."""

_Version: TypeAlias = tuple[str, str, str, str]
"""Namespace, 'Kind/name', uid and resourceVersion: what has them all has the same content."""


@dataclass(frozen=True, slots=True)
class _Secret:
    """The data of a version, and when that was last known to be the newest, by the monotonic clock."""

    data: Mapping[str, str] = field(repr=False)
    version: _Version | None
    checked_at: float


@dataclass(frozen=True, slots=True)
class KubernetesObjects:
    """Reads them one by one, by name: no list or watch of Secrets is needed.

    A pipeline may name 120 objects of 1 MiB.  So the content of each version is read once, and one at a time for each
    namespace; other passes ask for the metadata alone.  `monotonic` is a clock, in seconds.
    """

    api: ApiServer
    monotonic: Callable[[], float] = time.monotonic
    _hashes: OrderedDict[_Version, str] = field(default_factory=OrderedDict)
    _answers: OrderedDict[tuple[str, str], tuple[str | None, float]] = field(default_factory=OrderedDict)
    """By namespace and 'Kind/name' the newest answer, and when it was asked for."""
    _turns: WeakValueDictionary[str, asyncio.Lock] = field(default_factory=WeakValueDictionary)
    _secrets: OrderedDict[tuple[str, str], _Secret] = field(default_factory=OrderedDict)
    """By namespace and name."""

    async def references(self, key: ObjectKey, names: Sequence[str], *, age: float = 0.0) -> References:
        """Return a hash of the content of each 'Kind/name', None where it does not exist.

        What any pipeline was answered within `age` seconds holds.
        """
        digests = await asyncio.gather(*(self._digest_within(key.namespace, name, age) for name in names))
        return References(hashes=dict(zip(names, digests, strict=True)))

    async def secret(self, key: ObjectKey, name: str) -> Mapping[str, str]:
        """Return a Secret's data as text, as it was at most SECRET_HOLDS ago."""
        place, now = (key.namespace, name), self.monotonic()
        known = self._secrets.get(place)
        if known is not None and now - known.checked_at < SECRET_HOLDS:
            self._secrets.move_to_end(place)
            return known.data
        found = await self.api.get(SECRETS, namespace=key.namespace, name=name)
        if found is None:
            self._secrets.pop(place, None)
            raise Rejected(
                f"Secret {key.namespace}/{name} does not exist", remedy=f"create Secret {name} in {key.namespace}"
            )
        try:
            data = secret_text(found)
        except ValueError as error:
            raise Rejected(
                f"Secret {key.namespace}/{name} holds bytes where text is needed",
                remedy=f"store plain text in Secret {name}",
            ) from error
        self._keep(place, _Secret(data, _version(key.namespace, f"Secret/{name}", found.get("metadata") or {}), now))
        return data

    def forget_secrets(self, namespace: str) -> None:
        """Read the Secrets of a namespace again when they are asked for: a server refused what one of them says."""
        for place in [place for place in self._secrets if place[0] == namespace]:
            del self._secrets[place]

    def _keep(self, place: tuple[str, str], secret: _Secret) -> None:
        if sum(map(len, secret.data.values())) <= _LARGEST_SECRET:
            self._secrets[place] = secret
            self._secrets.move_to_end(place)
            while len(self._secrets) > _SECRETS:
                self._secrets.popitem(last=False)

    def _compare(self, namespace: str, reference: str, seen: _Version | None) -> None:
        """Use a Secret's data for longer if this version of it is the newest, and no more if there is another one."""
        kind, _, name = reference.partition("/")
        known = self._secrets.get((namespace, name)) if kind == "Secret" else None
        if known is None:
            return
        if seen is not None and known.version == seen:
            self._secrets[namespace, name] = replace(known, checked_at=self.monotonic())
        else:
            del self._secrets[namespace, name]

    async def _digest_within(self, namespace: str, reference: str, age: float) -> str | None:
        place, now = (namespace, reference), self.monotonic()
        known = self._answers.get(place)
        if known is not None and now - known[1] < age:
            return known[0]
        digest = await self._digest(namespace, reference)
        self._answers[place] = (digest, now)
        self._answers.move_to_end(place)
        while len(self._answers) > _REMEMBERED:
            self._answers.popitem(last=False)
        return digest

    async def _digest(self, namespace: str, reference: str) -> str | None:
        kind, _, name = reference.partition("/")
        metadata = await self.api.metadata(_KINDS[kind], namespace=namespace, name=name)
        self._compare(namespace, reference, _version(namespace, reference, metadata or {}))
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
