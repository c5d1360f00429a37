"""The Secrets with receivers: the operator's own, and one of a fixed name in each namespace of pipelines."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from fencepost_operator.adapters.kubernetes.api_server import SECRETS, ApiServer, Json
from fencepost_operator.adapters.kubernetes.leases import LEASES
from fencepost_operator.adapters.kubernetes.objects import secret_text
from fencepost_operator.api import Reason
from fencepost_operator.errors import Unreachable
from fencepost_operator.paging.page import PagingProblem
from fencepost_operator.paging.receivers import NAMESPACE_SECRET, Receivers, SecretSource, parse_receivers

_LONGEST: Final = 2**18
"""Characters of a Secret that is looked into, in base64."""


@dataclass(slots=True, kw_only=True)
class SecretReceivers:
    """Reads them by name: no list or watch of Secrets is needed. `secret` '' where the operator has none.

    The uid of the operator's Lease keys the ids of receivers: it outlives Secrets and operators, and tenants cannot
    read it. `lease` is '' without one: then a Secret that is recreated has new receivers.
    """

    api: ApiServer
    namespace: str
    lease: str = ""
    secret: str = ""
    heartbeat_key: str = ""
    """The key of the operator's Secret that is for the heartbeat, '' where that has a Secret of its own."""
    _key: str = field(default="", init=False, repr=False)

    async def receivers(self, namespace: str) -> Receivers:
        """Return those of a namespace, '' for the operator's own; none without a Secret. Raises PortError."""
        name = NAMESPACE_SECRET if namespace else self.secret
        if not name:
            return Receivers()
        where = namespace or self.namespace
        found = await self.api.get(SECRETS, namespace=where, name=name)
        if found is None:
            return Receivers() if namespace else _broken(f"{where}/{name} of pages.secretName does not exist")
        encoded = found.get("data") or {}
        if sum(len(str(text)) for text in encoded.values()) > _LONGEST:
            return _broken(f"{where}/{name} is larger than {_LONGEST // 1024} KiB")
        try:
            data = secret_text(found)
        except ValueError:
            return _broken(f"{where}/{name} holds bytes where text is needed")
        ignored = frozenset() if namespace or not self.heartbeat_key else frozenset({self.heartbeat_key})
        key = await self._lease_uid() if self.lease else _uid(found)
        source = SecretSource(namespace=namespace, place=f"{where}/{name}", key=key, ignored=ignored)
        return parse_receivers(source, data)

    async def _lease_uid(self) -> str:
        if not self._key:
            found = await self.api.get(LEASES, namespace=self.namespace, name=self.lease)
            if found is None:
                raise Unreachable(f"the Lease {self.namespace}/{self.lease} does not exist")
            self._key = _uid(found)
        return self._key


def _uid(found: Json) -> str:
    return str((found.get("metadata") or {}).get("uid", ""))


def _broken(what: str) -> Receivers:
    message = f"Secret {what}. Create it again with the keys that docs/pages.md names."
    return Receivers(problems=(PagingProblem(reason=Reason.RECEIVER_INVALID, message=message),))
