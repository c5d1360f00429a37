"""Write docs/decisions.md and the runbook of each reason from the guidance; `make reference` runs it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final

from fencepost.contract import Reason
from fencepost.contract.guidance import FIRST, GUIDANCE, Category, Guidance, Step
from generators.reference import ROOT

TABLE: Final = ROOT / "docs/decisions.md"
RUNBOOKS: Final = ROOT / "docs/runbooks"
MARK: Final = "<!-- Written by `make reference`: change fencepost.contract.guidance instead. -->"
NOTHING: Final = "Nothing."

HEAD: Final = f"""{MARK}
# What Fencepost decides, and why

Each decision has a reason: one word, which is the same in conditions, Events, `status.failure`, the driver's verdict,
log lines and metrics. `kubectl describe spl -n NAMESPACE NAME` shows it with a message. A reason leads to its runbook,
with the commands to run.
"""


def table() -> str:
    """Return docs/decisions.md."""
    return "\n".join([HEAD, *(line for category in Category for line in _section(category))])


def _section(category: Category) -> Iterator[str]:
    yield f"## {category}\n"
    yield "| situation | reason | what Fencepost does | what you do |"
    yield "|---|---|---|---|"
    for reason, found in GUIDANCE.items():
        if found.category is category:
            cells = (_sentence(found.situation), f"[`{reason}`](runbooks/{reason}.md)", _sentence(found.does))
            yield f"| {' | '.join(map(_cell, cells))} | {_cell(_sentence(found.remedy) or NOTHING)} |"
    yield ""


def runbook(reason: Reason, found: Guidance) -> str:
    """Return the page of one reason."""
    first = found.first or FIRST[found.category]
    steps = (first, *(step for step in found.steps if step.command != first.command))
    parts = [
        f"{MARK}\n# {reason}",
        _sentence(found.situation),
        f"**Fencepost**: {_sentence(found.does)}",
        f"**You**: {_sentence(found.remedy) or NOTHING}",
        *(f"{number}. {_line(step)}" for number, step in enumerate(steps, start=1)),
    ]
    if found.more:
        parts.append(f"More: [{found.more.rpartition('/')[2]}]({found.more}).")
    return "\n\n".join(parts) + "\n"


def _line(step: Step) -> str:
    return f"{step.text}:\n\n   ```console\n   $ {step.command}\n   ```"


def _sentence(clause: str) -> str:
    if not clause:
        return ""
    return f"{clause[:1].upper()}{clause[1:].rstrip('.')}."


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


def pages() -> dict[Path, str]:
    """Return all that is generated from the guidance."""
    return {TABLE: table()} | {RUNBOOKS / f"{reason}.md": runbook(reason, found) for reason, found in GUIDANCE.items()}


def generated() -> set[Path]:
    """Return the pages that are there and were written by this module."""
    return {page for page in (TABLE, *RUNBOOKS.glob("*.md")) if page.exists() and page.read_text().startswith(MARK)}


def main() -> None:
    """Write each page, and remove those of reasons that do not exist any more."""
    wanted = pages()
    for page in generated() - wanted.keys():
        page.unlink()
    for page, text in wanted.items():
        page.write_text(text)


if __name__ == "__main__":
    main()
