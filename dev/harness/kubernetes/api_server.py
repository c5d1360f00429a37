"""Objects as the API server has them, read over connections that stay open.

Tests wait by asking over and over, and one `kubectl get` takes 100 CPU-ms, of them 80 for the start of kubectl; a
request here takes 2.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any, Final, TypeAlias

from kubernetes import config
from kubernetes.client import ApiClient, Configuration
from kubernetes.client.exceptions import ApiException
from urllib3.exceptions import HTTPError

Object: TypeAlias = dict[str, Any]
_DISCOVERY: Final = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
_ANSWER_WITHIN: Final = 30.0
"""Seconds of each of two attempts: the second is for a connection that was closed meanwhile."""
_OK: Final = 200
_NOT_FOUND: Final = 404


class ApiError(Exception):
    """The API server refused a request, or did not answer it."""


class _AbsentError(ApiError):
    """The object does not exist."""


@dataclass(frozen=True, slots=True)
class _Resource:
    path: str
    """Of all of its objects: /api/v1 or /apis/GROUP/VERSION."""
    plural: str
    is_namespaced: bool

    def objects(self, namespace: str, name: str = "") -> str:
        place = f"/namespaces/{namespace}" if self.is_namespaced else ""
        return f"{self.path}{place}/{self.plural}" + (f"/{name}" if name else "")


@dataclass(slots=True)
class ApiServer:
    """The API server of a kubeconfig.

    Kinds have the names that kubectl knows: pods, pod, po, Pod, events.events.k8s.io.
    """

    client: ApiClient
    _resources: dict[str, _Resource] = field(default_factory=dict)

    def get(self, kind: str, namespace: str, name: str) -> Object | None:
        """Return an object, None when it does not exist. Raises ApiError."""
        try:
            return self._read(self._resource(kind).objects(namespace, name))
        except _AbsentError:
            return None

    def items(self, kinds: str, namespace: str, **selectors: str) -> list[Object]:
        """Return the objects of one or more kinds, with commas between; `selectors` as the API has them, labelSelector.

        Raises ApiError.
        """
        found: list[Object] = []
        for kind in kinds.split(","):
            answer = self._read(self._resource(kind).objects(namespace), selectors)
            of_all = {"apiVersion": answer["apiVersion"], "kind": answer["kind"].removesuffix("List")}
            found.extend({**of_all, **item} for item in answer["items"])
        return found

    def _resource(self, kind: str) -> _Resource:
        """Return what a kind's name stands for; asks again for a name that is new, as of a CRD. Raises ApiError."""
        name, known = kind.lower(), self._resources
        if name not in known:
            known = self._resources = self._discovered()
        if name not in known:
            raise ApiError(f"the server doesn't have a resource type {kind!r}")
        return known[name]

    def _discovered(self) -> dict[str, _Resource]:
        found: dict[str, _Resource] = {}
        for root in ("/api", "/apis"):  # kubectl takes the core group's first
            for group in self._read(root, accept=_DISCOVERY)["items"]:
                group_name, version = group["metadata"].get("name", ""), group["versions"][0]
                path = "/".join(filter(None, (root, group_name, version["version"])))
                for each in version.get("resources", ()):  # external metrics have none
                    resource = _Resource(path, each["resource"], each["scope"] == "Namespaced")
                    names = (each["resource"], each["singularResource"], each["responseKind"]["kind"].lower())
                    for name in (*names, *each.get("shortNames", ()), f"{each['resource']}.{group_name}"):
                        found.setdefault(name, resource)
        return found

    def _read(self, path: str, query: Mapping[str, str] | None = None, *, accept: str = "application/json") -> Object:
        request = self.client.param_serialize(
            "GET",
            path,
            query_params=list((query or {}).items()),
            header_params={"Accept": accept},
            auth_settings=["BearerToken"],
        )
        try:
            answer = self.client.call_api(*request, _request_timeout=_ANSWER_WITHIN)
            body: bytes = answer.read() or b""  # type: ignore[no-untyped-call]
        except (ApiException, HTTPError) as error:
            raise ApiError(f"{path}: {error}") from None
        if answer.status == _OK:
            return dict(json.loads(body))
        if answer.status == _NOT_FOUND and body.strip().startswith(b"{"):  # about a path that is not served it is text
            raise _AbsentError(path)
        self._resources = {}  # a CRD may be gone, or have other versions
        raise ApiError(f"{path}: {answer.status} {answer.reason}: {body.decode(errors='replace')}")


@lru_cache(maxsize=8)
def api_server(kubeconfig: Path) -> ApiServer:
    """Return the API server of a kubeconfig; the same one each time, with its connections."""
    settings = Configuration()
    settings.proxy = None  # of the environment: testbeds are on this machine
    settings.retries = 1
    config.load_kube_config(str(kubeconfig), client_configuration=settings)  # type: ignore[no-untyped-call]
    return ApiServer(ApiClient(settings))
