"""Which Spark settings Fencepost sets itself; a spec that sets one of them is refused."""

from __future__ import annotations

from typing import Final

RESERVED_KEYS: Final = frozenset(
    {
        "spark.app.name",
        "spark.blockManager.port",
        "spark.driver.bindAddress",
        "spark.driver.blockManager.port",
        "spark.driver.host",
        "spark.driver.port",
        "spark.master",
        "spark.python.daemon.module",
        "spark.ui.killEnabled",
    }
)
RESERVED_PREFIXES: Final = (
    "spark.authenticate",
    "spark.deploy.recovery",
    "spark.master.rest.",
    "spark.network.crypto.",
    "spark.submit.",
)


def is_reserved(key: str) -> bool:
    """Return whether Fencepost alone sets a Spark setting."""
    return key in RESERVED_KEYS or key.startswith(RESERVED_PREFIXES)
