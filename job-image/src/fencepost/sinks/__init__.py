"""Where rows go: the driver checks frames against sinks, Python workers write them.

`Sink` is the interface, also for sinks of other packages; docs/sinks.md is their guide.
"""

from __future__ import annotations

from fencepost.sinks.interface import (
    BatchToken,
    OpenSink,
    PurgeableSink,
    PurgeToken,
    Sink,
    SinkContext,
    SinkTask,
)
from fencepost.sinks.retries import retried

__all__ = ["BatchToken", "OpenSink", "PurgeToken", "PurgeableSink", "Sink", "SinkContext", "SinkTask", "retried"]
