"""The reference says what the CRD says, and no link of the docs leads nowhere."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml

from generators.reference import CRD, REFERENCE, REWINDS, ROOT, TRIALS, render

PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")])


def test_the_reference_is_what_the_crd_gives() -> None:
    assert REFERENCE.read_text() == render(*(yaml.safe_load(path.read_text()) for path in (CRD, REWINDS, TRIALS))), (
        "run `make reference`"
    )


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_between_pages_lead_somewhere(page: Path) -> None:
    targets = re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", page.read_text())
    missing = [target for target in targets if not (page.parent / target).exists()]
    assert not missing


def test_every_alert_has_its_runbook() -> None:
    rules = (ROOT / "charts/fencepost/templates/prometheusrule.yaml").read_text()
    alerts = re.findall(r"alert: (\w+)", rules)
    assert alerts
    assert [alert for alert in alerts if not (ROOT / f"docs/runbooks/{alert}.md").is_file()] == []
