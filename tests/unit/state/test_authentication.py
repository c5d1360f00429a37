"""Headers and tickets of the checkpoint's services."""

from __future__ import annotations

import pytest

from fencepost.state.webhdfs.authentication import (
    TICKET_LIFE,
    Keys,
    NotAuthentic,
    ReadTicket,
    StoredTicket,
    TicketExpired,
    UploadTicket,
)

READ = ReadTicket(file="f", length=3, report_to="h:1", patience=5.0)


class Clock:
    time = 1000.0

    def __call__(self) -> float:
        return self.time


def test_header() -> None:
    keys = Keys("secret")
    keys.check_header({"host": "h", keys.header("a/1"): '""'}, "a/1")
    for headers in ({}, {keys.header("a/2"): ""}, {Keys("other").header("a/1"): ""}, {keys.header("a/1")[:-1]: ""}):
        with pytest.raises(NotAuthentic):
            keys.check_header(headers, "a/1")


def test_header_is_what_spark_redacts() -> None:
    """spark.redaction.regex, applied to keys and values: (?i)secret|password|token|access[.]?key."""
    assert "secret" in Keys("s").header("a/1")


def test_ticket() -> None:
    keys = Keys("secret")
    upload, stored = UploadTicket(file="f", report_to="h:1", patience=5.0), StoredTicket(file="f", length=3)
    assert keys.opened(keys.ticket(READ), ReadTicket) == READ
    assert keys.opened(keys.ticket(upload), UploadTicket) == upload
    assert keys.opened(keys.ticket(stored), StoredTicket) == stored


def test_refused_tickets() -> None:
    clock = Clock()
    keys = Keys("secret", now=clock)
    ticket = keys.ticket(READ)
    text, _, mac = ticket.partition(".")
    for forged in (
        "",
        ".",
        mac,
        f"{text}.",
        f".{mac}",
        f"{text}A.{mac}",
        f"{ticket}0",
        Keys("other").ticket(READ),
        "ä",
    ):
        with pytest.raises(NotAuthentic):
            keys.opened(forged, ReadTicket)
    with pytest.raises(NotAuthentic):
        keys.opened(ticket, StoredTicket)
    clock.time += TICKET_LIFE + 7
    with pytest.raises(TicketExpired, match="expired 7 s ago") as expired:
        keys.opened(ticket, ReadTicket)
    assert expired.value.ticket == READ
