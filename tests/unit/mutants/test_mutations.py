"""What a mutant changes, and what is not drawn: text for users."""

from __future__ import annotations

import pytest

from mutants.mutations import mutations_of

HEAD = "def f(a, b):\n"


def changes(body: str) -> list[tuple[str, str]]:
    source = HEAD + "".join(f"    {line}\n" for line in body.splitlines())
    found = [each.lines(source) for each in mutations_of(source)]
    for each in mutations_of(source):
        compile(each.applied(source), "mutant", "exec")
    return found


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ("a = a < b", ["a = (a <= b)"]),
        ("a = 1 < a <= b", ["a = (1 <= a <= b)", "a = (1 < a < b)", "a = 2 < a <= b"]),
        ("a = a in b", ["a = (a not in b)"]),
        ("a = a is None", ["a = (a is not None)"]),
        ("a = a and b", ["a = (a or b)"]),
        ("a = not a", ["a = (a)"]),
        ("a = True", ["a = False"]),
        ("a = b(2)", ["a = b(3)"]),
        ("a = b if a else None", ["a = b if (not (a)) else None"]),
        ("return a", ["pass"]),
        ("a.b = b", ["pass"]),
        ("a.b(b)", ["pass"]),
        ("raise a", ["pass"]),
    ],
)
def test_each_change_is_a_plausible_mistake(body: str, expected: list[str]) -> None:
    assert sorted(after for _, after in changes(body)) == sorted(expected)


def test_a_branch_is_dropped_with_and_without_the_other_one() -> None:
    found = changes("if a:\n    b()\nelse:\n    a()")
    assert ("if a:", "if False:") in found
    assert ("if a:", "if (not (a)):") in found
    assert ("a()", "pass") in found
    assert ("case [b]:", "case [b] if False:") in changes("match a:\n    case [b]:\n        b()")


def test_a_branch_that_only_logs_is_not_dropped() -> None:
    found = changes('if a:\n    b()\nelse:\n    log.info("b")\n    log.info("a")')
    assert sorted(after for _, after in found) == ["if (not (a)):", "if False:", "pass"]


@pytest.mark.parametrize(
    "body",
    [
        'a = f"{a == b}"',
        'a = "one" if b else "many"',
        "message = a == b",
        'message += "b"',
        "log.info(a == b)",
        "if a == b:\n    log.info(a)",
        "if a:\n    log.info(a)\nelif b:\n    log.info(b)\nelse:\n    log.info(a)",
        "a = b(message=a == b)",
        "return None",
        '"""Say."""',
        "assert a == b",
        "a = b",
    ],
)
def test_what_changes_only_a_message_or_fails_everywhere_is_not_drawn(body: str) -> None:
    assert changes(body) == []


def test_a_function_that_returns_a_message_is_left_out() -> None:
    source = 'def why(a: int) -> str:\n    if a > 1:\n        return f"{a} are"\n    return "one is"\n'
    assert mutations_of(source) == []


def test_only_an_error_s_text_is_left_out() -> None:
    assert changes("raise ValueError(a == b)") == [("raise ValueError(a == b)", "pass")]


def test_constants_of_a_module_are_drawn_and_its_classes_fields_are_not() -> None:
    found = mutations_of("MOST = 3\nclass A:\n    b: int = 3\n    def c(self):\n        return 4\n")
    assert [(each.line, each.function) for each in found] == [(1, None), (5, 4), (5, 4)]
