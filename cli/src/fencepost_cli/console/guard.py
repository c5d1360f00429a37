"""Who may read the pages: the browser that opened the console's address, and no other page, name or program.

The server listens on 127.0.0.1, where every account of the machine and every page in the browser can connect.
A name that resolves to 127.0.0.1 (DNS rebinding) is refused by the Host header, a request of another page by Origin and
Sec-Fetch-Site, and whoever does not know the token by the cookie.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from http.cookies import CookieError, SimpleCookie
from typing import Final
from urllib.parse import parse_qs

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import HTMLResponse, PlainTextResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

HEADERS: Final[Mapping[str, str]] = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; "
    "connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}
_READS: Final = frozenset({"GET", "HEAD"})
_OF_ITSELF: Final = frozenset({"same-origin", "none"})
"""Sec-Fetch-Site of requests of the console's own pages, and of an address that the user opens."""
# A redirect would keep the cookie back: to the browser, another site has begun the navigation.
_WELCOME: Final = (
    '<!doctype html><html lang="en"><meta charset="utf-8"><meta http-equiv="refresh" content="0;url=/">'
    '<title>Fencepost</title><link rel="icon" href="/static/icon.svg"><p><a href="/">Open the console</a>'
)
_CLOSED: Final = "Open the address that `fencepost console` printed: it has the token of this console."


def new_token() -> str:
    """Return a secret that fits in a URL, of 256 bits."""
    return secrets.token_urlsafe(32)


@dataclass(frozen=True, slots=True)
class Guard:
    """Passes on the requests that are allowed, and adds the headers that keep a tenant's text from being run.

    `port` is where the server listens; `token` is what the address that opens the console has in its query.
    """

    app: ASGIApp
    token: str
    port: int

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request, or pass it on."""
        if scope["type"] == "lifespan":
            await self.app(scope, receive, send)
            return
        if scope["type"] != "http":
            raise RuntimeError(f"the console has no {scope['type']}")

        async def hardened(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, text in HEADERS.items():
                    headers[name] = text
            await send(message)

        answer = self._refusal(scope) or self._welcome(scope)
        await (answer or self.app)(scope, receive, hardened)

    def _refusal(self, scope: Scope) -> Response | None:
        """Return the answer to a request that does not come from the console's own address."""
        headers = Headers(scope=scope)
        hosts = {f"127.0.0.1:{self.port}", f"localhost:{self.port}"}
        if headers.getlist("host") not in [[host] for host in hosts]:
            return PlainTextResponse("The console has no such name.", 421)
        if scope["method"] not in _READS:
            return PlainTextResponse("The console changes nothing.", 405, {"Allow": "GET, HEAD"})
        origins = set(headers.getlist("origin"))
        sites = set(headers.getlist("sec-fetch-site"))
        opens = self._has_token(scope)  # a link to the console may be in any page: it has the token
        if not origins <= {f"http://{host}" for host in hosts} or not (sites <= _OF_ITSELF or opens):
            return PlainTextResponse("The console answers no other page.", 403)
        return None

    def _welcome(self, scope: Scope) -> Response | None:
        """Return the answer to a request without the cookie: the cookie for the token, else none of the pages."""
        if self._has_token(scope):
            answer = HTMLResponse(_WELCOME)
            answer.set_cookie(self._cookie, self.token, httponly=True, samesite="strict", path="/")
            return answer
        if any(secrets.compare_digest(one.encode(), self.token.encode()) for one in self._cookies(scope)):
            return None
        return PlainTextResponse(_CLOSED, 401)

    def _has_token(self, scope: Scope) -> bool:
        if scope["path"] != "/":
            return False
        given = parse_qs(scope["query_string"].decode("latin-1")).get("token", [])
        return any(secrets.compare_digest(one.encode(), self.token.encode()) for one in given)

    @property
    def _cookie(self) -> str:
        """The name has the port: browsers send the cookies of one console to another one of the same host."""
        return f"fencepost-console-{self.port}"

    def _cookies(self, scope: Scope) -> list[str]:
        found = list[str]()
        for header in Headers(scope=scope).getlist("cookie"):
            try:
                parsed = SimpleCookie(header)
            except CookieError:
                continue
            if self._cookie in parsed:
                found.append(parsed[self._cookie].value)
        return found
