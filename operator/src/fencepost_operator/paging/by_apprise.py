"""One message by a service of Apprise: nothing of its configuration, attachments, plugins or storage is used.

Only the process that sends imports this: Apprise takes a second and 30 MB, and its URLs are a namespace's.
"""

from __future__ import annotations

import smtplib
from collections.abc import Callable
from typing import Any, Final

import apprise
import requests
import urllib3

from fencepost_operator.paging.delivery import Answer, Message, Outcome
from fencepost_operator.paging.http_post import answer_of

_ANSWER_LIMIT: Final = 65_536
"""Bytes of a web service's answer that are read."""
_answers: list[Answer] = []
"""What web services answered to the message."""
_accepted: list[bool] = []
"""At least one item for each recipient that accepted the message."""
_reports: list[Callable[[Answer], None]] = []
"""Called as soon as the first recipient has accepted."""


def prepare() -> None:
    """Load all services; `requests` follows no redirects, uses no proxy, reads little, and notes what is answered."""
    apprise.Apprise.instantiate("json://localhost")
    send = requests.sessions.Session.send
    send_once = requests.adapters.HTTPAdapter.send

    def noting(session: requests.Session, request: requests.PreparedRequest, **options: Any) -> requests.Response:  # noqa: ANN401
        session.trust_env = False
        response = send(session, request, **options | {"allow_redirects": False})
        _answers.append(answer_of(response.status_code, response.headers.get("Retry-After")))
        return response

    def reading_little(
        adapter: requests.adapters.HTTPAdapter,
        request: requests.PreparedRequest,
        **options: Any,  # noqa: ANN401
    ) -> requests.Response:
        request.headers["Accept-Encoding"] = "identity"
        response = send_once(adapter, request, **options | {"stream": True})
        # Undecoded: a compressed answer is a thousand times larger than what was sent.
        try:
            response._content = response.raw.read(_ANSWER_LIMIT, decode_content=False)  # noqa: SLF001
        except (urllib3.exceptions.HTTPError, OSError) as error:
            raise requests.ConnectionError(error, request=request) from error
        finally:
            response.raw.close()
        response._content_consumed = True  # noqa: SLF001
        return response

    mark, send_mail = apprise.NotifyBase.mark_delivered, smtplib.SMTP.sendmail

    def marking(service: apprise.NotifyBase, *args: Any, **options: Any) -> None:  # noqa: ANN401
        _note_accepted()
        mark(service, *args, **options)

    def mailing(server: smtplib.SMTP, *args: Any, **options: Any) -> dict[str, tuple[int, bytes]]:  # noqa: ANN401
        refused = send_mail(server, *args, **options)
        _note_accepted()  # it raises where all are refused
        return refused

    apprise.NotifyBase.mark_delivered = marking  # type: ignore[method-assign, assignment]
    smtplib.SMTP.sendmail = mailing  # type: ignore[method-assign, assignment]
    requests.sessions.Session.send = noting  # type: ignore[method-assign, assignment]
    requests.adapters.HTTPAdapter.send = reading_little  # type: ignore[method-assign, assignment]


def _note_accepted() -> None:
    """Report the first recipient that accepts the message: this process may be killed before the last."""
    if not _accepted:
        for report in _reports:
            report(Answer(outcome=Outcome.PARTLY))
    _accepted.append(True)


def send(message: Message, report: Callable[[Answer], None]) -> Answer:
    """Send a message; REFUSED where the URL is invalid or the service rejects the message.

    `report` is called when the first recipient accepts it: a retry sends it to all recipients again.
    """
    _answers.clear()
    _accepted.clear()
    _reports[:] = [report]
    asset = apprise.AppriseAsset(async_mode=False, secure_logging=True, storage_mode="memory")
    service = apprise.Apprise.instantiate(message.url, asset=asset)
    if service is None:
        return Answer(outcome=Outcome.REFUSED)
    service.request_rate_per_sec = 0  # seconds between two recipients: with some, more than the process has
    notifier = apprise.Apprise(asset=asset)
    notifier.add(service)
    is_accepted = notifier.notify(
        title=message.title,
        body=message.body,
        notify_type=apprise.NotifyType(message.apprise),
        body_format=apprise.NotifyFormat.TEXT,
    )
    if is_accepted:
        return Answer(outcome=Outcome.DELIVERED, status=_answers[-1].status if _answers else 0)
    bad = [answer for answer in _answers if answer.outcome is not Outcome.DELIVERED]
    if _accepted:
        return Answer(outcome=Outcome.PARTLY, status=bad[-1].status if bad else 0)
    return bad[-1] if bad else Answer(outcome=Outcome.FAILED)
