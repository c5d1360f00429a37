"""The campaign's checker finds what is missing, what is too much and what is wrong."""

from __future__ import annotations

import json
from dataclasses import replace

from campaign.checker import Output, Row, differences, expected
from harness.kafka_log import Record

LOG = [
    Record(0, 0, "a", json.dumps({"id": 1, "text": "one"}).encode()),
    Record(0, 1, "a", json.dumps({"id": 3, "text": "poison OOMKilled"}).encode()),
    Record(0, 2, "b", b'{"id": 4, "te'),
    Record(0, 4, "a", json.dumps({"id": 5, "text": "five"}).encode()),
    Record(1, 0, "c", json.dumps({"id": 2, "text": "two"}).encode()),
]
WANTED = Output(
    records={(0, 0): Row((0, 0), 1, "one"), (0, 4): Row((0, 4), 5, "five"), (1, 0): Row((1, 0), 2, "two")},
    names={"a": Row((0, 4), 5, "five"), "c": Row((1, 0), 2, "two")},
    letters=frozenset({(0, 1), (0, 2)}),
)


def test_the_log_says_what_each_sink_holds() -> None:
    """A record that fails is a letter, and the newest record of a key is its row."""
    assert expected(LOG) == WANTED
    assert differences(WANTED, WANTED) == []


def test_a_row_that_is_missing_or_too_much_is_named() -> None:
    """A lost row, and a row of an aborted record."""
    found = replace(WANTED, records={**WANTED.records, (0, 3): Row((0, 3), 9, "aborted")})
    lost = replace(WANTED, records={(0, 0): WANTED.records[0, 0]})
    assert differences(found, WANTED) == ["records: not in the log: 1, such as (0, 3)"]
    assert differences(lost, WANTED) == ["records: missing: 2, such as (0, 4), (1, 0)"]


def test_an_older_row_of_a_key_is_named() -> None:
    """The order of a key's records was broken."""
    found = replace(WANTED, names={**WANTED.names, "a": WANTED.records[0, 0]})
    (said,) = differences(found, WANTED)
    assert said.startswith("names: 'a' is Row(place=(0, 0)")


def test_a_letter_too_few_and_a_letter_of_a_good_record_are_named() -> None:
    """Letters are exact as rows are."""
    found = replace(WANTED, letters=frozenset({(0, 1), (1, 0)}))
    assert differences(found, WANTED) == [
        "letters: missing: 1, such as (0, 2)",
        "letters: of a record that is not poison: 1, such as (1, 0)",
    ]
