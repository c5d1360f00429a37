"""`fencepost console`: pages about pipelines, on this machine alone, with the user's own rights."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from fencepost_cli.access import Overrides
from fencepost_cli.commands.options import ports_of
from fencepost_cli.commands.output import note, print_line


def console(
    context: typer.Context,
    *,
    namespace: Annotated[
        str | None, typer.Option("--namespace", "-n", help="Only this namespace. [default: all that you may list]")
    ] = None,
    kubeconfig_context: Annotated[str | None, typer.Option("--context", help="A context of the kubeconfig.")] = None,
    scope: Annotated[
        str | None, typer.Option("--scope", help="The operator's scope. [default: that of each pipeline's run]")
    ] = None,
    cassandra: Annotated[
        str | None,
        typer.Option("--cassandra", metavar="HOST:PORT", help="In place of the contact points of all pipelines."),
    ] = None,
    postgresql: Annotated[
        str | None,
        typer.Option("--postgresql", metavar="HOST:PORT", help="In place of the PostgreSQL hosts of all pipelines."),
    ] = None,
    port: Annotated[int, typer.Option("--port", min=0, max=65535, help="Of 127.0.0.1. [default: any]")] = 0,
) -> None:
    """Show pipelines in a browser, with your kubeconfig's rights; nothing can be changed there. Ctrl-C ends it."""
    # Not at the top: the other commands start without a web framework.
    from fencepost_cli.console.application import application  # noqa: PLC0415
    from fencepost_cli.console.guard import new_token  # noqa: PLC0415
    from fencepost_cli.console.latest_list import LatestList  # noqa: PLC0415
    from fencepost_cli.console.open_stores import OpenStores  # noqa: PLC0415

    ports = ports_of(context)
    objects = ports.objects(kubeconfig_context)
    overrides = Overrides(scope=scope, cassandra=cassandra, postgresql=postgresql)
    fleet = LatestList(lambda: objects.pipelines(namespace))
    stores = OpenStores(ports, ports.cluster(kubeconfig_context), overrides, note)
    token = new_token()

    def made(port: int) -> Any:  # noqa: ANN401 - an ASGI application
        return application(fleet=fleet, objects=objects, stores=stores, token=token, port=port)

    def listening(port: int) -> None:
        print_line(f"http://127.0.0.1:{port}/?token={token}")
        note("open this address in a browser of this machine; it is only for you. Ctrl-C ends the console")

    try:
        ports.serve(made, port, listening)
    finally:
        stores.close()
