"""Files of SPARK_CONF_DIR for master and workers, complete: the chart adds nothing to them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from fencepost_operator.desired.java_properties import dump

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

_LOG4J2: Final = {
    "rootLogger.level": "warn",
    "rootLogger.appenderRef.console.ref": "console",
    "appender.console.type": "Console",
    "appender.console.name": "console",
    "appender.console.target": "SYSTEM_ERR",
    "appender.console.layout.type": "PatternLayout",
    "appender.console.layout.pattern": "%d{yyyy-MM-dd'T'HH:mm:ss.SSSXXX} %p %c{1}: %m%n%ex",
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
