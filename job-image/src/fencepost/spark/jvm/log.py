"""What the driver's JVM logs, read by its Python process: warnings, and how the executors' processes end.

The JVM's standard error is the container's; nothing reads it there.  So Log4j writes the same lines a second time, to a
buffer in the JVM, which is emptied once per look.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

EXECUTORS_LOGGER: Final = "org.apache.spark.deploy.client"
"""Of the application's client of the master, to which the master reports each executor's start and end."""
PATTERN: Final = "%d{HH:mm:ss}{UTC} %p %c{1}: %m%ex{none}%n"
LONGEST_READ: Final = 64 * 1024
"""Characters. Of more since the last look, the end is read."""


class JvmLog:
    """The lines since the last look. Any thread may read, one at a time."""

    def __init__(self, spark: SparkSession) -> None:
        jvm: Any = spark._jvm  # noqa: SLF001 - Spark's JVM API
        core = jvm.org.apache.logging.log4j.core
        core.config.Configurator.setLevel(EXECUTORS_LOGGER, jvm.org.apache.logging.log4j.Level.INFO)
        writer = jvm.java.io.StringWriter()
        self._buffer = writer.getBuffer()
        layout = core.layout.PatternLayout.newBuilder().withPattern(PATTERN).build()
        appender = core.appender.WriterAppender.createAppender(layout, None, writer, "fencepost", False, True)
        appender.start()
        context = jvm.org.apache.logging.log4j.LogManager.getContext(False)
        context.getConfiguration().getRootLogger().addAppender(appender, None, None)
        context.updateLoggers()

    def read(self) -> list[str]:
        """Return the lines that were logged since the last look, and forget them."""
        length = self._buffer.length()
        if not length:
            return []
        text: str = self._buffer.substring(max(0, length - LONGEST_READ), length)
        self._buffer.delete(0, length)
        return text.splitlines()
