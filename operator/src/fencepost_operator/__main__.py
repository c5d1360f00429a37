"""`python -m fencepost_operator`: runs the operator in the cluster it finds itself in."""

from __future__ import annotations

import asyncio
import logging
import os
import sys

from fencepost.contract import Reason
from fencepost_operator import logs
from fencepost_operator.app import run
from fencepost_operator.settings import Settings, SettingsError

log = logging.getLogger(__name__)


def main() -> int:
    """Run until SIGTERM or SIGINT; return the exit code: 0 stopped on request, 1 an error, 2 bad settings.

    A replica that finds that another one holds the lease ends with exit code 3, see `app`.
    """
    logs.configure(logging.INFO)
    try:
        settings = Settings.from_environment(os.environ)
    except SettingsError as error:
        log.critical("%s", error, extra={"reason": Reason.BAD_SETTINGS})
        return 2
    logs.configure(settings.log_level)
    try:
        asyncio.run(run(settings))
    except Exception:
        log.critical("the operator cannot continue", exc_info=True, extra={"reason": Reason.CRASHED})
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
