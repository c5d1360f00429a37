"""The code of a pipeline is tried as a run does, and the first thing that would end the run is named."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from fakes.driver_configs import USUAL
from fencepost.contract import CassandraSink, FunctionSink, PluginSink
from fencepost.contract.code_check import CodeRequest, DeclaredTable
from fencepost.testing.code_check import answer

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from fencepost.contract import DeclaredSink, DriverConfig

TABLE = DeclaredTable(keyspace="shop", name="rows", columns={"id": "bigint"}, partition_key=("id",))
SINK = CassandraSink(name="rows", keyspace="shop", table="rows")
FUNCTION = "def transform(batch, context):\n    return batch.selectExpr('offset AS id')\n"


@pytest.fixture(autouse=True)
def _own_modules(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(sys, "path", [*sys.path])
    yield
    sys.modules.pop("checked_job", None)


def problem(spark: SparkSession | None, folder: Path, source: str, *sinks: DeclaredSink, **changes: str) -> str | None:
    (folder / "checked_job.py").write_text(source)
    config: DriverConfig = replace(USUAL, entrypoint="checked_job:transform", sinks=sinks or (SINK,))
    config = replace(config, **changes)  # type: ignore[arg-type]
    request = CodeRequest(config=config, code_dir=str(folder), tables={"shop.rows": TABLE})

    def session(_: object) -> nullcontext[SparkSession]:
        assert spark is not None, "the code is not tried on Spark after a mistake"
        return nullcontext(spark)

    found = answer(request, session).problems
    assert all(one.remedy for one in found)
    return found[0].message if found else None


def test_code_that_fits_has_no_problems(spark: SparkSession, tmp_path: Path) -> None:
    assert problem(spark, tmp_path, FUNCTION) is None


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("", "has no function 'transform'"),
        ("import nothing_of_that_name", "'checked_job' imports 'nothing_of_that_name'"),
        ("raise ValueError('no price')", "ValueError: no price at checked_job.py:1"),
        ("def transform(batch): ...", "cannot be called with (batch, context)"),
        ("def transform(batch, context, more): ...", "missing a required argument: 'more'"),
    ],
)
def test_a_function_that_cannot_be_called_is_named_without_spark(tmp_path: Path, source: str, message: str) -> None:
    assert message in (problem(None, tmp_path, source) or "")


def test_a_module_of_another_name_is_named(tmp_path: Path) -> None:
    assert "module 'other' is not on the" in (problem(None, tmp_path, FUNCTION, entrypoint="other:transform") or "")


def test_sinks_without_their_function_or_package_are_named(tmp_path: Path) -> None:
    function = FunctionSink(name="own", entrypoint="checked_job:write")
    assert "has no function 'write'" in (problem(None, tmp_path, FUNCTION, function) or "")
    plugin = PluginSink(name="own", plugin="none-of-that-name")
    assert "no installed package has a sink" in (problem(None, tmp_path, FUNCTION, plugin) or "")


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("def transform(batch, context):\n    return batch.select('offset')\n", "column 'offset' is not in the table"),
        ("def transform(batch, context):\n    return batch.select(batch.value.alias('id'))\n", "bigint takes"),
        ("def transform(batch, context):\n    return 1\n", "the transform returned int"),
        ("def transform(batch, context):\n    return {'x': batch}\n", "the declared sinks are ['rows']"),
    ],
)
def test_frames_that_do_not_fit_are_named(spark: SparkSession, tmp_path: Path, source: str, message: str) -> None:
    assert message in (problem(spark, tmp_path, source) or "")
