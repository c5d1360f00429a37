"""Both charts against what they rendered to at the last review.

`UPDATE_GOLDEN=1 pytest tests/unit/charts/test_golden.py` rewrites the files; look at the
difference before committing it.
"""

import os

import pytest

from unit.charts.rendering import CASES, CHARTS, GOLDEN, cases, helm, render


@pytest.mark.parametrize(("chart", "case"), cases())
def test_a_chart_renders_as_before(chart: str, case: str) -> None:
    golden = GOLDEN / chart / f"{case}.yaml"
    rendered = render(chart, case)
    if os.environ.get("UPDATE_GOLDEN"):
        golden.parent.mkdir(parents=True, exist_ok=True)
        golden.write_text(rendered)
    assert rendered == golden.read_text(), "rendered otherwise than before; UPDATE_GOLDEN=1 accepts it"


@pytest.mark.parametrize(("chart", "case"), cases())
def test_a_chart_passes_helms_lint(chart: str, case: str) -> None:
    helm("lint", "--strict", "--quiet", str(CHARTS / chart), f"--values={CASES / chart / case}.yaml")


def test_every_golden_file_has_its_case() -> None:
    assert sorted((path.parent.name, path.stem) for path in GOLDEN.glob("*/*.yaml")) == cases()
