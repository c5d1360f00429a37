"""Requests to the API server of a control plane, from many threads over connections that stay open."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Self, TypeAlias

import urllib3
from urllib3.exceptions import HTTPError

from harness.kubernetes.control_plane import ControlPlane

Object: TypeAlias = dict[str, Any]
_CONNECTIONS: Final = 32
_SECONDS: Final = 30.0
_QUIET: Final = 3600.0
"""Seconds without an event; the API server ends a watch earlier."""
_AGAIN: Final = 1.0
_FAILED: Final = 400
_NOT_FOUND: Final = 404


class RequestError(Exception):
    """The API server refused a request; `status` is HTTP's."""

    def __init__(self, status: int, text: str) -> None:
        super().__init__(f"{status}: {text[:500]}")
        self.status = status


@dataclass(frozen=True, slots=True)
class Requests:
    """An administrator's requests."""

    server: str
    token: str = field(repr=False)
    pool: urllib3.PoolManager = field(repr=False)

    @classmethod
    def to(cls, plane: ControlPlane) -> Self:
        """Connect to a control plane."""
        config = json.loads(plane.kubeconfig.read_text())
        authority = config["clusters"][0]["cluster"]["certificate-authority"]
        pool = urllib3.PoolManager(maxsize=_CONNECTIONS, ca_certs=authority, retries=False)
        return cls(plane.server, config["users"][0]["user"]["token"], pool)

    def ask(self, method: str, path: str, body: Mapping[str, Any] | None = None) -> Object:
        """Return the answer; a PATCH is a merge patch. Raises RequestError, HTTPError."""
        kind = "application/merge-patch+json" if method == "PATCH" else "application/json"
        answer = self.pool.request(
            method,
            f"{self.server}{path}",
            body=json.dumps(body) if body is not None else None,
            headers={**self._authorization, "Content-Type": kind},
            timeout=_SECONDS,
        )
        if answer.status >= _FAILED:
            raise RequestError(answer.status, answer.data.decode(errors="replace"))
        found: Object = json.loads(answer.data)
        return found

    def delete(self, path: str, *, grace: int | None = None) -> None:
        """Delete an object; nothing to do when it is gone. Raises RequestError."""
        try:
            self.ask("DELETE", path, {"gracePeriodSeconds": grace} if grace is not None else None)
        except RequestError as error:
            if error.status != _NOT_FOUND:
                raise

    def watch(self, path: str, selector: str) -> Iterator[tuple[str, Object]]:
        """Yield (type of event, object) of a collection, from what is there now on, until the API server ends it."""
        listed = self.ask("GET", f"{path}?labelSelector={selector}")
        yield from (("ADDED", item) for item in listed["items"])
        version = listed["metadata"]["resourceVersion"]
        url = f"{self.server}{path}?labelSelector={selector}&watch=1&resourceVersion={version}"
        quiet = urllib3.Timeout(connect=_SECONDS, read=_QUIET)
        answer = self.pool.request("GET", url, headers=self._authorization, preload_content=False, timeout=quiet)
        left = b""
        for piece in answer.stream(65536):
            *lines, left = (left + piece).split(b"\n")
            for line in lines:
                event = json.loads(line)
                yield event["type"], event["object"]

    def follow(self, path: str, selector: str, over: threading.Event) -> Iterator[tuple[str, Object]]:
        """Watch again whenever a watch ends, until `over` is set; objects that are there come again each time."""
        while not over.is_set():
            try:
                yield from self.watch(path, selector)
            except (HTTPError, RequestError):
                over.wait(_AGAIN)

    @property
    def _authorization(self) -> dict[str, str]:
        return {"Authorization": f"Bearer {self.token}"}
