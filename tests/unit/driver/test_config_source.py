"""Where a run's configuration comes from: a mounted file, or the variable of an earlier operator."""

from __future__ import annotations

from pathlib import Path

from fencepost.contract import Variable
from fencepost.driver.environment import config_text


def test_the_file_takes_precedence_over_the_variable(tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    path.write_text("x" * 300 * 1024, encoding="utf-8")
    text = config_text({Variable.CONFIG_FILE: str(path), Variable.CONFIG: "{}"})
    assert len(text) == 300 * 1024


def test_the_variable_of_an_earlier_operator_is_read() -> None:
    assert config_text({Variable.CONFIG: '{"epoch": 1}'}) == '{"epoch": 1}'
