"""A schema registry as small as Confluent's published REST API lets it be: versions of subjects, ids, references.

It keeps schemas as they are, checks nothing, and forgets them when it ends. On its own it listens at a port:
`python schema_registry.py 8081`; it needs the standard library alone, so a pod can run it from a ConfigMap.
"""

from __future__ import annotations

import json
import sys
import threading
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import unquote, urlsplit

Answer = tuple[int, dict[str, Any]]


@dataclass
class Schemas:
    """What is registered. `authorization` is the header that each request must have, None for none."""

    authorization: str | None = None
    by_id: dict[int, dict[str, Any]] = field(default_factory=dict)
    by_version: dict[tuple[str, int], int] = field(default_factory=dict)
    asked: list[str] = field(default_factory=list)
    """Paths of GET, in their order."""
    is_down: bool = False
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def register(self, subject: str, schema: str, kind: str = "AVRO", references: Any = ()) -> int:
        """Add a version of a subject, and return the id: one that is known where the schema is."""
        content = {"schema": schema, "schemaType": kind, "references": list(references)}
        with self._lock:
            known = next((number for number, other in self.by_id.items() if other == content), None)
            number = known or len(self.by_id) + 1
            self.by_id[number] = content
            version = 1 + sum(name == subject for name, _ in self.by_version)
            self.by_version[subject, version] = number
        return number

    def answer(self, path: str) -> Answer:
        """Answer a GET."""
        self.asked.append(path)
        match [unquote(part) for part in urlsplit(path).path.split("/")[1:]]:
            case ["schemas", "ids", number] if int(number) in self.by_id:
                return 200, _shown(self.by_id[int(number)])
            case ["subjects", subject, "versions", version] if (subject, int(version)) in self.by_version:
                found = self.by_version[subject, int(version)]
                place = {"subject": subject, "version": int(version), "id": found}
                return 200, {**place, **_shown(self.by_id[found])}
            case _:
                return 404, {"error_code": 40403, "message": "Schema not found"}


def _shown(content: dict[str, Any]) -> dict[str, Any]:
    """Return a schema as the API has it: Avro is what no type says, and no list stands for no references."""
    shown = dict(content)
    if shown["schemaType"] == "AVRO":
        del shown["schemaType"]
    if not shown["references"]:
        del shown["references"]
    return shown


def handler(schemas: Schemas) -> type[BaseHTTPRequestHandler]:
    """Return what answers requests."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self._send(*self._checked(lambda: schemas.answer(self.path)))

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            subject = unquote(self.path.split("/")[2])
            kind, references = body.get("schemaType", "AVRO"), body.get("references", ())
            register = schemas.register
            self._send(*self._checked(lambda: (200, {"id": register(subject, body["schema"], kind, references)})))

        def _checked(self, answer: Any) -> Answer:
            if schemas.is_down:
                return 503, {"error_code": 50301, "message": "down"}
            if schemas.authorization not in (None, self.headers["Authorization"]):
                return 401, {"error_code": 401, "message": "Unauthorized"}
            found: Answer = answer()
            return found

        def _send(self, status: int, body: dict[str, Any]) -> None:
            text = json.dumps(body).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/vnd.schemaregistry.v1+json")
            self.send_header("Content-Length", str(len(text)))
            self.end_headers()
            self.wfile.write(text)

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base class names it so
            """Say nothing."""

    return Handler


if __name__ == "__main__":
    ThreadingHTTPServer(("", int(sys.argv[1])), handler(Schemas())).serve_forever()
