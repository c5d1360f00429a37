"""Every reason is explained, every explained reason is used, and each text fits where it is shown."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from fencepost.contract import Reason
from fencepost.contract.guidance import GUIDANCE, PARTS, Category
from generators.reference import ROOT

SOURCES: Final = ("operator/src", "job-image/src", "cli/src")
NAMES: Final = {reason.name for reason in Reason}
WITHOUT_REMEDY: Final = {Reason.DURABLE, Reason.STOPPED}
"""Categories that need an action, with reasons that need none."""
ACTED_ON: Final = {*Category} - {Category.STEADY, Category.PROGRESS, Category.OPERATOR}


def test_every_reason_has_guidance() -> None:
    missing = sorted(set(Reason) - GUIDANCE.keys())
    assert not missing, f"say in fencepost/contract/guidance what {', '.join(missing)} means, then run `make reference`"
    twice = sum(map(len, PARTS)) - len(GUIDANCE)
    assert not twice, "a reason is explained in two parts of fencepost/contract/guidance"


def test_every_reason_is_the_outcome_of_something() -> None:
    given = {name for module in modules() for name in given_reasons(ast.parse(module.read_text()))}
    unused = sorted(NAMES - given)
    assert not unused, f"no rule, adapter or driver exit gives {unused}: remove it from Reason and its guidance"


def modules() -> Iterator[Path]:
    for source in SOURCES:
        for module in (ROOT / source).rglob("*.py"):
            if "guidance" not in module.parts and module.name != "reasons.py":
                yield module


def given_reasons(node: ast.AST) -> Iterator[str]:
    """Yield the names of reasons that are used as a value: not those that something is compared with."""
    match node:
        case ast.Compare() | ast.Set() | ast.pattern():
            return
        case ast.Attribute(value=ast.Name(id="Reason"), attr=name):
            yield name
    for child in ast.iter_child_nodes(node):
        yield from given_reasons(child)


@pytest.mark.parametrize("reason", GUIDANCE)
def test_the_texts_fit_where_they_are_shown(reason: Reason) -> None:
    found = GUIDANCE[reason]
    for text in (found.situation, found.does, found.remedy):
        assert text == text.strip().rstrip("."), "a clause has no full stop: a sentence, or a message, is made of it"
        assert "\n" not in text
    assert found.situation[:1] != found.situation[:1].lower() or found.situation.startswith("`")
    assert found.remedy[:1] == found.remedy[:1].lower(), "a message joins the remedy after others"
    assert not re.search(r"NAMESPACE|\bNAME\b", found.remedy), "a remedy is shown in conditions, without placeholders"
    if found.category in ACTED_ON and reason not in WITHOUT_REMEDY:
        assert found.remedy, "say what the user does"
        assert found.steps or found.more, "a runbook has more than the message"


@pytest.mark.parametrize("reason", [reason for reason, found in GUIDANCE.items() if found.more])
def test_more_leads_to_a_heading(reason: Reason) -> None:
    page, _, anchor = GUIDANCE[reason].more.partition("#")
    text = (ROOT / "docs/runbooks" / page).read_text()
    slugs = {
        re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-")
        for heading in re.findall(r"^#+ (.+)$", text, re.MULTILINE)
    }
    assert not anchor or anchor in slugs
