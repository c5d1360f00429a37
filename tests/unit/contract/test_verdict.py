"""A hostile driver writes its termination log; the operator reads a verdict of the right types, or none."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fencepost.contract import Reason, Verdict
from present import present

GOOD: dict[str, Any] = {"exit_code": 51, "reason": "BadSpec", "message": "m", "remedy": "r", "epoch": 3, "version": 4}


def read(**changes: Any) -> Verdict:
    return present(Verdict.from_json(json.dumps({**GOOD, **changes})))


def test_a_verdict_is_read_as_it_was_written() -> None:
    written = Verdict(
        exit_code=52, reason=Reason.DATA_LOSS, message="gone", remedy="restore", epoch=1, batch={"t/0": (1, 2)}
    )
    assert Verdict.from_json(written.to_json()) == written


@pytest.mark.parametrize("field", ["message", "remedy"])
@pytest.mark.parametrize("value", [["a"], 3, None, {"a": "b"}, True], ids=repr)
def test_a_value_that_is_not_text_is_read_as_absent(field: str, value: object) -> None:
    found = read(**{field: value})
    assert getattr(found, field) == ""


@pytest.mark.parametrize("field", ["epoch", "version"])
@pytest.mark.parametrize("value", ["3", -1, 2**63, 1.5, True, [1]], ids=repr)
def test_a_value_that_is_not_a_count_is_read_as_absent(field: str, value: object) -> None:
    found = read(**{field: value})
    assert getattr(found, field) is None


def test_a_reason_of_a_later_release_is_a_failure_that_names_it() -> None:
    found = read(reason="Teapot")
    assert (found.reason, found.message) == (Reason.FAILED, "Teapot: m")


def test_text_is_bounded_and_of_one_line() -> None:
    found = read(message="a\u2028b\nc" + "x" * 10_000, reason="R" * 1000)
    assert found.message.isprintable()
    assert len(found.message) < 5000


@pytest.mark.parametrize(
    "batch",
    [{"a/0": [1.5, 2]}, {"a/0": [1, 2, 3]}, {"a/0": "12"}, {"a/0": [-1, 2]}, {"x" * 999: [1, 2]}, [], 3, None],
    ids=repr,
)
def test_a_range_that_is_none_is_left_out(batch: object) -> None:
    assert read(batch=batch).batch == {}


@pytest.mark.parametrize(
    ("record", "expected"),
    [
        ({"a/0": 5}, {"a/0": 5}), ({}, {}), ({"a/0": -1}, {}), ({"a/0": True}, {}), ({"a/0": "5"}, {}), ("a/0", {}),
        ({"a/0": 5, "b/0": 6}, {}), ({"x" * 999: 5}, {}), ({"a\n": 5}, {}), (None, {}), ([["a/0", 5]], {}),
    ],
    ids=repr,
)  # fmt: skip
def test_a_record_is_one_place_or_none(record: object, expected: dict[str, int]) -> None:
    found = read(record=record, suspect=True)
    assert (found.record, found.suspect) == (expected, True)
    for no_truth in ("true", 1, [True], None):
        found = read(suspect=no_truth)
        assert not found.suspect


def test_fields_of_a_later_release_are_ignored() -> None:
    assert read(future=[1]) == read()


@pytest.mark.parametrize(
    "text", ["", "panic", "[" * 4000, "3", "[]", "null", "{}", '{"exit_code": 51}', "9" * 4096,
     json.dumps({**GOOD, "epoch": 1e999}), json.dumps({**GOOD, "message": "\ud800"})], ids=lambda t: t[:9]
)  # fmt: skip
def test_text_without_a_verdict_is_read_as_none(text: str) -> None:
    assert Verdict.from_json(text) is None


@pytest.mark.parametrize("code", [-1, 256, "51", None, 1e999, True], ids=repr)
def test_an_impossible_exit_code_makes_a_verdict_invalid(code: object) -> None:
    assert Verdict.from_json(json.dumps({**GOOD, "exit_code": code}).replace("Infinity", "1e999")) is None


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)


@given(st.fixed_dictionaries({}, optional=dict.fromkeys([*GOOD, "batch", "record", "suspect"], JSON)))
def test_no_json_yields_another_type(raw: dict[str, object]) -> None:
    found = Verdict.from_json(json.dumps({**GOOD, **raw}))
    if found is not None:
        assert isinstance(found.reason, Reason)
        assert all(isinstance(text, str) for text in (found.message, found.remedy))
        assert all(count is None or type(count) is int for count in (found.epoch, found.version))
        assert Verdict.from_json(found.to_json()) is not None


@pytest.mark.parametrize(
    "loss", ["", None, 7, [], "3F0C5A9B7D21", "3f0c5a9b7d2", "3f0c5a9b7d21\n", "x" * 4000, {"id": 1}]
)
def test_a_loss_that_is_not_an_id_is_left_out(loss: object) -> None:
    found = present(Verdict.from_json(json.dumps({"exit_code": 52, "reason": "DataLoss", "loss": loss})))
    assert found.loss == ""


def test_a_long_message_leaves_the_loss_in() -> None:
    named = Verdict(exit_code=52, reason=Reason.LOG_TRUNCATED, message="x" * 9000, remedy="", loss="3f0c5a9b7d21")
    found = present(Verdict.from_json(named.to_json()))
    assert found.loss == "3f0c5a9b7d21"


@pytest.mark.parametrize("log", ["text", 3, None, {"a": "b"}, [1, None, "", ["x"]]], ids=repr)
def test_a_log_that_is_none_is_read_as_empty(log: object) -> None:
    assert read(log=log).log == ()


def test_a_log_is_bounded_whoever_wrote_it() -> None:
    found = read(log=[f"{number}\n\u2028{'y' * 999}" for number in range(999)])
    assert all(line.isprintable() and len(line) <= 300 for line in found.log)
    assert 0 < sum(map(len, found.log)) <= 2048
    assert found.log[-1].startswith("998 ")


@pytest.mark.parametrize("letter", ["a", "é", "\u4e2d", '"', "\\"])
def test_the_log_is_shortened_before_the_verdict(letter: str) -> None:
    """The kubelet keeps 4096 bytes, and cuts what is longer: then nothing could be read."""
    written = Verdict(
        exit_code=1, reason=Reason.FAILED, message=letter * 1000, remedy="r" * 300, batch={"t/0": (1, 2)},
        log=tuple(f"{number} {letter * 150}" for number in range(20)),
    )  # fmt: skip
    text = written.to_json()
    assert len(text.encode()) <= Verdict.LIMIT
    found = present(Verdict.from_json(text))
    assert (found.message, found.batch) == (written.message, written.batch)
    assert found.log == written.log[len(written.log) - len(found.log) :]
