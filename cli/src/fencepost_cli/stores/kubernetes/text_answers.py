"""Answers of the API server in plain text: logs of pods, and what pods serve by its proxy."""

from __future__ import annotations

import codecs
import json
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import urlencode

import aiohttp
from kubernetes.aio.client import Configuration
from kubernetes.aio.client.exceptions import ApiException
from kubernetes.aio.client.rest import RESTClientObject

from fencepost_cli.errors import CliError

MOST: Final = 16 * 1024 * 1024
"""Bytes of one answer that is not followed: a tenant's code may log anything."""
_TIMEOUT: Final = aiohttp.ClientTimeout(total=None, sock_connect=5, sock_read=20)
_FOLLOWED: Final = aiohttp.ClientTimeout(total=None, sock_connect=5)
_OK: Final = 200
_REFUSED: Final = frozenset({401, 403})


@dataclass(frozen=True, slots=True)
class TextAnswers:
    """Requests with the account, certificates and proxy of a kubeconfig."""

    configuration: Configuration
    rest: RESTClientObject

    async def stream(
        self, path: str, query: Mapping[str, str], show: Callable[[str], object], *, about: str, right: str
    ) -> None:
        """Pass on an answer piece by piece. `right` is what it takes. Raises CliError."""
        asked = urlencode({name: text for name, text in query.items() if text})
        url = f"{self.configuration.host}{path}" + (f"?{asked}" if asked else "")
        bearer = await self.configuration.get_api_key_with_prefix("BearerToken", alias="authorization")
        headers = {"Accept": "*/*", **({"Authorization": bearer} if bearer else {})}
        is_followed = bool(query.get("follow"))
        try:
            answer = await self.rest.request(  # type: ignore[no-untyped-call]
                "GET", url, headers=headers, _request_timeout=_FOLLOWED if is_followed else _TIMEOUT
            )
            await _passed_on(answer.response, show, None if is_followed else MOST, about=about, right=right)
        except (aiohttp.ClientError, TimeoutError, OSError, ApiException) as error:
            raise CliError(
                f"{about}: the API server did not answer: {type(error).__name__} {error}".rstrip(),
                remedy="try again, or check the network to the API server",
            ) from error


@asynccontextmanager
async def text_answers(configuration: Configuration) -> AsyncIterator[TextAnswers]:
    """Connect for the block."""
    configuration.retries = False
    rest = RESTClientObject(configuration)
    try:
        yield TextAnswers(configuration, rest)
    finally:
        await rest.close()


async def _passed_on(
    answer: aiohttp.ClientResponse, show: Callable[[str], object], most: int | None, *, about: str, right: str
) -> None:
    if answer.status != _OK:
        raise _refusal(answer.status, await answer.content.read(64 * 1024), about=about, right=right)
    decoder, size = codecs.getincrementaldecoder("utf-8")("replace"), 0
    async for piece in answer.content.iter_any():
        size += len(piece)
        show(decoder.decode(piece))
        if most is not None and size > most:
            show(f"\n… more than {most // 1024 // 1024} MiB, the rest is not read\n")
            answer.close()
            return
    show(decoder.decode(b"", final=True))


def _refusal(status: int, text: bytes, *, about: str, right: str) -> CliError:
    try:
        read: Any = json.loads(text)
    except ValueError:
        read = None
    said = read.get("message") if isinstance(read, dict) else None
    remedy = f"log in to the cluster again, or ask for the right to get {right}" if status in _REFUSED else ""
    return CliError(
        f"{about}: {said or f'HTTP {status}'}", remedy=remedy or "see with kubectl whether the pod runs, and try again"
    )
