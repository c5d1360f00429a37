"""/metrics over TLS, for those who may read it, on a port of its own: the kubelet's probes stay on the other one."""

from __future__ import annotations

import asyncio
import logging
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Final

from aiohttp import web

from fencepost_operator.errors import PortError
from fencepost_operator.ports import Access
from fencepost_operator.runtime.http_listener import serving
from fencepost_operator.settings import SettingsError

log = logging.getLogger(__name__)

CHECK: Final = 10.0
"""Seconds between two looks for a rotated certificate."""
_BEARER: Final = "bearer "


class Certificate:
    """The certificate and key in a folder that a Secret is mounted to: tls.crt and tls.key."""

    def __init__(self, folder: Path) -> None:
        self._files = (folder / "tls.crt", folder / "tls.key")
        self._loaded: tuple[bytes, ...] = ()
        self.context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self.context.minimum_version = ssl.TLSVersion.TLSv1_2
        try:
            self.renew()
        except (OSError, ValueError) as error:
            raise SettingsError(
                f"FENCEPOST_METRICS_TLS={str(folder)!r} cannot be used: {type(error).__name__}: {error}; name a Secret "
                "of type kubernetes.io/tls in the chart's metrics.tls.secretName"
            ) from error

    def renew(self) -> bool:
        """Load what the files hold now, if it is new: connections from now on get it. Raises OSError (ssl.SSLError)."""
        content = tuple(file.read_bytes() for file in self._files)
        if content == self._loaded:
            return False
        self.context.load_cert_chain(*self._files)
        self._loaded = content
        return True


class SecureMetrics:
    """Serves `exposition`. `access` says by token and address who may read it, None lets every client."""

    def __init__(
        self,
        exposition: Callable[[web.Request], Awaitable[web.StreamResponse]],
        *,
        folder: Path,
        access: Callable[[str, str], Awaitable[Access]] | None,
        check: float = CHECK,
    ) -> None:
        self._exposition = exposition
        self._certificate = Certificate(folder)
        self._access = access
        self._check = check

    @asynccontextmanager
    async def served(self, port: int) -> AsyncIterator[None]:
        """Serve on all addresses while the context lasts."""
        route = web.get("/metrics", self.metrics, allow_head=False)
        async with serving(port, route, encryption=self._certificate.context):
            renewing = asyncio.create_task(self._renew())
            try:
                yield
            finally:
                renewing.cancel()
                with suppress(asyncio.CancelledError):
                    await renewing

    async def metrics(self, request: web.Request) -> web.StreamResponse:
        """Return the metrics; 401 without a valid token, 403 without the right, 429 after many, 503 if unknown."""
        if self._access is None:
            return await self._exposition(request)
        header = request.headers.get("Authorization", "")
        token = header[len(_BEARER) :].strip() if header[: len(_BEARER)].lower() == _BEARER else ""
        try:
            found = await self._access(token, request.remote or "")
        except PortError as error:
            log.warning("a scrape is refused, because its token cannot be reviewed: %s", error)
            return web.Response(status=503, text="the API server cannot be asked\n")
        match found:
            case Access.GRANTED:
                return await self._exposition(request)
            case Access.DENIED:
                return web.Response(status=403, text="grant the verb get on the nonResourceURL /metrics\n")
            case Access.LIMITED:
                return web.Response(status=429, text="this address has sent too many tokens that are not valid\n")
            case Access.UNKNOWN:
                challenge = {"WWW-Authenticate": "Bearer"}
                return web.Response(status=401, text="send a token of this cluster\n", headers=challenge)

    async def _renew(self) -> None:
        while True:
            await asyncio.sleep(self._check)
            try:
                if self._certificate.renew():
                    log.info("the certificate of the metrics was renewed")
            except OSError as error:
                log.warning("the certificate of the metrics stays as it was: %s", error)
