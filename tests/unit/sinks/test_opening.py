"""Sinks by their kind: an installed package's entry point, and the author's function."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pyarrow as pa
import pytest

from fencepost.contract import DeclaredSink, DriverConfig, FunctionSink, PluginSink
from fencepost.errors import BadSpec, BatchFailed
from fencepost.sinks import BatchToken, Sink
from fencepost.sinks.opening import GROUP, open_sinks
from unit.sinks.sqlite_sink import SqliteSink

TOKEN = BatchToken(pipeline="s/ns/n", epoch=4, version=9, token=77, offsets={"t/0": (1, 3)})
WARM_UP = BatchToken(pipeline="s/ns/n", epoch=4, version=0, token=0, offsets={})
ROWS = pa.RecordBatch.from_pydict({"a": [1, 2, 3]})
CONFIG = json.loads((Path(__file__).parents[1] / "contract" / "configs" / "plain.json").read_text())


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Install a package of this name, as `pip install --target` leaves it, with these entry points."""

    def install(**targets: str) -> None:
        info = tmp_path / "some_sinks-1.0.dist-info"
        info.mkdir()
        (info / "METADATA").write_text("Metadata-Version: 2.1\nName: some-sinks\nVersion: 1.0\n")
        lines = [f"{name} = {target}" for name, target in targets.items()]
        (info / "entry_points.txt").write_text("\n".join([f"[{GROUP}]", *lines]))
        monkeypatch.syspath_prepend(str(tmp_path))

    return install


def opened(sink: DeclaredSink, *, code_dir: Path | None = None, options_dir: Path | None = None) -> Sink:
    config = replace(DriverConfig.from_json(json.dumps({**CONFIG, "sinks": []})), sinks=(sink,))
    sinks = open_sinks(
        config,
        session=cast("Any", None),
        credentials=None,
        kafka_properties={},
        code_dir=code_dir,
        options_dir=options_dir,
    )
    return sinks[sink.name]


def test_a_plugin_is_found_by_its_entry_point(installed: Callable[..., None], tmp_path: Path) -> None:
    installed(sqlite="unit.sinks.sqlite_sink:SqliteSink")
    options = {"path": str(tmp_path / "rows.db")}
    assert isinstance(opened(PluginSink(name="rows", plugin="sqlite", options=options)), SqliteSink)


def test_options_of_the_secret_take_precedence(installed: Callable[..., None], tmp_path: Path) -> None:
    installed(sqlite="unit.sinks.sqlite_sink:SqliteSink")
    secret = tmp_path / "secrets" / "rows"
    (secret / "..data").mkdir(parents=True)  # Kubernetes' own link
    (secret / "path").write_text(str(tmp_path / "secret.db"))
    opened(
        PluginSink(name="rows", plugin="sqlite", options={"path": "/absent/rows.db"}), options_dir=tmp_path / "secrets"
    )
    assert (tmp_path / "secret.db").exists()


@pytest.mark.parametrize(
    ("target", "kind", "reason", "message"),
    [
        ("unit.sinks.sqlite_sink:SqliteSink", "absent", "SinkNotFound", "no installed package has a sink 'absent'"),
        ("no_such_module:Sink", "one", "SinkInvalid", "importing 'no_such_module:Sink' failed"),
        ("unit.sinks.sqlite_sink:Absent", "one", "SinkInvalid", "importing 'unit.sinks.sqlite_sink:Absent' failed"),
        ("builtins:dict.fromkeys", "one", "SinkInvalid", "made a dict, which is not a fencepost.sinks.Sink"),
        ("unit.sinks.sqlite_sink:SqliteSink", "one", "BadSpec", "the option path is missing"),
    ],
)
def test_a_plugin_that_cannot_work_is_a_bad_spec(
    installed: Callable[..., None], target: str, kind: str, reason: str, message: str
) -> None:
    installed(one=target)
    with pytest.raises(BadSpec, match=message) as caught:
        opened(PluginSink(name="rows", plugin=kind))
    assert caught.value.reason == reason


def test_a_plugin_that_raises_something_else_is_tried_again(installed: Callable[..., None], tmp_path: Path) -> None:
    installed(one="unit.sinks.sqlite_sink:SqliteSink")
    with pytest.raises(BatchFailed, match="did not open: OperationalError") as caught:
        opened(PluginSink(name="rows", plugin="one", options={"path": str(tmp_path / "absent" / "rows.db")}))
    assert caught.value.reason == "SinkFailed"


FUNCTION = """
import json

def write(batches, context):
    with open(context.options["path"], "a") as file:
        for batch in batches:
            file.write(json.dumps([context.token, context.epoch, context.version, context.offsets, batch.num_rows]))

def half(batches, context):
    next(batches)
"""


@pytest.fixture
def code(tmp_path: Path) -> Iterator[Path]:
    folder = tmp_path / "code"
    folder.mkdir()
    (folder / "authors_sink.py").write_text(FUNCTION)
    yield folder
    sys.modules.pop("authors_sink", None)


def written(sink: Sink, token: BatchToken, *batches: pa.RecordBatch) -> int:
    return sum(sink.task().write(iter(batches), token))


def test_a_function_gets_the_rows_and_the_token_that_fences_it(code: Path, tmp_path: Path) -> None:
    options = {"path": str(tmp_path / "written")}
    sink = opened(FunctionSink(name="mine", entrypoint="authors_sink:write", options=options), code_dir=code)
    assert written(sink, WARM_UP, ROWS) == 0
    assert not (tmp_path / "written").exists(), "a warm-up calls no function"
    assert written(sink, TOKEN, ROWS) == 3
    assert json.loads((tmp_path / "written").read_text()) == [77, 4, 9, {"t/0": [1, 3]}, 3]


def test_a_function_that_leaves_rows_fails_the_batch(code: Path) -> None:
    sink = opened(FunctionSink(name="mine", entrypoint="authors_sink:half"), code_dir=code)
    assert written(sink, TOKEN, ROWS) == 3
    with pytest.raises(BatchFailed, match="sink 'mine' returned before it had read all rows"):
        written(sink, TOKEN, ROWS, ROWS)


def test_a_function_that_is_absent_is_named_with_its_field(code: Path) -> None:
    with pytest.raises(BadSpec) as caught:
        opened(FunctionSink(name="mine", entrypoint="authors_sink:absent"), code_dir=code)
    assert caught.value.remedy.startswith("Correct function.entrypoint of sink 'mine' in spec.sinks")


def test_the_interface_imports_without_spark_arrow_and_clients() -> None:
    program = "import fencepost.sinks, sys; print(*sys.modules)"
    found = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout.split()
    assert {"pyspark", "pyarrow", "cassandra", "confluent_kafka"}.isdisjoint(found)
