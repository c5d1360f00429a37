"""`python -m fencepost.local`: see `fencepost.local.request`."""

from __future__ import annotations

import logging
import os
import sys

from fencepost.local.request import Request
from fencepost.local.run import LocalRun


def main() -> None:
    """Run what the first line of the standard input asks for."""
    # What the author's code prints is for the terminal, and must not come between the events.
    events = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    logging.basicConfig(level=logging.WARNING, format="%(levelname)s: %(message)s", stream=sys.stderr)
    LocalRun(Request.from_json(sys.stdin.readline()), events).run()


if __name__ == "__main__":
    main()
