"""What others wrote becomes one printable line."""

from __future__ import annotations

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fencepost_operator.errors import LIMIT, Rejected
from fencepost_operator.text import single_line


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("plain", "plain"),
        ("two\nlines\r\n", "two lines"),
        ("a\u2028b\u2029c\u0085d", "a b c d"),
        ("\x1b[31mred\x00", "[31mred"),
        ("abc\u202egnp.exe", "abc gnp.exe"),
        (None, ""),
        (["a", {"b": 1}], "['a', {'b': 1}]"),
        ("Flüge 機 🛫", "Flüge 機 🛫"),
    ],
)
def test_lines(text: object, line: str) -> None:
    assert single_line(text) == line


def test_a_long_text_keeps_both_ends() -> None:
    cut = single_line("StatefulSet a-g6-master is invalid: " + "x" * 5000 + " spec.tolerations[0].operator", limit=100)
    assert len(cut) == 100
    assert cut.startswith("StatefulSet a-g6-master is invalid")
    assert cut.endswith("spec.tolerations[0].operator")


@given(st.text(), st.integers(10, 50))
def test_no_text_breaks_a_line(text: str, limit: int) -> None:
    line = single_line(text, limit=limit)
    assert len(line) <= limit
    assert not {unicodedata.category(character) for character in line} & {"Cc", "Zl", "Zp", "Cs"}
    line.encode()


def test_messages_of_errors_are_lines() -> None:
    error = Rejected("spec.a\u2028kind: Secret" + "x" * 9000, remedy="fix\nit")
    assert len(str(error)) == LIMIT
    assert str(error).startswith("spec.a kind: Secret")
    assert error.remedy == "fix it"
