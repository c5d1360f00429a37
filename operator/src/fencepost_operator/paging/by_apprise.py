"""One message by a service of Apprise: nothing of its configuration, attachments, plugins or storage is used.

Only the process that sends imports this: Apprise takes a second and 30 MB, and its URLs are a namespace's.
"""

from __future__ import annotations

from typing import Any

import apprise
import requests

from fencepost_operator.paging.delivery import Answer, Message, Outcome
from fencepost_operator.paging.http_post import answer_of

_answers: list[Answer] = []
"""What web services answered to the message."""


def prepare() -> None:
    """Load all services, and have `requests` follow no redirects, use no proxy, and note what is answered."""
    apprise.Apprise.instantiate("json://localhost")
    send = requests.sessions.Session.send

    def noting(session: requests.Session, request: requests.PreparedRequest, **options: Any) -> requests.Response:  # noqa: ANN401
        session.trust_env = False
        response = send(session, request, **options | {"allow_redirects": False})
        _answers.append(answer_of(response.status_code, response.headers.get("Retry-After")))
        return response

    requests.sessions.Session.send = noting  # type: ignore[method-assign, assignment]


def send(message: Message) -> Answer:
    """Send a message; a URL that is none, or a service that says no, is refused."""
    _answers.clear()
    asset = apprise.AppriseAsset(async_mode=False, secure_logging=True, storage_mode="memory")
    service = apprise.Apprise.instantiate(message.url, asset=asset)
    if service is None:
        return Answer(outcome=Outcome.REFUSED)
    told = apprise.Apprise(asset=asset)
    told.add(service)
    is_told = told.notify(
        title=message.title,
        body=message.body,
        notify_type=apprise.NotifyType(message.apprise),
        body_format=apprise.NotifyFormat.TEXT,
    )
    if is_told:
        return Answer(outcome=Outcome.DELIVERED, status=_answers[-1].status if _answers else 0)
    bad = [answer for answer in _answers if answer.outcome is not Outcome.DELIVERED]
    return bad[-1] if bad else Answer(outcome=Outcome.FAILED)
