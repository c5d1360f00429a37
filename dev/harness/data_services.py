"""Who may use the testbed's Kafka and Cassandra: many tests at once, or one test that takes them away.

Tests run in several processes. A lock file between them makes an outage wait for the tests that are running in the
others, and makes these wait until the outage is over.
"""

from __future__ import annotations

import fcntl
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

from testbed.home import Home


@contextmanager
def in_use() -> Iterator[None]:
    """Keep Kafka and Cassandra there for the block; others may use them too."""
    with ExitStack() as held:
        # An outage that waits for the lock holds the turn, so that one user after the other cannot keep it waiting.
        with Home.of_user().held("data-services.turn", fcntl.LOCK_SH):
            held.enter_context(Home.of_user().held("data-services.lock", fcntl.LOCK_SH))
        yield


@contextmanager
def taken_away() -> Iterator[None]:
    """Have Kafka and Cassandra alone for the block."""
    with (
        Home.of_user().held("data-services.turn", fcntl.LOCK_EX),
        Home.of_user().held("data-services.lock", fcntl.LOCK_EX),
    ):
        yield
