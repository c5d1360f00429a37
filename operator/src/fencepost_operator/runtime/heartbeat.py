"""Calls a dead man's switch while the operator works, by the protocol of healthchecks.io.

GET of the URL reports that all is well, POST of the URL and `/fail` reports why it is not: loops stand still, no pass
succeeds, or a page reaches no receiver.  The service behind that URL alerts the administrator when neither arrives:
this process cannot, once it is dead.  Of several replicas the one with shard 0 calls, for all of them: the others write
their troubles to their Leases.
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

import aiohttp

from fencepost_operator.api import ObjectKey, Reason
from fencepost_operator.errors import PortError
from fencepost_operator.text import single_line

log = logging.getLogger(__name__)

_URL: Final = re.compile(r"https?://[!-~]{1,2000}")
_TIMEOUT: Final = aiohttp.ClientTimeout(total=8, connect=5)
_SHOWN: Final = 10
"""Pipelines that a failure names for one cause."""
UNDELIVERED_AFTER: Final = 300.0
"""Seconds that a page waits, without having reached any of the operator's receivers, before a beat reports it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Troubles:
    """What keeps the operator from its work; seconds by pipeline, and those of the oldest page that no receiver has."""

    stuck: Mapping[ObjectKey, float] = field(default_factory=dict)
    failing: Mapping[ObjectKey, float] = field(default_factory=dict)
    undelivered: float = 0.0

    def lines(self) -> Sequence[str]:
        """Return the lines of the report, none while all is well."""
        return [
            *_named("the loop of {} began no pass for {:.0f} s", self.stuck),
            *_named("no pass over {} succeeded for {:.0f} s; the operator's log says why", self.failing),
            *([_UNDELIVERED.format(self.undelivered)] if self.undelivered > UNDELIVERED_AFTER else []),
        ]


_UNDELIVERED: Final = (
    "a page has waited for {:.0f} s, and none of the operator's receivers has it; its log names the Secret"
)


@dataclass(slots=True, kw_only=True)
class Heartbeat:
    """Beats every `interval` seconds."""

    address: Callable[[], Awaitable[str]]
    """Returns the URL. Raises PortError."""
    troubles: Callable[[], Troubles]
    elsewhere: Callable[[], Awaitable[Sequence[str]]]
    """Returns the lines of other replicas, which have shards of the pipelines too."""
    is_leading: Callable[[], bool]
    beaten: Callable[[str], None]
    interval: float = 20.0

    def report(self) -> str:
        """Return the lines of this replica, for the one that beats."""
        return "\n".join(self.troubles().lines())

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
        why = [*self.troubles().lines(), *await self.elsewhere()]
        method, target, body = ("POST", f"{url}/fail", "\n".join(why)) if why else ("GET", url, None)
        try:
            async with session.request(method, target, data=body, allow_redirects=False) as answer:
                if answer.status < 300:  # noqa: PLR2004 - a redirect is not followed
                    return "delivered" if not why else "delivered_failure"
                log.warning("the heartbeat was answered with HTTP status %s", answer.status)
        except (aiohttp.ClientError, TimeoutError, OSError, ValueError) as error:
            log.warning("the heartbeat's URL did not answer: %s", type(error).__name__)
        return "failed"


def _named(words: str, ages: Mapping[ObjectKey, float]) -> Iterator[str]:
    for key, age in list(ages.items())[:_SHOWN]:
        yield single_line(words.format(key, age))
    if len(ages) > _SHOWN:
        yield f"and {len(ages) - _SHOWN} more"
