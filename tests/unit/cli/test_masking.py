"""Masks of fields: of the same shape, the same for the same content, and refused where they would mean nothing."""

from __future__ import annotations

import json
import re
import uuid
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fencepost.local.record_lines import FileRecord
from fencepost_cli.errors import CliError
from fencepost_cli.masking import Masking, parse_masks

KEY = b"a secret"


def masked(record: FileRecord, *masks: str, key: bytes = KEY) -> FileRecord:
    return Masking(parse_masks(masks), key).apply(record)


def mask(value: Any, *masks: str, key: bytes = KEY) -> Any:
    found = masked(FileRecord(topic="orders", offset=7, value=json.dumps(value).encode()), *masks, key=key)
    return json.loads(found.value or b"")


def test_a_field_has_another_content_of_the_same_shape() -> None:
    before: dict[str, Any] = {
        "id": 1234,
        "who": {"email": "Ann.Lee@shop.example", "tags": ["a1", "b2"]},
        "price": 120.5,
        "note": None,
    }
    after = mask(before, "id", "value.who", "price", "note")
    assert re.fullmatch(r"[1-9]\d{3}", str(after["id"]))
    assert re.fullmatch(r"[A-Z][a-z]{2}\.[A-Z][a-z]{2}@[a-z]{4}\.[a-z]{7}", after["who"]["email"])
    assert all(re.fullmatch(r"[a-z]\d", tag) for tag in after["who"]["tags"])
    assert re.fullmatch(r"[1-9][1-9]0\.[1-9]", str(after["price"]))
    assert after["note"] is None
    assert all(after[name] != before[name] for name in ("id", "who", "price"))
    assert mask(before, "who.email") == {**before, "who": {**before["who"], "email": after["who"]["email"]}}


def test_the_same_content_has_the_same_mask_wherever_it_is() -> None:
    record = FileRecord(key=b"4711", value=b'[{"user": 4711}, {"user": "4711"}]', headers=(("user", b"4711"),))
    found = masked(record, "key", "user", "headers.user")
    first, second = json.loads(found.value or b"")
    assert str(first["user"]).encode() == second["user"].encode() == found.key == found.headers[0][1] != b"4711"
    assert masked(record, "key", key=b"another").key != found.key


@given(st.integers(-(2**63), 2**63 - 1))
def test_an_integer_fits_into_the_type_that_it_had(number: int) -> None:
    found = mask({"n": number}, "n")["n"]
    assert len(str(found)) == len(str(number))
    assert all(abs(found) <= limit for limit in (2**31 - 1, 2**63 - 1) if abs(number) <= limit)


def test_what_programs_parse_can_still_be_parsed() -> None:
    one = uuid.uuid1()
    found = uuid.UUID(mask({"id": str(one)}, "id")["id"])
    assert found != one
    assert (found.version, found.variant) == (1, one.variant)
    assert re.fullmatch("[0-9a-f]{16}", mask({"id": "00ff00ff00ff00aa"}, "id")["id"])


def test_bytes_that_are_no_text_keep_their_length() -> None:
    found = masked(FileRecord(key=b"\x00\xff\x00\x01", value=b"{}"), "key")
    assert (len(found.key or b""), found.value) == (4, b"{}")
    assert masked(FileRecord(key=None, value=None), "key", "value.x") == FileRecord(key=None, value=None)


def test_json_of_a_lone_surrogate_stays_json() -> None:
    found = masked(FileRecord(value=rb'{"a": "\ud800", "b": "x1"}'), "b").value or b""
    assert json.loads(found)["a"] == "\ud800"


@pytest.mark.parametrize(
    ("value", "problem"),
    [
        (b'{"secret": true}', "is a boolean"),
        (b'{"secret": "2026-01-02T03:04:05Z"}', "is a time"),
        (b'{"secret": NaN}', "is not a finite number"),
        (b"secret", "is in something else than a JSON object"),
    ],
)
def test_what_cannot_be_masked_is_refused_without_its_content(value: bytes, problem: str) -> None:
    with pytest.raises(CliError) as refused:
        masked(FileRecord(topic="orders", partition=1, offset=7, value=value), "value.secret")
    assert str(refused.value) == f"--mask value.secret: at orders/1@7 it {problem}" + (
        ", and its mask would be one of two values"
        if "boolean" in problem
        else ", and its mask would be none"
        if "time" in problem
        else ""
    )


def test_a_mask_that_no_record_has_is_refused() -> None:
    masking = Masking(parse_masks(["emial", "headers.x", "key"]), KEY)
    masking.apply(FileRecord(key=b"k", value=b'{"email": "a"}', headers=(("x", None),)))
    with pytest.raises(CliError, match=r"--mask value\.emial: no record"):
        masking.check_used()


@pytest.mark.parametrize("text", ["", "value.", "headers", "a..b"])
def test_a_mask_without_a_field_is_refused(text: str) -> None:
    with pytest.raises(CliError, match="names no field"):
        parse_masks([text])
