"""Files of SPARK_CONF_DIR for master and workers, complete: the chart adds nothing to them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from fencepost_operator.desired.cluster.java_properties import dump

_DEFAULTS: Final = {
    "spark.network.timeout": "60s",
    "spark.executor.heartbeatInterval": "5s",
    "spark.executor.heartbeat.maxFailures": "3",
    "spark.worker.timeout": "60",
    "spark.worker.cleanup.enabled": "true",
    "spark.worker.cleanup.interval": "600",
    "spark.worker.cleanup.appDataTtl": "3600",
    "spark.executor.logs.rolling.strategy": "size",
    "spark.executor.logs.rolling.maxSize": "10485760",
    "spark.executor.logs.rolling.maxRetainedFiles": "3",
    # Served by the web UIs of master and worker, on the ports that they have.
    "spark.metrics.conf.*.source.jvm.class": "org.apache.spark.metrics.source.JvmSource",
    "spark.metrics.conf.*.sink.prometheusServlet.class": "org.apache.spark.metrics.sink.PrometheusServlet",
    "spark.metrics.conf.*.sink.prometheusServlet.path": "/metrics/prometheus",
}
_REQUIRED: Final = {
    "spark.authenticate": "true",
    "spark.network.crypto.enabled": "true",
    "spark.network.crypto.cipher": "AES/GCM/NoPadding",
    "spark.network.crypto.saslFallback": "false",
    "spark.master.rest.enabled": "false",
    "spark.ui.killEnabled": "false",
    "spark.master.ui.decommission.allow.mode": "DENY",
    "spark.deploy.recoveryMode": "FILESYSTEM",
    "spark.deploy.recoveryDirectory": "/var/lib/fencepost/recovery",
}
"""What isolation and recovery depend on: these replace the author's settings of the same name."""

_JSON: Final = (
    '{"time": "%d{yyyy-MM-dd\'T\'HH:mm:ss.SSSXXX}", "level": "%level{WARN=warning, FATAL=critical, lowerCase=true}",'
    ' "logger": "%enc{%c{1}}{JSON}", "message": "%enc{%m}{JSON}"%notEmpty{, "exception": "%enc{%ex}{JSON}"}}%n'
)
"""The keys of `fencepost.logs`. A pattern, for a layout of its own would load a hundred classes."""
_LOG4J2: Final = {
    "rootLogger.level": "warn",
    "rootLogger.appenderRef.console.ref": "console",
    "appender.console.type": "Console",
    "appender.console.name": "console",
    "appender.console.target": "SYSTEM_ERR",
    "appender.console.layout.type": "PatternLayout",
    "appender.console.layout.pattern": _JSON,
    "logger.deploy.name": "org.apache.spark.deploy",
    "logger.deploy.level": "info",
    "logger.native.name": "org.apache.hadoop.util.NativeCodeLoader",
    "logger.native.level": "error",
}


def spark_files(author: Mapping[str, str]) -> dict[str, str]:
    """Return each file's text by its name; `author` holds the settings of spec.cluster.sparkConf."""
    return {
        "spark-defaults.conf": dump({**_DEFAULTS, **dict(sorted(author.items())), **_REQUIRED}),
        "log4j2.properties": dump(_LOG4J2),
    }
