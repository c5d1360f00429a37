"""One message by a service of Apprise: nothing of its configuration, attachments, plugins or storage is used.

Only the process that sends imports this: Apprise takes a second and 30 MB, and its URLs are a namespace's.
"""

from __future__ import annotations

import smtplib
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final

import apprise
import requests
import urllib3

from fencepost_operator.paging.delivery import Answer, Message, Outcome
from fencepost_operator.paging.http_post import answer_of

_ANSWER_LIMIT: Final = 65_536
"""Bytes of a web service's answer that are read."""


@dataclass(slots=True)
class _Progress:
    """What services have answered to the current message."""

    report: Callable[[Answer], None]
    answers: list[Answer] = field(default_factory=list)
    is_accepted: bool = False
    """By at least one recipient."""

    def accept(self) -> None:
        """Report the first recipient that accepts the message: this process may be killed before the last."""
        if not self.is_accepted:
            self.is_accepted = True
            self.report(Answer(outcome=Outcome.PARTLY))


_progress = _Progress(lambda _answer: None)


def prepare() -> None:
    """Load all services; `requests` follows no redirects, uses no proxy, reads little, and notes what is answered."""
    apprise.Apprise.instantiate("json://localhost")
    send_once, mark, send_mail = (
        requests.adapters.HTTPAdapter.send, apprise.NotifyBase.mark_delivered, smtplib.SMTP.sendmail
    )  # fmt: skip

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
        _progress.answers.append(answer_of(response.status_code, response.headers.get("Retry-After")))
        return response

    def marking(service: apprise.NotifyBase, *args: Any, **options: Any) -> None:  # noqa: ANN401
        _progress.accept()
        mark(service, *args, **options)

    def mailing(server: smtplib.SMTP, *args: Any, **options: Any) -> dict[str, tuple[int, bytes]]:  # noqa: ANN401
        refused = send_mail(server, *args, **options)
        _progress.accept()  # it raises where all are refused
        return refused

    requests.adapters.HTTPAdapter.send = reading_little  # type: ignore[method-assign, assignment]
    requests.Session.get_redirect_target = lambda *_: None  # type: ignore[method-assign]
    # Each session sets it to True when it is created, and reads it for proxies, accounts and certificates.
    requests.Session.trust_env = property(lambda _: False, lambda *_: None)  # type: ignore[assignment]
    apprise.NotifyBase.mark_delivered = marking  # type: ignore[method-assign, assignment]
    smtplib.SMTP.sendmail = mailing  # type: ignore[method-assign, assignment]


def send(message: Message, report: Callable[[Answer], None]) -> Answer:
    """Send a message; REFUSED where the URL is invalid or the service rejects the message.

    `report` is called when the first recipient accepts it: a retry sends it to all recipients again.
    """
    global _progress  # noqa: PLW0603 - the services that are patched have no other way to it
    _progress = _Progress(report)
    asset = apprise.AppriseAsset(async_mode=False, secure_logging=True, storage_mode="memory")
    service = apprise.Apprise.instantiate(message.url, asset=asset)
    if service is None:
        return Answer(outcome=Outcome.REFUSED)
    service.request_rate_per_sec = 0  # seconds between two recipients: with some, more than the process has
    notifier = apprise.Apprise(asset=asset)
    notifier.add(service)
    is_delivered = notifier.notify(
        title=message.title,
        body=message.body,
        notify_type=apprise.NotifyType(message.apprise),
        body_format=apprise.NotifyFormat.TEXT,
    )
    answers = _progress.answers
    if is_delivered:
        return Answer(outcome=Outcome.DELIVERED, status=answers[-1].status if answers else 0)
    bad = [answer for answer in answers if answer.outcome is not Outcome.DELIVERED]
    if _progress.is_accepted:
        return Answer(outcome=Outcome.PARTLY, status=bad[-1].status if bad else 0)
    return bad[-1] if bad else Answer(outcome=Outcome.FAILED)
