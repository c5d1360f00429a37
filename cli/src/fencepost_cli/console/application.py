"""The console as an ASGI application: its pages, its files and what guards them."""

from __future__ import annotations

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp

from fencepost_cli.console.fleet_pages import FleetPages
from fencepost_cli.console.guard import Guard
from fencepost_cli.console.latest_list import LatestList
from fencepost_cli.console.open_stores import OpenStores
from fencepost_cli.console.pipeline_pages import PipelinePages
from fencepost_cli.console.rendering import page
from fencepost_cli.errors import CliError
from fencepost_cli.ports import Objects


def application(*, fleet: LatestList, objects: Objects, stores: OpenStores, token: str, port: int) -> ASGIApp:
    """Return the application that a server on this port of 127.0.0.1 serves to whoever has the token."""
    pages, of_pipeline = FleetPages(fleet), PipelinePages(objects, stores)
    place = "/pipelines/{namespace}/{name}"
    routes = [
        Route("/", pages.whole),
        Route("/fleet", pages.rows),
        Route("/fleet/refresh", pages.refresh),
        Route(place, of_pipeline.whole),
        Route(f"{place}/status", of_pipeline.status),
        Route(f"{place}/record", of_pipeline.record),
        Route(f"{place}/batches", of_pipeline.batches),
        Route(f"{place}/trials", of_pipeline.trials),
        Route(f"{place}/rewinds", of_pipeline.rewinds),
        Route(f"{place}/letters/{{topic}}/{{partition:int}}/{{offset:int}}", of_pipeline.letter),
        Route("/runbooks/{reason}", of_pipeline.runbook),
        Mount("/static", StaticFiles(packages=[("fencepost_cli.console", "static")])),
    ]
    handlers = {CliError: _failed, HTTPException: _refused, Exception: _broken}
    return Guard(Starlette(routes=routes, exception_handlers=handlers), token, port)


def _failed(_: Request, error: Exception) -> Response:
    remedy = error.remedy if isinstance(error, CliError) else ""
    return page("failure.html", {"title": "Not available", "message": str(error), "remedy": remedy}, status=502)


def _refused(request: Request, error: Exception) -> Response:
    status = error.status_code if isinstance(error, HTTPException) else 500
    message = f"The console has no page {request.url.path}."
    return page(
        "failure.html", {"title": "Not found", "message": message, "remedy": "start at the fleet"}, status=status
    )


def _broken(_: Request, error: Exception) -> Response:
    remedy = "report it with the text that `fencepost console` printed"
    return page("failure.html", {"title": "Error", "message": type(error).__name__, "remedy": remedy}, status=500)
