"""What JVMs of the image (driver, executors) write to stderr: a real Log4j with the image's configuration."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any, Final

import pytest
from py4j.java_gateway import GatewayParameters, JavaGateway

from fencepost.spark.jvm.gateway import Gateway
from fencepost.worker.log_entry import entries
from fencepost_operator.desired.cluster.spark_files import spark_files

CONFIGURATION: Final = Path(__file__).parents[3] / "job-image" / "build" / "log4j2.properties"
PATTERN: Final = "appender.console.layout.pattern"
HOSTILE: Final = 'a "quoted" \\ value\r\n{"level": "info"}\x1b[2J\u2028end'


def properties(text: str) -> dict[str, str]:
    """Read Java properties of one line each; backslashes are not used."""
    lines = [line for line in text.splitlines() if line and not line.startswith("#")]
    return {name.strip(): value.strip() for name, _, value in (line.partition("=") for line in lines)}


@pytest.fixture
def said(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> list[str]:
    """The lines of a warning with hostile text, and of one with an exception and its cause."""
    for name in ("PYSPARK_GATEWAY_PORT", "PYSPARK_GATEWAY_SECRET"):
        monkeypatch.setenv(name, "")  # restored afterwards
    monkeypatch.setenv("TZ", "UTC")  # as in the image
    made = Gateway.start(memory="64m", options=[f"-Dlog4j2.configurationFile={CONFIGURATION}"])
    made.connect(300)
    client = JavaGateway(
        gateway_parameters=GatewayParameters(
            port=int(os.environ["PYSPARK_GATEWAY_PORT"]), auth_token=os.environ["PYSPARK_GATEWAY_SECRET"]
        )
    )
    jvm: Any = client.jvm
    writer = jvm.org.apache.logging.log4j.LogManager.getLogger("org.example.Writer")
    writer.warn(HOSTILE)
    writer.error("failed", jvm.java.lang.IllegalStateException("outer", jvm.java.io.IOException("inner")))
    client.close()
    made.process.communicate(timeout=60)
    return [line for line in capfd.readouterr().err.split("\n") if "Writer" in line]


def test_the_drivers_jvm_logs_one_object_of_json_per_entry(said: list[str]) -> None:
    plain, failed = (json.loads(line) for line in said)
    assert {**plain, "time": ""} == {"time": "", "level": "warning", "logger": "Writer", "message": HOSTILE}
    assert failed["time"].endswith("Z")
    assert (failed["level"], failed["message"]) == ("error", "failed")
    assert "IllegalStateException: outer\n\tat " in failed["exception"]
    assert "Caused by: java.io.IOException: inner" in failed["exception"]


def test_an_executors_entry_keeps_its_keys_in_the_workers_log(said: list[str]) -> None:
    written = [json.loads(line) for line in entries(said, executor="3", application="a", stream="stderr")]
    of_worker = {"executor": "3", "application": "a", "stream": "stderr"}
    assert written == [{**json.loads(line), **of_worker} for line in said]


def test_driver_executors_and_daemons_log_alike() -> None:
    daemons = properties(spark_files({})["log4j2.properties"].replace("\\", ""))
    assert properties(CONFIGURATION.read_text())[PATTERN] == daemons[PATTERN]
