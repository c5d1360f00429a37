"""Work in a thread beside a block: load, users, a watch."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def beside(act: Callable[[threading.Event], object], *, name: str) -> Iterator[None]:
    """Run `act` in a thread of that name; the event is set when the block ends, which then waits for the thread."""
    stop = threading.Event()
    thread = threading.Thread(target=act, args=(stop,), name=name)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()
