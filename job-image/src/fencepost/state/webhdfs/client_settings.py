"""How Spark's Hadoop client is set: what it sends with each request, and how long it waits."""

from __future__ import annotations

from typing import Final

from fencepost.state.webhdfs.data_service import REPORT_TIMEOUT

MARGIN: Final = 30.0
"""Seconds for which a client waits beyond the longest answer."""


def client_settings(header: str, *, patience: float) -> dict[str, str]:
    """Return Spark's settings for a client that sends the header with each request, and never repeats one.

    A request whose answer is lost has an unknown outcome, which the fence settles, not the client.  So the client waits
    for longer than the services, which pursue a change of the fence or a chunk for `patience` seconds.
    """
    return {
        "spark.hadoop.dfs.http.client.retry.policy.enabled": "false",
        "spark.hadoop.dfs.webhdfs.rest-csrf.custom-header": header,
        "spark.hadoop.dfs.webhdfs.rest-csrf.enabled": "true",
        "spark.hadoop.dfs.webhdfs.rest-csrf.methods-to-ignore": "NONE",
        "spark.hadoop.dfs.webhdfs.socket.read-timeout": f"{2 * patience + REPORT_TIMEOUT + MARGIN:.0f}s",
        # Hadoop keeps a client per address, with its header: a later run of this process may get the same port.
        "spark.hadoop.fs.webhdfs.impl.disable.cache": "true",
    }
