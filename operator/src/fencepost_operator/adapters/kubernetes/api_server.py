"""The Kubernetes API server: raw JSON over the official client's transport, its errors translated.

Objects are plain dicts: the client's typed models cost memory and drop fields they do not know.  What is used of the
client is its configuration (service account with token refresh, kubeconfig) and its HTTP pool.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import AsyncIterator, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Self, TypeAlias
from urllib.parse import quote, urlencode, urlsplit
from urllib.request import getproxies, proxy_bypass

import aiohttp
from kubernetes.aio.client import Configuration
from kubernetes.aio.client.exceptions import ApiException
from kubernetes.aio.client.rest import RESTClientObject
from kubernetes.aio.config import load_incluster_config, load_kube_config

from fencepost.contract.guidance.operations import APPLY_CRDS
from fencepost_operator.errors import Conflict, Denied, PortError, Rejected, Unreachable
from fencepost_operator.turns import TENANT, Turns

FIELD_MANAGER: Final = "fencepost-operator"
METADATA_ONLY: Final = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"
"""Accept header of a list without content: labels of Secrets, not Secrets."""
_ONE_METADATA_ONLY: Final = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"

_TIMEOUT: Final = aiohttp.ClientTimeout(total=20, sock_connect=5)
"""Seconds. None of them is spent in a queue: a request has its turn, and so a connection, before they begin."""
_CONNECTIONS: Final = 32
_CONNECTIONS_PER_TENANT: Final = 16
_RATE: Final = 200.0
_BURST: Final = 1000.0
"""Requests that one tenant may begin at once, and then `_RATE` a second: a request costs about 1 ms of CPU."""

_SMALL: Final = 256 * 1024
_LARGEST: Final = 4 * 1024 * 1024
"""Bytes of an answer. One that is not small has a turn of its own; one beyond the largest is not read to its end.

An object has 1.5 MiB at most, the pods of a pipeline with a hundred workers about as much.
"""
_LARGE_AT_ONCE: Final = 4
"""Answers that are not small and are read at the same moment, one of each tenant; each takes a few times its bytes."""

Json: TypeAlias = dict[str, Any]


class AlreadyExists(Conflict):
    """An object of that name exists."""


class NotServed(Rejected):
    """The API server knows no such kind, as where a CRD is not installed."""


class TooLarge(Rejected):
    """The answer has more bytes than the operator reads."""


class NamespaceEnds(Rejected):
    """The namespace is being deleted, so nothing is created in it."""


class Gone(Conflict):
    """The object to change does not exist."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Resource:
    """A kind's place in the API, such as ('/apis/batch/v1', 'jobs')."""

    prefix: str
    plural: str
    subresource: str = ""

    def path(self, *, namespace: str | None = None, name: str | None = None) -> str:
        """Return the path of a collection or of one object."""
        parts = [self.prefix]
        if namespace is not None:
            parts += ["namespaces", _segment(namespace)]
        parts.append(self.plural)
        if name is not None:
            parts.append(_segment(name))
        if self.subresource:
            parts.append(self.subresource)
        return "/".join(parts)

    def __str__(self) -> str:
        """The resource as RBAC names it: 'jobs.batch', 'streamingpipelines.streaming.fencepost.dev/status'."""
        parts = self.prefix.split("/")
        group = f".{parts[2]}" if parts[1] == "apis" else ""
        return f"{self.plural}{group}" + (f"/{self.subresource}" if self.subresource else "")


def _segment(name: str) -> str:
    """Return a name as one part of a path. Raises Rejected for what would make another path of it."""
    if name in {"", ".", ".."}:
        raise Rejected(f"{name!r} is not the name of an object", remedy="correct the name in the spec")
    return quote(name, safe="")


CONFIG_MAPS: Final = Resource(prefix="/api/v1", plural="configmaps")
CONTROLLER_REVISIONS: Final = Resource(prefix="/apis/apps/v1", plural="controllerrevisions")
EVENTS: Final = Resource(prefix="/api/v1", plural="events")
JOBS: Final = Resource(prefix="/apis/batch/v1", plural="jobs")
NAMESPACES: Final = Resource(prefix="/api/v1", plural="namespaces")
NODES: Final = Resource(prefix="/api/v1", plural="nodes")
POD_DISRUPTION_BUDGETS: Final = Resource(prefix="/apis/policy/v1", plural="poddisruptionbudgets")
PODS: Final = Resource(prefix="/api/v1", plural="pods")
PERSISTENT_VOLUME_CLAIMS: Final = Resource(prefix="/api/v1", plural="persistentvolumeclaims")
SECRETS: Final = Resource(prefix="/api/v1", plural="secrets")
SERVICES: Final = Resource(prefix="/api/v1", plural="services")
STATEFUL_SETS: Final = Resource(prefix="/apis/apps/v1", plural="statefulsets")


_ASKED: Final = frozenset({"tokenreviews", "subjectaccessreviews"})
"""Created to ask, and stored nowhere: a replica without the lease asks as well."""


_READS: Final = frozenset({"get", "list"})
"""Verbs that no admission looks at: who may not is refused by authorization."""


class ApiServer:
    """Requests to the API server. Every method may raise PortError; `close` ends the connections.

    `may_write` is called before each request that changes something, and raises what forbids it.  A request waits for
    its turn among those of its tenant: the namespace whose pass makes it, else the one that it is about.
    """

    def __init__(self, configuration: Configuration, may_write: Callable[[], None] = lambda: None) -> None:
        configuration.connection_pool_maxsize = _CONNECTIONS
        configuration.retries = False
        # Otherwise aiohttp looks for a proxy and for a .netrc in two threads per request.
        configuration.client_session_kwargs = {"trust_env": False}
        configuration.proxy = configuration.proxy or _proxy(configuration.host)
        self._configuration = configuration
        self._may_write = may_write
        self._rest = RESTClientObject(configuration)
        self._turns = Turns(
            "the API server", limit=_CONNECTIONS, per_tenant=_CONNECTIONS_PER_TENANT, rate=_RATE, burst=_BURST
        )
        self._large = Turns("large answers of the API server", limit=_LARGE_AT_ONCE, per_tenant=1)
        self._answered_at = self._silent_at = -math.inf

    @classmethod
    async def connect(cls, kubeconfig: Path | None = None, may_write: Callable[[], None] = lambda: None) -> Self:
        """Return a client by the pod's service account, or by a kubeconfig file when one is given."""
        configuration = Configuration()
        if kubeconfig is None:
            load_incluster_config(client_configuration=configuration)  # type: ignore[no-untyped-call]
        else:
            await load_kube_config(  # type: ignore[no-untyped-call]
                config_file=str(kubeconfig), client_configuration=configuration, persist_config=False
            )
        return cls(configuration, may_write)

    async def close(self) -> None:
        """End the connections."""
        await self._rest.close()

    async def get(self, resource: Resource, *, name: str, namespace: str | None = None) -> Json | None:
        """Return the object, or None when the API server says that it does not exist."""
        try:
            return await self._call("GET", "get", resource, namespace=namespace, name=name)
        except Gone:
            return None

    async def metadata(self, resource: Resource, *, name: str, namespace: str) -> Json | None:
        """Return the metadata of the object, without its content; None where it does not exist."""
        try:
            found = await self._call("GET", "get", resource, namespace=namespace, name=name, accept=_ONE_METADATA_ONLY)
        except Gone:
            return None
        metadata: Json = found.get("metadata") or {}
        return metadata

    async def list(
        self,
        resource: Resource,
        *,
        namespace: str | None = None,
        labels: str = "",
        fields: str = "",
        accept: str = "application/json",
        limit: int | None = None,
    ) -> list[Json]:
        """Return the objects of a collection that match the selectors, at most the first `limit`, by name.

        Raises TooLarge; `pages` is for what may be large.
        """
        query = {"labelSelector": labels, "fieldSelector": fields, "limit": str(limit or "")}
        found = await self._call("GET", "list", resource, namespace=namespace, query=query, accept=accept)
        items: list[Json] = found.get("items") or []
        return items

    async def versioned_list(self, resource: Resource, *, namespace: str, labels: str) -> tuple[Sequence[Json], str]:
        """Return the objects that match the label selector, and the resourceVersion as of which they are listed."""
        found = await self._call("GET", "list", resource, namespace=namespace, query={"labelSelector": labels})
        return found.get("items") or [], (found.get("metadata") or {}).get("resourceVersion", "")

    async def pages(
        self,
        resource: Resource,
        *,
        namespace: str | None = None,
        labels: str = "",
        fields: str = "",
        accept: str = "application/json",
        size: int = 100,
    ) -> AsyncIterator[Sequence[Json]]:
        """Yield all objects of a collection that match the selectors, `size` at a time, fewer where they are large."""
        start = ""
        while True:
            query = {"labelSelector": labels, "fieldSelector": fields, "limit": str(size), "continue": start}
            try:
                found = await self._call("GET", "list", resource, namespace=namespace, query=query, accept=accept)
            except TooLarge:
                if size == 1:
                    raise
                size = max(size // 4, 1)
                continue
            yield found.get("items") or []
            start = (found.get("metadata") or {}).get("continue") or ""
            if not start:
                return

    async def items(
        self,
        resource: Resource,
        namespaces: Sequence[str],
        *,
        labels: str = "",
        accept: str = "application/json",
        size: int = 100,
        left_out: Callable[[str, Denied], object] = lambda _namespace, _error: None,
    ) -> AsyncIterator[Json]:
        """Yield the objects of these namespaces, of all if empty. Tenants decide how large they are: no page is kept.

        One of several namespaces that the operator may not read is left out, and `left_out` is called with it.
        """
        for namespace in namespaces or (None,):
            try:
                async for page in self.pages(resource, namespace=namespace, labels=labels, accept=accept, size=size):
                    for item in page:
                        yield item
            except Denied as error:
                if namespace is None or len(namespaces) == 1:  # no other namespace waits for the only one
                    raise
                left_out(namespace, error)

    async def create(self, resource: Resource, *, namespace: str, body: Mapping[str, Any]) -> Json:
        """Create the object. Raises AlreadyExists."""
        query = {"fieldManager": FIELD_MANAGER}
        return await self._call("POST", "create", resource, namespace=namespace, query=query, body=body)

    async def review(self, resource: Resource, *, body: Mapping[str, Any]) -> Json:
        """Return the API server's answer to a review, which is created and changes nothing."""
        return await self._call("POST", "create", resource, body=body)

    async def replace(self, resource: Resource, *, namespace: str, name: str, body: Mapping[str, Any]) -> Json:
        """Replace the object, on condition of the resourceVersion in it. Raises Conflict."""
        query = {"fieldManager": FIELD_MANAGER}
        return await self._call("PUT", "update", resource, namespace=namespace, name=name, query=query, body=body)

    async def merge(self, resource: Resource, *, namespace: str, name: str, body: Mapping[str, Any]) -> Json:
        """Merge into the object, on condition of the resourceVersion when the body has one. Raises Conflict."""
        return await self._call(
            "PATCH",
            "patch",
            resource,
            namespace=namespace,
            name=name,
            query={"fieldManager": FIELD_MANAGER},
            body=body,
            content_type="application/merge-patch+json",
        )

    async def delete(
        self, resource: Resource, *, namespace: str, name: str, propagation: str = "Background", uid: str | None = None
    ) -> None:
        """Delete the object; nothing to do when it is gone, or is another one than that with the uid."""
        body: Json = {"propagationPolicy": propagation}
        if uid is not None:
            body["preconditions"] = {"uid": uid}
        try:
            await self._call("DELETE", "delete", resource, namespace=namespace, name=name, body=body)
        except Conflict:
            return

    async def _call(
        self,
        method: str,
        verb: str,
        resource: Resource,
        *,
        namespace: str | None = None,
        name: str | None = None,
        query: Mapping[str, str] | None = None,
        body: Mapping[str, Any] | None = None,
        accept: str = "application/json",
        content_type: str = "application/json",
    ) -> Json:
        asked = urlencode({key: value for key, value in (query or {}).items() if value})
        path = resource.path(namespace=namespace, name=name)
        url = f"{self._configuration.host}{path}" + (f"?{asked}" if asked else "")
        headers = {"Accept": accept, "Content-Type": content_type, "User-Agent": FIELD_MANAGER}
        doing = f"{verb} {resource}" + (f" {namespace}" if namespace else "") + (f"/{name}" if name else "")
        tenant = TENANT.get() or namespace or resource.plural

        async def ask(most: int) -> Json:
            since = time.monotonic()
            async with self._turns.turn(tenant):
                if self._answered_at < since < self._silent_at:
                    raise _no_answer(doing, "nor any other request meanwhile")
                status, text = await self._send(
                    method, url, resource, headers=headers, body=body, doing=doing, most=most
                )
            return _decoded(status, text, doing=doing, verb=verb, resource=resource, named=name is not None)

        if method != "GET":
            return await ask(_LARGEST)
        try:
            return await ask(_SMALL)
        except TooLarge:
            async with self._large.turn(tenant):
                return await ask(_LARGEST)

    async def _send(
        self,
        method: str,
        url: str,
        resource: Resource,
        *,
        headers: dict[str, str],
        body: Mapping[str, Any] | None,
        doing: str,
        most: int,
    ) -> tuple[int, bytes]:
        """Return the status and the text of the answer. Raises TooLarge for one of more bytes than `most`."""
        try:
            bearer = await self._configuration.get_api_key_with_prefix("BearerToken", alias="authorization")
            if bearer:
                headers["Authorization"] = bearer
            if method != "GET" and resource.plural not in _ASKED:
                self._may_write()
            answer = await self._rest.request(  # type: ignore[no-untyped-call]
                method, url, headers=headers, body=body, _request_timeout=_TIMEOUT
            )
            found = answer.status, await _text(answer.response, most=most)
        except (aiohttp.ClientError, TimeoutError, OSError, ApiException) as error:
            self._silent_at = time.monotonic()
            raise _no_answer(doing, f"{type(error).__name__} {error}".rstrip()) from error
        self._answered_at = time.monotonic()
        if found[1] is None:
            raise TooLarge(
                f"{doing}: the answer has more than {most // 1024} KiB",
                remedy="delete objects of that kind, or large annotations, that the operator did not create",
            )
        return found[0], found[1]


def _proxy(server: str) -> str | None:
    """Return the proxy that the environment names for a server, None without one."""
    place = urlsplit(server)
    return None if proxy_bypass(place.netloc) else getproxies().get(place.scheme)


async def _text(answer: aiohttp.ClientResponse, *, most: int) -> bytes | None:
    """Return the body, or None and close the connection where it has more bytes."""
    pieces, size = list[bytes](), 0
    async for piece in answer.content.iter_any():
        size += len(piece)
        if size > most:
            answer.close()
            return None
        pieces.append(piece)
    answer.release()
    return b"".join(pieces)


def _no_answer(doing: str, why: str) -> Unreachable:
    return Unreachable(
        f"the API server did not answer ({doing}): {why}",
        remedy="wait, or check the network between the operator and the API server",
    )


def _decoded(status: int, text: bytes, *, doing: str, verb: str, resource: Resource, named: bool) -> Json:
    try:
        body: Json = json.loads(text)
    except ValueError:
        body = {"message": text[:500].decode(errors="replace")}
    if 200 <= status < 300:  # noqa: PLR2004 - HTTP's success
        return body
    raise _refusal(status, body, doing=doing, verb=verb, resource=resource, named=named)


def _refusal(  # noqa: PLR0911 - a table
    status: int, body: Json, *, doing: str, verb: str, resource: Resource, named: bool
) -> PortError | Conflict:
    """Translate an answer that is not a success."""
    reason, message = body.get("reason") or "", body.get("message") or f"HTTP {status}"
    report = f"{doing}: {message}"
    match status:
        case 404 if named and (body.get("details") or {}).get("name"):
            return Gone(report)
        case 404 if named:
            # It is the kind that is not served, as while the API server starts: that says nothing of the object.
            return Unreachable(report, remedy=f"wait, or install what serves {resource}")
        case 409:
            return AlreadyExists(report) if reason == "AlreadyExists" else Conflict(report)
        case 400 if "field label not supported" in message:  # of our kinds alone: those of Kubernetes have their own
            return Rejected(report, remedy=f"apply the CRDs of the operator's chart: {APPLY_CRDS}")
        case 401:
            return Denied(report, remedy="the API server refuses the operator's token; restart the operator's pod")
        case 403 if "NamespaceTerminating" in _causes(body):
            return NamespaceEnds(report)
        case 403 if " cannot " in message or verb in _READS:
            return Denied(report, remedy=f"grant the operator's ServiceAccount the verb {verb!r} on {resource}")
        case 429 | 500 | 502 | 503 | 504:
            return Unreachable(report, remedy="wait, or check the health of the API server")
        case 404 if not (body.get("details") or {}).get("name"):
            return NotServed(report, remedy=f"install what serves {resource}")
        case _:
            # 403 of a write without "cannot" is admission: quota, Pod Security.
            return Rejected(report)


def _causes(body: Json) -> Collection[str]:
    """Return the reasons that an answer gives."""
    causes: Sequence[Json] = (body.get("details") or {}).get("causes") or []
    return {cause.get("reason", "") for cause in causes}
