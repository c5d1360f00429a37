"""Pages as the messages of each kind of receiver.  Pure.

PagerDuty and Alertmanager get text as JSON; Apprise gets plain text, which it escapes for the service.  What is left to
do here is to keep text of tenants from calling people that a chat knows by name.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, Final

from fencepost_operator.paging.delivery import Message
from fencepost_operator.paging.page import Page
from fencepost_operator.paging.receivers import Kind, Receiver

LAPSE: Final = timedelta(minutes=10)
"""An alert of Alertmanager ends by itself when it is not repeated for that long, as when the operator is dead."""
REPEAT: Final = timedelta(minutes=2)
BATCH: Final[Mapping[Kind, int]] = {Kind.APPRISE: 10, Kind.PAGERDUTY: 20, Kind.ALERTMANAGER: 50}
"""Pages that one process sends."""
_DEDUP_LIMIT: Final = 255
_CALLS: Final = re.compile(r"@(?=[\w*])|<")
_HARMLESS: Final = {"@": "\N{FULLWIDTH COMMERCIAL AT}", "<": "\N{SINGLE LEFT-POINTING ANGLE QUOTATION MARK}"}
_JSON: Final = {"Content-Type": "application/json"}


def messages_of(receiver: Receiver, pages: Sequence[Page], *, pagerduty: str, now: datetime) -> list[Message]:
    """Return the messages that tell a receiver these pages: one for each, or one for all (Alertmanager)."""
    match receiver.kind:
        case Kind.APPRISE:
            return [_by_apprise(receiver, page) for page in pages]
        case Kind.PAGERDUTY:
            return [_to_pagerduty(receiver, page, pagerduty) for page in pages]
        case Kind.ALERTMANAGER:
            return [_to_alertmanager(receiver, pages, now)]


def _by_apprise(receiver: Receiver, page: Page) -> Message:
    lines = [f"{name}: {text}" for name, text in page.details.items()]
    if page.runbook:
        lines.append(f"Runbook: {page.runbook}")
    lines.append(f"Incident: {page.dedup_key}")
    kind = "success" if page.resolved_at is not None else "failure" if page.severity == "critical" else "warning"
    title = f"[{page.severity}] {page.summary}" if page.resolved_at is None else page.summary
    return Message(
        url=receiver.target, title=harmless(title), body=harmless("\n".join(lines)), apprise=kind
    )  # fmt: skip


def _to_pagerduty(receiver: Receiver, page: Page, url: str) -> Message:
    event: dict[str, Any] = {
        "routing_key": receiver.target,
        "event_action": "trigger" if page.resolved_at is None else "resolve",
        "dedup_key": _dedup_key(page),
        "client": "Fencepost",
        "payload": {
            "summary": page.summary,
            "source": str(page.key),
            "severity": page.severity,
            "timestamp": page.opened_at.isoformat(),
            "component": page.key.name,
            "group": page.key.namespace,
            "class": page.reason,
            "custom_details": dict(page.details),
        },
    }
    if page.runbook:
        event["links"] = [{"href": page.runbook, "text": "Runbook"}]
    return Message(url=url, body=json.dumps(event), headers=_JSON)


def _dedup_key(page: Page) -> str:
    """Return the page's key, as a digest where it is longer than PagerDuty takes."""
    if len(page.dedup_key) <= _DEDUP_LIMIT:
        return page.dedup_key
    return f"fencepost/{hashlib.sha256(page.dedup_key.encode()).hexdigest()}"


def _to_alertmanager(receiver: Receiver, pages: Sequence[Page], now: datetime) -> Message:
    options, headers = receiver.options, dict(_JSON)
    if token := options.get("token"):
        headers["Authorization"] = f"Bearer {token}"
    elif user := options.get("username"):
        account = f"{user}:{options.get('password', '')}".encode()
        headers["Authorization"] = f"Basic {base64.b64encode(account).decode()}"
    return Message(
        url=f"{receiver.target.rstrip('/')}/api/v2/alerts",
        body=json.dumps([_alert(page, now) for page in pages]),
        headers=headers,
        ca=options.get("ca", ""),
    )


def _alert(page: Page, now: datetime) -> dict[str, Any]:
    annotations = {
        "summary": page.summary,
        "description": "\n".join(f"{name}: {text}" for name, text in page.details.items()),
    }
    if page.runbook:
        annotations["runbook_url"] = page.runbook
    alert: dict[str, Any] = {
        "labels": {
            "alertname": f"Fencepost{page.reason}",
            "namespace": page.key.namespace,
            "name": page.key.name,
            "reason": page.reason,
            "severity": page.severity,
            "incident": page.dedup_key,
        },
        "annotations": annotations,
        "startsAt": page.opened_at.isoformat(),
        "endsAt": (page.resolved_at or now + LAPSE).isoformat(),
    }
    if page.runbook:
        alert["generatorURL"] = page.runbook
    return alert


def harmless(text: str) -> str:
    """Return a text that calls nobody in a chat."""
    return _CALLS.sub(lambda found: _HARMLESS[found[0]], text)
