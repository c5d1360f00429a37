"""Who may read the operator's metrics, by Kubernetes' own word: a TokenReview, then a SubjectAccessReview.

Any pod may connect and send tokens.  Each address has a few reviews, and gets an answer at once when they are used up;
a token that was granted before has turns of its own, so that no one else's tokens delay Prometheus.
"""

from __future__ import annotations

import asyncio
import hashlib
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final

from fencepost_operator.adapters.kubernetes.api_server import ApiServer, Resource
from fencepost_operator.buckets import Bucket
from fencepost_operator.ports import Access

PATH: Final = "/metrics"
KNOWN_FOR: Final = 60.0
"""Seconds for which an answer counts: a token that is revoked is let in for so long."""
MOST_KNOWN: Final = 256
"""Answers that are kept; the oldest goes first."""
AT_ONCE: Final = 4
"""Reviews at a time of tokens that are new, and as many of those that were granted before."""
BURST: Final = 10
"""Tokens of one address that are reviewed at once without being granted."""
PER_MINUTE: Final = 10.0
"""Those after the burst."""
MOST_SOURCES: Final = 1024
"""Addresses that are counted; the one that was seen longest ago goes first."""
LONGEST_TOKEN: Final = 8192

TOKEN_REVIEWS: Final = Resource(prefix="/apis/authentication.k8s.io/v1", plural="tokenreviews")
ACCESS_REVIEWS: Final = Resource(prefix="/apis/authorization.k8s.io/v1", plural="subjectaccessreviews")


@dataclass(slots=True)
class _Source:
    """What an address may still ask for."""

    bucket: Bucket
    turn: asyncio.Lock = field(default_factory=asyncio.Lock)
    """One review at a time, so that its others wait for themselves alone."""


class Reviews:
    """Asks the API server, and remembers its answers by a hash of the token."""

    def __init__(self, api: ApiServer, *, now: Callable[[], float] = time.monotonic) -> None:
        self.api = api
        self._now = now
        self._granted: OrderedDict[bytes, float] = OrderedDict()
        """When a token was last granted, also long ago; refused ones displace none of these."""
        self._known: OrderedDict[bytes, tuple[float, Access]] = OrderedDict()
        """Tokens that were not granted, and when."""
        self._sources: OrderedDict[str, _Source] = OrderedDict()
        self._turns = asyncio.Semaphore(AT_ONCE)
        self._turns_again = asyncio.Semaphore(AT_ONCE)

    async def access(self, token: str, source: str) -> Access:
        """Return whether the token's owner may `get` the path /metrics; `source` is the address that sends it.

        Raises PortError when that is not known.
        """
        if not token or len(token) > LONGEST_TOKEN:
            return Access.UNKNOWN
        key, now = hashlib.sha256(token.encode()).digest(), self._now()
        granted_at = self._granted.get(key)
        if granted_at is not None:
            if now - granted_at < KNOWN_FOR:
                return Access.GRANTED
            async with self._turns_again:
                return self._remembered(key, await self._asked(token))
        known = self._known.get(key)
        if known is not None and now - known[0] < KNOWN_FOR:
            return known[1]
        asking = self._source(source)
        if asking.bucket.tokens < 1:
            return Access.LIMITED
        asking.bucket.spend()
        async with asking.turn, self._turns:
            found = self._remembered(key, await self._asked(token))
        if found is Access.GRANTED:
            asking.bucket.give_back()
        return found

    def _source(self, address: str) -> _Source:
        found = self._sources.setdefault(address, _Source(Bucket(BURST, PER_MINUTE / 60, self._now)))
        self._sources.move_to_end(address)
        if len(self._sources) > MOST_SOURCES:
            self._sources.popitem(last=False)
        return found

    def _remembered(self, key: bytes, found: Access) -> Access:
        """Keep an answer, instead of what was known of the token before; the oldest one goes for it."""
        self._granted.pop(key, None)
        self._known.pop(key, None)
        if found is Access.GRANTED:
            self._granted[key] = self._now()
        else:
            self._known[key] = self._now(), found
        for kept in (self._granted, self._known):
            if len(kept) > MOST_KNOWN:
                kept.popitem(last=False)
        return found

    async def _asked(self, token: str) -> Access:
        review = {
            "apiVersion": "authentication.k8s.io/v1",
            "kind": "TokenReview",
            "metadata": {},
            "spec": {"token": token},
        }
        status: dict[str, Any] = (await self.api.review(TOKEN_REVIEWS, body=review)).get("status") or {}
        if status.get("authenticated") is not True:
            return Access.UNKNOWN
        user: dict[str, Any] = status.get("user") or {}
        spec = {
            "user": user.get("username", ""),
            "groups": user.get("groups") or [],
            "uid": user.get("uid", ""),
            "extra": user.get("extra") or {},
            "nonResourceAttributes": {"path": PATH, "verb": "get"},
        }
        review = {
            "apiVersion": "authorization.k8s.io/v1",
            "kind": "SubjectAccessReview",
            "metadata": {},
            "spec": spec,
        }
        status = (await self.api.review(ACCESS_REVIEWS, body=review)).get("status") or {}
        return Access.GRANTED if status.get("allowed") is True else Access.DENIED
