"""`fencepost`, also as `python -m fencepost_cli`."""

from __future__ import annotations

from fencepost_cli.app import app


def main() -> None:
    """Run one command and end the process with its exit code."""
    app(prog_name="fencepost")


if __name__ == "__main__":
    main()
