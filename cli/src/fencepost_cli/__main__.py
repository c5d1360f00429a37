"""`fencepost`, also as `kubectl fencepost` and as `python -m fencepost_cli`."""

from __future__ import annotations

import sys
from pathlib import PurePath
from typing import Final

from fencepost_cli.app import app

PLUGIN: Final = "kubectl-fencepost"
"""The program that kubectl starts for `kubectl fencepost`."""


def main() -> None:
    """Run one command and end the process with its exit code."""
    app(prog_name="kubectl fencepost" if PurePath(sys.argv[0]).stem == PLUGIN else "fencepost")


if __name__ == "__main__":
    main()
