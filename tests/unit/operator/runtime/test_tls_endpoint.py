"""The operator's metrics over TLS, where the API server or the certificate is not as it should be."""

from __future__ import annotations

from pathlib import Path

import pytest
from aiohttp import web
from aiohttp.test_utils import make_mocked_request

from fencepost_operator.errors import Unreachable
from fencepost_operator.ports import Access
from fencepost_operator.runtime.metrics import tls_endpoint
from fencepost_operator.runtime.metrics.tls_endpoint import SecureMetrics
from fencepost_operator.settings import Settings, SettingsError


async def exposition(_: web.Request) -> web.Response:
    return web.Response(text="a 1\n")


def test_a_certificate_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match=r"FENCEPOST_METRICS_TLS=.*metrics\.tls\.secretName"):
        SecureMetrics(exposition, folder=tmp_path, access=None)


def test_authentication_needs_a_certificate() -> None:
    with pytest.raises(SettingsError, match=r"FENCEPOST_METRICS_AUTHENTICATION needs .*metrics\.tls\.secretName"):
        Settings.from_environment({"FENCEPOST_METRICS_AUTHENTICATION": "true"})
    with pytest.raises(SettingsError, match="set true or false"):
        Settings.from_environment({"FENCEPOST_METRICS_AUTHENTICATION": "yes"})
    found = Settings.from_environment({"FENCEPOST_METRICS_AUTHENTICATION": "true", "FENCEPOST_METRICS_TLS": "/tls"})
    assert (found.metrics_authentication, found.metrics_tls, found.metrics_tls_port) == (True, Path("/tls"), 8443)


@pytest.mark.parametrize(
    ("header", "token"), [("Bearer abc", "abc"), ("bearer  abc ", "abc"), ("Basic abc", ""), ("", ""), ("Bearer", "")]
)
async def test_the_token_is_the_bearers(header: str, token: str, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    async def access(found: str, _source: str) -> Access:
        asked.append(found)
        return Access.UNKNOWN

    monkeypatch.setattr(tls_endpoint, "Certificate", lambda _: None)
    served = SecureMetrics(exposition, folder=Path("/"), access=access)
    answer = await served.metrics(make_mocked_request("GET", "/metrics", headers={"Authorization": header}))
    assert (answer.status, asked) == (401, [token])


async def test_metrics_are_refused_while_the_api_server_does_not_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    async def access(_token: str, _source: str) -> Access:
        raise Unreachable("no answer", remedy="wait")

    monkeypatch.setattr(tls_endpoint, "Certificate", lambda _: None)
    served = SecureMetrics(exposition, folder=Path("/"), access=access)
    answer = await served.metrics(make_mocked_request("GET", "/metrics", headers={"Authorization": "Bearer a"}))
    assert answer.status == 503
