"""A schema registry that has Confluent's REST API, as the driver and the tasks ask it.

What it answers for an id, or for a version of a subject, never changes. So an answer is asked for once and kept; only
no answer is asked for again, for as long as the caller's patience.
"""

from __future__ import annotations

import http.client
import json
import time
from collections.abc import Callable, Mapping
from typing import Any, Final
from urllib.parse import quote, urlsplit

from fencepost.contract import Reason
from fencepost.contract.formats import Format
from fencepost.errors import DependencyDown
from fencepost.formats.access import Access
from fencepost.formats.schema import Schema

ANSWER_WITHIN: Final = 5.0
"""Seconds for a connection, and between two pieces of an answer."""
PAUSE: Final = 1.0
"""Seconds before a question is repeated."""
MOST_BYTES: Final = 8 * 1024 * 1024
"""Of one answer."""
MOST_REFERENCES: Final = 100
"""Of one schema, at any depth."""
_TYPES: Final = {"AVRO": Format.AVRO, "PROTOBUF": Format.PROTOBUF, "JSON": Format.JSON_SCHEMA}
_REFUSED: Final = frozenset({401, 403})
_ABSENT: Final = 404
_OK: Final = 200


class Registry:
    """Asks one registry for schemas of one format. Each method raises DependencyDown after `patience` seconds."""

    def __init__(
        self,
        access: Access,
        wanted: Format,
        *,
        patience: float,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._access = access
        self._patience = patience
        self._sleep = sleep
        # A .proto is text that a compiler reads; its descriptor is what the compiler makes of it.
        self._query = "?format=serialized" if wanted is Format.PROTOBUF else ""

    def by_id(self, schema_id: int) -> Schema:
        """Return the schema that records name."""
        return self._schema(f"/schemas/ids/{schema_id}", f"schema {schema_id}")

    def version(self, subject: str, version: int) -> Schema:
        """Return a version of a subject."""
        return self._schema(_path(subject, version), f"version {version} of subject {subject!r}")

    def _schema(self, path: str, what: str) -> Schema:
        answer = self._ask(path, what)
        references: dict[str, str] = {}
        self._refer(answer, references)
        kind = answer.get("schemaType") or "AVRO"
        if kind not in _TYPES:
            raise self._unusable(f"{what} has the type {kind!r}")
        return Schema(_TYPES[kind], self._text(answer, what), tuple(references.items()))

    def _refer(self, answer: Mapping[str, Any], found: dict[str, str]) -> None:
        """Add what a schema refers to, each after what it refers to itself."""
        for each in answer.get("references") or ():
            try:
                name, subject, version = str(each["name"]), str(each["subject"]), int(each["version"])
            except (KeyError, TypeError, ValueError) as error:
                raise self._unusable(f"a reference lacks {error}") from error
            if name in found:
                continue
            if len(found) >= MOST_REFERENCES:
                raise self._unusable(f"a schema refers to more than {MOST_REFERENCES} others")
            what = f"version {version} of subject {subject!r}"
            referred = self._ask(_path(subject, version), what)
            found[name] = ""  # is being read: a circle ends here
            self._refer(referred, found)
            del found[name]
            found[name] = self._text(referred, what)

    def _text(self, answer: Mapping[str, Any], what: str) -> str:
        text = answer.get("schema")
        if not isinstance(text, str):
            raise self._unusable(f"its answer for {what} has no schema")
        return text

    def _ask(self, path: str, what: str) -> Mapping[str, Any]:
        deadline = time.monotonic() + self._patience
        while True:
            try:
                return self._asked(path, what)
            except DependencyDown as failure:
                is_final = failure.reason is Reason.REGISTRY_CREDENTIALS_REJECTED
                if is_final or time.monotonic() + PAUSE > deadline:
                    raise
            self._sleep(PAUSE)

    def _asked(self, path: str, what: str) -> Mapping[str, Any]:
        try:
            status, body = self._answer(path + self._query)
        except (OSError, http.client.HTTPException, UnicodeError) as error:
            raise self._unusable(f"gives no answer: {type(error).__name__}: {error}") from error
        if status in _REFUSED:
            raise DependencyDown(
                f"the schema registry at {self._access.url} refuses {what} (HTTP {status})",
                reason=Reason.REGISTRY_CREDENTIALS_REJECTED,
                remedy="Correct the Secret of spec.source.kafka.schemaRegistry.credentialsFrom, or grant the account"
                " the right to read subjects and schemas.",
            )
        if status == _ABSENT:
            raise DependencyDown(
                f"the schema registry at {self._access.url} has no {what}",
                reason=Reason.SCHEMA_NOT_FOUND,
                remedy="Register the schema, or correct the registry's address, the subject or the version; the batch"
                " is repeated, and nothing is lost.",
            )
        if status != _OK:
            raise self._unusable(f"answers {what} with HTTP {status}")
        try:
            found = json.loads(body)
        except ValueError as error:
            raise self._unusable(f"answers {what} with something else than JSON") from error
        if not isinstance(found, dict):
            raise self._unusable(f"answers {what} with something else than an object")
        return found

    def _answer(self, path: str) -> tuple[int, bytes]:
        place = urlsplit(self._access.url)
        context = self._access.context()
        host, port = place.hostname or "", place.port
        connection = (
            http.client.HTTPConnection(host, port, timeout=ANSWER_WITHIN)
            if context is None
            else http.client.HTTPSConnection(host, port, timeout=ANSWER_WITHIN, context=context)
        )
        try:
            accepted = {"Accept": "application/vnd.schemaregistry.v1+json, application/json"}
            connection.request("GET", place.path + path, headers={**accepted, **self._access.headers()})
            answer = connection.getresponse()
            body = answer.read(MOST_BYTES + 1)
        finally:
            connection.close()
        if len(body) > MOST_BYTES:
            raise self._unusable(f"answers with more than {MOST_BYTES} bytes")
        return answer.status, body

    def _unusable(self, what: str) -> DependencyDown:
        return DependencyDown(
            f"the schema registry at {self._access.url}: {what}",
            reason=Reason.REGISTRY_UNREACHABLE,
            remedy="Restore the registry, or correct spec.source.kafka.schemaRegistry; the batch is repeated, and"
            " nothing is lost.",
        )


def _path(subject: str, version: int) -> str:
    return f"/subjects/{quote(subject, safe='')}/versions/{version}"
