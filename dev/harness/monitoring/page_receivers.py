"""Receivers of pages: a web server that plays PagerDuty, web hooks and a dead man's switch, and a mail server."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from email import message_from_bytes
from http.server import BaseHTTPRequestHandler
from typing import Any

from aiosmtpd.controller import Controller

from harness.kubernetes.kubectl import Object
from harness.processes import free_port
from harness.web_server import Quiet, serving


@dataclass(frozen=True, slots=True)
class Reply:
    """An answer without a body."""

    status: int = 202
    headers: Mapping[str, str] = field(default_factory=dict)


@dataclass(slots=True)
class Hooks:
    """What was posted, by path. `silent` paths take a request and do not answer it while the event is set."""

    port: int = 0
    posted: dict[str, list[Any]] = field(default_factory=dict)
    arrived: dict[str, list[float]] = field(default_factory=dict)
    """When, in seconds since 1970, as `posted` has it."""
    replies: dict[str, list[Reply]] = field(default_factory=dict)
    """What a path answers first, one after another."""
    statuses: dict[str, int] = field(default_factory=dict)
    """The status that it answers after those, 202 where none is given."""
    connections: int = 0
    """How many were opened, with or without a request."""
    silent: dict[str, threading.Event] = field(default_factory=dict)
    """Paths that answer nothing until the event is set."""
    _guard: threading.Lock = field(default_factory=threading.Lock)

    def take(self, path: str, body: bytes) -> None:
        """Keep a request."""
        try:
            content = json.loads(body)
        except ValueError:
            content = body.decode(errors="replace")
        with self._guard:
            self.posted.setdefault(path, []).append(content)
            self.arrived.setdefault(path, []).append(time.time())

    def connected(self) -> None:
        """Count a connection."""
        with self._guard:
            self.connections += 1

    def reply(self, path: str) -> Reply:
        """Take what a path answers now."""
        with self._guard:
            if self.replies.get(path):
                return self.replies[path].pop(0)
            return Reply(self.statuses.get(path, 202))

    def got(self, path: str) -> list[Any]:
        """Return what a path got."""
        with self._guard:
            return list(self.posted.get(path, ()))

    def arrivals(self, path: str) -> list[tuple[float, Any]]:
        """Return what a path got, and when."""
        with self._guard:
            return list(zip(self.arrived.get(path, ()), self.posted.get(path, ()), strict=True))

    def events(self, action: str) -> list[Object]:
        """Return the events that PagerDuty got, of one action."""
        return [event for event in self.got("/v2/enqueue") if event["event_action"] == action]


@contextmanager
def hooks(host: str = "127.0.0.1") -> Iterator[Hooks]:
    """Serve web hooks on a free port of an address of this machine."""
    kept = Hooks()

    class Handler(Quiet, BaseHTTPRequestHandler):
        def setup(self) -> None:
            kept.connected()
            super().setup()

        def do_POST(self) -> None:
            kept.take(self.path, self.rfile.read(int(self.headers.get("Content-Length") or 0)))
            if (event := kept.silent.get(self.path)) is not None:
                event.wait(60)
            reply = kept.reply(self.path)
            self.acknowledge(reply.status, reply.headers)

        do_GET = do_POST  # noqa: N815 - the base class names them so

    with serving(Handler, host=host) as port:
        kept.port = port
        try:
            yield kept
        finally:
            for event in kept.silent.values():
                event.set()


@dataclass(slots=True)
class Mailbox:
    """The mails that a server took."""

    port: int
    mails: list[Any] = field(default_factory=list)

    async def handle_DATA(self, _server: object, _session: object, envelope: Any) -> str:  # noqa: N802 - aiosmtpd's name
        """Keep a mail."""
        self.mails.append(message_from_bytes(envelope.content))
        return "250 kept"

    def subjects(self) -> list[str]:
        """Return the subjects, in order, each on one line."""
        return [" ".join(str(mail["Subject"]).split()) for mail in self.mails]


@contextmanager
def mailbox() -> Iterator[Mailbox]:
    """Run an SMTP server on a free port."""
    kept = Mailbox(free_port())
    controller = Controller(kept, hostname="127.0.0.1", port=kept.port)
    controller.start()
    try:
        yield kept
    finally:
        controller.stop()
