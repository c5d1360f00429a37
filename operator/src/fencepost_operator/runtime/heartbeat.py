"""Calls a dead man's switch while the operator works, by the protocol of healthchecks.io.

GET of the URL says that all is well, POST of the URL and `/fail` says why it is not.  Whoever answers that URL tells a
person when neither comes: this process cannot, once it is dead.
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Final

import aiohttp

from fencepost_operator.api import ObjectKey, Reason
from fencepost_operator.errors import PortError
from fencepost_operator.text import single_line

log = logging.getLogger(__name__)

_URL: Final = re.compile(r"https?://[!-~]{1,2000}")
_TIMEOUT: Final = aiohttp.ClientTimeout(total=8, connect=5)
_SHOWN: Final = 10
"""Loops that a failure names."""


@dataclass(slots=True, kw_only=True)
class Heartbeat:
    """Beats every `interval` seconds. `stuck` returns the loops that began no pass for too long."""

    address: Callable[[], Awaitable[str]]
    """Returns the URL. Raises PortError."""
    stuck: Callable[[], Mapping[ObjectKey, float]]
    is_leading: Callable[[], bool]
    beaten: Callable[[str], None]
    interval: float = 20.0

    async def run(self) -> None:
        """Beat until cancelled; what fails is logged and tried again at the next beat."""
        async with aiohttp.ClientSession(timeout=_TIMEOUT, trust_env=True) as session:
            while True:
                if self.is_leading():
                    self.beaten(await self._beat(session))
                await asyncio.sleep(self.interval)

    async def _beat(self, session: aiohttp.ClientSession) -> str:
        try:
            url = (await self.address()).strip().rstrip("/")
        except PortError as error:
            log.warning("the heartbeat's URL is not known: %s", error, extra={"reason": Reason.PAGE_FAILED})
            return "failed"
        if not _URL.fullmatch(url):
            log.error("the heartbeat's Secret holds no URL such as https://hc-ping.com/UUID")
            return "failed"
        silent = self.stuck()
        method, target, body = ("POST", f"{url}/fail", _why(silent)) if silent else ("GET", url, None)
        try:
            async with session.request(method, target, data=body, allow_redirects=False) as answer:
                if answer.status < 300:  # noqa: PLR2004 - a redirect is not followed, and reaches nobody
                    return "delivered" if not silent else "delivered_failure"
                log.warning("the heartbeat was answered with HTTP status %s", answer.status)
        except (aiohttp.ClientError, TimeoutError, OSError, ValueError) as error:
            log.warning("the heartbeat's URL did not answer: %s", type(error).__name__)
        return "failed"


def _why(silent: Mapping[ObjectKey, float]) -> str:
    lines = [single_line(f"the loop of {key} began no pass for {age:.0f} s") for key, age in silent.items()]
    more = [f"and {len(lines) - _SHOWN} more"] if len(lines) > _SHOWN else []
    return "\n".join([*lines[:_SHOWN], *more])
