"""Who may read the operator's metrics, by Kubernetes' own word: a TokenReview, then a SubjectAccessReview."""

from __future__ import annotations

import asyncio
import hashlib
import time
from collections import OrderedDict
from collections.abc import Callable
from typing import Any, Final

from fencepost_operator.adapters.api_server import ApiServer, Resource
from fencepost_operator.ports import Access

PATH: Final = "/metrics"
KNOWN_FOR: Final = 60.0
"""Seconds for which an answer counts: a token that is revoked is let in for so long."""
MOST_KNOWN: Final = 256
"""Answers that are kept; the oldest goes first."""
AT_ONCE: Final = 4
"""Reviews at a time: whoever sends one new token after another waits."""
LONGEST_TOKEN: Final = 8192

TOKEN_REVIEWS: Final = Resource(prefix="/apis/authentication.k8s.io/v1", plural="tokenreviews")
ACCESS_REVIEWS: Final = Resource(prefix="/apis/authorization.k8s.io/v1", plural="subjectaccessreviews")


class Reviews:
    """Asks the API server, and remembers its answers by a hash of the token."""

    def __init__(self, api: ApiServer, *, now: Callable[[], float] = time.monotonic) -> None:
        self.api = api
        self._now = now
        self._known: OrderedDict[bytes, tuple[float, Access]] = OrderedDict()
        self._turns = asyncio.Semaphore(AT_ONCE)

    async def access(self, token: str) -> Access:
        """Return whether the token's owner may `get` the path /metrics. Raises PortError when that is not known."""
        if not token or len(token) > LONGEST_TOKEN:
            return Access.UNKNOWN
        key = hashlib.sha256(token.encode()).digest()
        known = self._known.get(key)
        if known is not None and self._now() - known[0] < KNOWN_FOR:
            return known[1]
        async with self._turns:
            found = await self._asked(token)
        self._known[key] = self._now(), found
        self._known.move_to_end(key)
        while len(self._known) > MOST_KNOWN:
            self._known.popitem(last=False)
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
