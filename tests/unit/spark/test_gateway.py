"""How the driver's JVM ends, and what of that the verdict says."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace

import pytest
from py4j.protocol import Py4JNetworkError

from fencepost.errors import BadSpec, BatchFailed, DependencyDown, DriverError, OutOfMemory
from fencepost.spark import session
from fencepost.spark.jvm.gateway import Gateway
from unit.spark.conftest import CONFIG

ALLOCATE = """
import os
from py4j.java_gateway import GatewayParameters, JavaGateway

client = JavaGateway(gateway_parameters=GatewayParameters(
    port=int(os.environ["PYSPARK_GATEWAY_PORT"]), auth_token=os.environ["PYSPARK_GATEWAY_SECRET"]))
client.new_array(client.jvm.long, 100_000_000)
"""


@pytest.fixture
def jvm(monkeypatch: pytest.MonkeyPatch) -> Iterator[Gateway]:
    """A JVM with a small heap, beside PySpark's."""
    for name in ("PYSPARK_GATEWAY_PORT", "PYSPARK_GATEWAY_SECRET"):
        monkeypatch.setenv(name, "")  # restored afterwards
    made = Gateway.start(memory="64m")
    made.connect(300)
    yield made
    made.process.communicate(timeout=60)


def failed_batch(error: Exception) -> DriverError:
    """The error of a batch whose JVM is gone, as the engine raises it."""
    try:
        raise BatchFailed(str(error)) from error
    except DriverError as raised:
        return raised


def test_a_jvm_that_runs_out_of_memory_ends_and_is_named_so(jvm: Gateway) -> None:
    assert jvm.ended() is None
    # In a process of its own: py4j leaves the socket open when its other end goes.
    client = subprocess.run([sys.executable, "-c", ALLOCATE], check=False, capture_output=True, text=True, timeout=60)
    assert "Py4JNetworkError" in client.stderr
    found = jvm.cause(failed_batch(Py4JNetworkError("Answer from Java side is empty")))
    assert isinstance(found, OutOfMemory)
    assert found.message == "the driver's JVM ran out of heap memory"
    assert "spec.job.memory" in found.remedy


def test_a_jvm_that_was_killed_is_named_so(jvm: Gateway) -> None:
    jvm.process.kill()
    found = jvm.cause(failed_batch(Py4JNetworkError("Answer from Java side is empty")))
    assert isinstance(found, DependencyDown)
    assert found.message == "the driver's JVM ended with -9"


def test_an_error_of_another_kind_stays_what_it_is(jvm: Gateway) -> None:
    error = failed_batch(ArithmeticError("no"))
    assert jvm.cause(error) is error


PROPERTIES = """
import os
from py4j.java_gateway import GatewayParameters, JavaGateway

client = JavaGateway(gateway_parameters=GatewayParameters(
    port=int(os.environ["PYSPARK_GATEWAY_PORT"]), auth_token=os.environ["PYSPARK_GATEWAY_SECRET"]))
system = client.jvm.java.lang.System
print(system.getProperty("authors.option"), system.getProperty("java.class.path").rpartition(":")[2])
client.close()
"""


def test_the_drivers_jvm_starts_with_the_authors_options_and_class_path(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("PYSPARK_GATEWAY_PORT", "PYSPARK_GATEWAY_SECRET"):
        monkeypatch.setenv(name, "")
    authors = {
        "spark.driver.extraJavaOptions": "-Dauthors.option='two words' -Xss2m",
        "spark.driver.extraClassPath": "/opt/authors/a.jar",
    }
    config = replace(CONFIG, spark_conf=authors)
    made = Gateway.start(
        memory="64m", options=session.driver_options(config), class_path=session.driver_class_path(config)
    )
    try:
        made.connect(300)
        ran = subprocess.run([sys.executable, "-c", PROPERTIES], check=True, capture_output=True, text=True, timeout=60)
    finally:
        made.process.communicate(timeout=60)
    assert ran.stdout.strip() == "two words /opt/authors/a.jar"


def test_java_options_that_java_refuses_are_a_bad_spec() -> None:
    made = Gateway.start(memory="64m", options=["-javaagent:/absent.jar"])
    with pytest.raises(BadSpec, match=r"Java does not start with the options -javaagent:/absent.jar"):
        made.connect(300)
    made.process.communicate(timeout=60)
