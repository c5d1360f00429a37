"""Pages as the messages of each kind of receiver.  Pure.

PagerDuty and Alertmanager get text as JSON; Apprise gets plain text, which it escapes for the service.  What is left to
do here is to keep text of tenants from calling people that a chat knows by name.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, Final

from fencepost_operator.paging.delivery import Message
from fencepost_operator.paging.notices import Notice
from fencepost_operator.paging.page import Page
from fencepost_operator.paging.receivers import Kind, Receiver

LAPSE: Final = timedelta(minutes=10)
"""Alertmanager resolves an alert that is not repeated for that long, as when the operator is dead."""
REPEAT: Final = timedelta(minutes=2)
BATCH: Final[Mapping[Kind, int]] = {Kind.APPRISE: 10, Kind.PAGERDUTY: 20, Kind.ALERTMANAGER: 50}
"""Pages that one process sends."""
_DEDUP_LIMIT: Final = 255
_NAMED: Final = 20
"""Pipelines that a message of many names."""
_CALLS: Final = re.compile(r"@(?=[\w*])|<")
_HARMLESS: Final = {"@": "\N{FULLWIDTH COMMERCIAL AT}", "<": "\N{SINGLE LEFT-POINTING ANGLE QUOTATION MARK}"}
_JSON: Final = {"Content-Type": "application/json"}


def messages_of(receiver: Receiver, notice: Notice, *, pagerduty: str, now: datetime) -> list[Message]:
    """Return the messages for a notice: two where it ends the last one of PagerDuty's shared incidents, else one."""
    match receiver.kind:
        case Kind.APPRISE:
            return [_by_apprise(receiver, notice)]
        case Kind.PAGERDUTY:
            return list(_to_pagerduty(receiver, notice, pagerduty))
        case Kind.ALERTMANAGER:
            return [_to_alertmanager(receiver, notice.pages, now)]


def _by_apprise(receiver: Receiver, notice: Notice) -> Message:
    page = notice.pages[0]
    lines = [f"{name}: {text}" for name, text in _details(notice).items()]
    if page.runbook:
        lines.append(f"Runbook: {page.runbook}")
    lines.append(f"Incident: {page.dedup_key if len(notice.pages) == 1 else page.shared_key}")
    kind = "success" if notice.is_end else "failure" if notice.is_urgent else "warning"
    title = _summary(notice) if notice.is_end else f"[{_severity(notice)}] {_summary(notice)}"
    return Message(
        url=receiver.target, title=harmless(title), body=harmless("\n".join(lines)), apprise=kind
    )  # fmt: skip


def _to_pagerduty(receiver: Receiver, notice: Notice, url: str) -> Iterator[Message]:
    page, alone = notice.pages[0], len(notice.pages) == 1
    event: dict[str, Any] = {
        "routing_key": receiver.target,
        "event_action": "resolve" if notice.is_end else "trigger",
        "dedup_key": _dedup_key(page.dedup_key if alone else page.shared_key),
        "client": "Fencepost",
        "payload": {
            "summary": _summary(notice),
            "source": str(page.key) if alone else page.key.namespace,
            "severity": _severity(notice),
            "timestamp": page.opened_at.isoformat(),
            "component": page.key.name if alone else "*",
            "group": page.key.namespace,
            "class": page.reason,
            "custom_details": _details(notice),
        },
    }
    if page.runbook:
        event["links"] = [{"href": page.runbook, "text": "Runbook"}]
    yield Message(url=url, body=json.dumps(event), headers=_JSON)
    if notice.is_last:  # resolves the shared incident too; PagerDuty ignores a key that it does not know
        yield Message(url=url, body=json.dumps(event | {"dedup_key": _dedup_key(page.shared_key)}), headers=_JSON)


def _severity(notice: Notice) -> str:
    return "critical" if any(page.severity == "critical" for page in notice.pages) else notice.pages[0].severity


def _summary(notice: Notice) -> str:
    page = notice.pages[0]
    if len(notice.pages) == 1:
        return page.summary
    over = "Resolved: " if notice.is_end else ""
    return f"{over}{page.key.namespace}: {len(notice.pages)} pipelines {page.reason}"


def _details(notice: Notice) -> dict[str, str]:
    """Return the details in the order of reading; of many pages, their names, and the first one as an example."""
    first = dict(notice.pages[0].details)
    if len(notice.pages) == 1:
        return first
    names = [page.key.name for page in notice.pages]
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    return {
        "Pipelines": f"{', '.join(names[:_NAMED])}{more}",
        "Look at them": f"kubectl get spl -n {notice.pages[0].key.namespace}",
        **{f"{name} (the first)": text for name, text in first.items()},
    }


def _dedup_key(key: str) -> str:
    """Return the key, as a digest where it is longer than PagerDuty takes."""
    return key if len(key) <= _DEDUP_LIMIT else f"fencepost/{hashlib.sha256(key.encode()).hexdigest()}"


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
    """Return a text that mentions no user or channel of a chat."""
    return _CALLS.sub(lambda found: _HARMLESS[found[0]], text)
