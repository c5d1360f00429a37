"""An API server with Services, pods, and WebSockets of `pods/portforward` that lead to ports of this machine."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from threading import Thread
from typing import Any

from aiohttp import WSMsgType, web
from kubernetes.aio.client import Configuration


def service(*ports: tuple[int, int | str], headless: bool = False) -> dict[str, Any]:
    """A Service with (port, targetPort) pairs, whose pods have the label app=db."""
    listed = [{"port": port, "targetPort": target, "protocol": "TCP"} for port, target in ports]
    return {"spec": {"selector": {"app": "db"}, "ports": listed, "clusterIP": "None" if headless else "10.96.0.9"}}


def pod(name: str, *, ready: bool = True, **ports: int) -> dict[str, Any]:
    """A pod with named ports."""
    listed = [{"name": name, "containerPort": number} for name, number in ports.items()]
    status = {"conditions": [{"type": "Ready", "status": "True" if ready else "False"}]}
    return {"metadata": {"name": name}, "spec": {"containers": [{"ports": listed}]}, "status": status}


@dataclass(slots=True)
class PortForwardServer:
    services: dict[tuple[str, str], dict[str, Any]] = field(default_factory=dict)
    pods: dict[str, list[dict[str, Any]]] = field(default_factory=dict)
    """By namespace."""
    behind: dict[tuple[str, int], int] = field(default_factory=dict)
    """The port of this machine that a pod's port leads to; another one refuses."""
    forbidden: frozenset[str] = frozenset()
    """What the account may not do: 'services', 'pods', 'portforward'."""
    opened: list[tuple[str, int]] = field(default_factory=list)
    bearers: set[str] = field(default_factory=set)
    port: int = 0

    async def configuration(self) -> Configuration:
        configuration = Configuration(host=f"http://127.0.0.1:{self.port}")
        configuration.api_key["BearerToken"] = "Bearer a-token"
        return configuration

    def _allow(self, what: str, request: web.Request) -> None:
        self.bearers.add(request.headers.get("Authorization", ""))
        if what in self.forbidden:
            body = {"message": f'{what} is forbidden: User "ann" cannot get resource "{what}"', "reason": "Forbidden"}
            raise web.HTTPForbidden(text=json.dumps(body))

    async def service(self, request: web.Request) -> web.Response:
        self._allow("services", request)
        name = request.match_info["name"]
        found = self.services.get((request.match_info["namespace"], name))
        if found is None:
            return web.json_response({"message": f'"{name}" not found', "details": {"name": name}}, status=404)
        return web.json_response(found)

    async def list_pods(self, request: web.Request) -> web.Response:
        self._allow("pods", request)
        assert request.query["labelSelector"] == "app=db"
        return web.json_response({"items": self.pods.get(request.match_info["namespace"], [])})

    async def forward(self, request: web.Request) -> web.WebSocketResponse:
        self._allow("portforward", request)
        name, port = request.match_info["name"], int(request.query["ports"])
        self.opened.append((name, port))
        socket = web.WebSocketResponse(protocols=("v4.channel.k8s.io",))
        await socket.prepare(request)
        for channel in (b"\x00", b"\x01"):
            await socket.send_bytes(channel + port.to_bytes(2, "little"))
        if (name, port) not in self.behind:
            await socket.send_bytes(b"\x01connection refused")
            return socket
        reader, writer = await asyncio.open_connection("127.0.0.1", self.behind[name, port])

        async def down() -> None:
            while piece := await reader.read(100_000):
                await socket.send_bytes(b"\x00" + piece)
            await socket.close()

        downwards = asyncio.ensure_future(down())
        async for message in socket:
            assert message.type is WSMsgType.BINARY
            assert message.data[:1] == b"\x00"
            writer.write(message.data[1:])
            await writer.drain()
        downwards.cancel()
        writer.close()
        return socket

    @contextmanager
    def served(self) -> Iterator[PortForwardServer]:
        """Serve on a port of this machine for the block."""
        loop = asyncio.new_event_loop()
        app = web.Application()
        base = "/api/v1/namespaces/{namespace}"
        app.router.add_get(base + "/services/{name}", self.service)
        app.router.add_get(base + "/pods", self.list_pods)
        app.router.add_get(base + "/pods/{name}/portforward", self.forward)
        runner = web.AppRunner(app, shutdown_timeout=0)

        async def start() -> None:
            await runner.setup()
            site = web.TCPSite(runner, "127.0.0.1", 0)
            await site.start()
            self.port = runner.addresses[0][1]

        loop.run_until_complete(start())
        thread = Thread(target=loop.run_forever, daemon=True)
        thread.start()
        try:
            yield self
        finally:
            asyncio.run_coroutine_threadsafe(runner.cleanup(), loop).result()
            loop.call_soon_threadsafe(loop.stop)
            thread.join()
            loop.close()
