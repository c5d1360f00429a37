"""The driver's JVM, started directly.

PySpark would run a shell script that runs a JVM that prints the command of a second JVM.  Starting Spark's gateway
ourselves saves the first, and lets the start overlap the Python imports; PySpark then finds a gateway that is already
there through its own variables, PYSPARK_GATEWAY_PORT and PYSPARK_GATEWAY_SECRET.  The JVM ends when this process does:
it reads its standard input, and that closes.
"""

from __future__ import annotations

import os
import shutil
import signal
import struct
import subprocess
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from fencepost.contract import Reason
from fencepost.errors import BadSpec, DependencyDown, DriverError, OutOfMemory

ARCHIVE: Final = Path("/opt/fencepost/spark.jsa")
"""The class-data-sharing archive of the image: with it and no C2, the driver's JVM needs 5.6 s of CPU time until its
first batch instead of 21.9 s (local mode, both cores busy; dev/bench/driver)."""

UNMOVED: Final = ("-XX:+UnlockDiagnosticVMOptions", "-XX:ArchiveRelocationMode=0")
"""Map the archive at the address that it was written for. Java 17 moves it to a random one by default, and writes to
nearly all of its pages: 139 of a master's 217 MiB, where 23 are enough and the JVMs of a node share the others."""

LATE_C2: Final = (
    "-XX:Tier4InvocationThreshold=50000",
    "-XX:Tier4MinInvocationThreshold=6000",
    "-XX:Tier4CompileThreshold=150000",
    "-XX:Tier4BackEdgeThreshold=400000",
)
"""Ten times HotSpot's defaults: C2 compiles what many batches run, and not what only the start runs.

Until warm and then per batch of 1,000, on the testbed: C1 alone 8.8 s and 421 ms, this 8.7 s and 377 ms, HotSpot's own
thresholds 11.9 s and 381 ms. An executor's JVM took 3.2 CPU-s until its second job with this, and 4.5 without."""

FIRST_HEAP: Final = "-XX:InitialRAMPercentage=12.5"
"""An eighth of the pod's memory, at most the heap's limit. From Java's own 64th the driver's heap grew to what a start
needs in 28 collections, four of them full, and an executor's in 17."""

EXIT_WITHOUT_MEMORY: Final = "-XX:+ExitOnOutOfMemoryError"
"""An OutOfMemoryError may end any thread of Spark, and the batch hangs. So the JVM ends, with OUT_OF_MEMORY_EXIT."""
OUT_OF_MEMORY_EXIT: Final = 3
REFUSED_EXIT: Final = 1
"""Java's exit code for options that it does not know."""

CONF_DIR: Final = Path("/opt/fencepost/conf")
"""An empty folder: Spark's launcher puts one first on every class path, and the archive admits only an empty one."""

MODULE_OPTIONS: Final = (
    "-XX:+IgnoreUnrecognizedVMOptions",
    *(
        f"--add-opens={module}=ALL-UNNAMED"
        for module in (
            "java.base/java.lang", "java.base/java.lang.invoke", "java.base/java.lang.reflect", "java.base/java.io",
            "java.base/java.net", "java.base/java.nio", "java.base/java.util", "java.base/java.util.concurrent",
            "java.base/java.util.concurrent.atomic", "java.base/jdk.internal.ref", "java.base/sun.nio.ch",
            "java.base/sun.nio.cs", "java.base/sun.security.action", "java.base/sun.util.calendar",
            "java.security.jgss/sun.security.krb5",
        )
    ),
    "-Dio.netty.tryReflectionSetAccessible=true",
    "-Dio.netty.allocator.type=pooled",
    "-Dio.netty.handler.ssl.defaultEndpointVerificationAlgorithm=NONE",
)  # fmt: skip
"""The options of org.apache.spark.launcher.JavaModuleOptions in Spark 4.3, without the incubating vector module."""


def spark_home() -> Path:
    """Return SPARK_HOME, or the folder of the pyspark package."""
    home = os.environ.get("SPARK_HOME")
    if home:
        return Path(home)
    spec = find_spec("pyspark")
    if spec is None or spec.origin is None:
        raise RuntimeError("pyspark is not installed")
    return Path(spec.origin).parent


def sharing_options() -> tuple[str, ...]:
    """Return the options for the archive when the image has one; a mismatch makes a JVM slower, never wrong."""
    return (f"-XX:SharedArchiveFile={ARCHIVE}", "-Xshare:auto", *UNMOVED) if ARCHIVE.is_file() else ()


def java_command(*, memory: str, options: Sequence[str], class_path: str, conf_dir: Path) -> list[str]:
    """Return the command of the gateway's JVM. `memory` is as in spark.driver.memory.

    `class_path` comes after Spark's jars: the archive admits only additions at the end.
    """
    java_home = os.environ.get("JAVA_HOME")
    java = str(Path(java_home) / "bin" / "java") if java_home else shutil.which("java") or "java"
    return [
        java,
        "-cp",
        ":".join(part for part in (f"{conf_dir}/", f"{spark_home()}/jars/*", class_path) if part),
        f"-Xmx{memory}",
        *MODULE_OPTIONS,
        *sharing_options(),
        *LATE_C2,
        FIRST_HEAP,
        "-XX:+UseSerialGC",
        "-XX:-UsePerfData",
        EXIT_WITHOUT_MEMORY,
        *options,
        "org.apache.spark.api.python.PythonGatewayServer",
    ]


@dataclass(frozen=True, slots=True)
class Gateway:
    """A JVM that is starting; `connect` waits for it."""

    process: subprocess.Popen[bytes]
    answer: Path
    options: tuple[str, ...]
    """The author's options."""

    @classmethod
    def start(
        cls,
        *,
        memory: str,
        options: Sequence[str] = (),
        class_path: str = "",
        environment: Mapping[str, str] | None = None,
    ) -> Gateway:
        """Start the JVM and return at once."""
        folder = Path(tempfile.mkdtemp(prefix="fencepost-"))
        conf_dir = CONF_DIR if CONF_DIR.is_dir() else folder / "conf"
        conf_dir.mkdir(exist_ok=True)
        answer = folder / "gateway"
        env = {
            **(os.environ if environment is None else environment),
            "_PYSPARK_DRIVER_CONN_INFO_PATH": str(answer),
            "SPARK_CONF_DIR": str(conf_dir),
            "SPARK_HOME": str(spark_home()),
            "SPARK_CONNECT_MODE": "0",
        }
        process = subprocess.Popen(
            java_command(memory=memory, options=options, class_path=class_path, conf_dir=conf_dir),
            stdin=subprocess.PIPE,
            stdout=2,  # what Java prints is part of the log
            env=env,
            # Python handles the signals for the driver: it finishes the current batch first.
            preexec_fn=_ignore_signals,  # noqa: PLW1509 - nothing is threaded yet
        )
        return cls(process=process, answer=answer, options=tuple(options))

    def connect(self, timeout: float = 60.0) -> None:
        """Wait until the gateway listens, and give PySpark its address.

        Raises DependencyDown when it does not come up, BadSpec when Java refuses the author's options.
        """
        deadline = time.monotonic() + timeout
        while not self.answer.is_file():
            if (ended := self.ended()) is not None:
                raise self._refusal() or ended
            if time.monotonic() > deadline:
                raise DependencyDown(f"the driver's JVM did not start within {timeout:.0f} s", reason=Reason.JVM_FAILED)
            time.sleep(0.02)
        content = self.answer.read_bytes()
        port, length = struct.unpack("!ii", content[:8])
        os.environ["PYSPARK_GATEWAY_PORT"] = str(port)
        os.environ["PYSPARK_GATEWAY_SECRET"] = content[8 : 8 + length].decode()
        shutil.rmtree(self.answer.parent, ignore_errors=True)

    def _refusal(self) -> BadSpec | None:
        """Return why Java refused to start, when that can only be the author's options."""
        if self.process.returncode != REFUSED_EXIT or not self.options:
            return None
        return BadSpec(
            f"Java does not start with the options {' '.join(self.options)}; the driver's log has its message",
            reason=Reason.SPARK_CONF_INVALID,
            remedy="Correct spark.driver.extraJavaOptions in spec.cluster.sparkConf.",
        )

    def ended(self, timeout: float = 0.0) -> DriverError | None:
        """Return why the JVM ended, waiting at most `timeout` seconds for its end, or None while it runs."""
        try:
            code = self.process.wait(timeout)
        except subprocess.TimeoutExpired:
            return None
        if code == OUT_OF_MEMORY_EXIT:
            return OutOfMemory("the driver's JVM ran out of heap memory", remedy=OUT_OF_MEMORY_REMEDY)
        return DependencyDown(f"the driver's JVM ended with {code}", reason=Reason.JVM_FAILED)

    def cause(self, error: BaseException) -> BaseException:
        """Return why the JVM ended when that is what `error` is about, else `error`."""
        chain: BaseException | None = error
        while chain is not None:
            if type(chain).__name__ in {"Py4JNetworkError", "ConnectionRefusedError"}:
                return self.ended(timeout=2.0) or error
            chain = chain.__cause__ or chain.__context__
        return error


OUT_OF_MEMORY_REMEDY: Final = (
    "Raise spec.job.memory, or let the transform collect less to the driver (collect, toPandas, broadcast)."
)


def _ignore_signals() -> None:
    """Leave the signals of the terminal and the kubelet to Python, also when they are sent to the process group."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    os.setpgid(0, 0)
