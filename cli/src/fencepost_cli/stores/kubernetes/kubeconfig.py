"""The user's kubeconfig, and one piece of work with the API server that it names."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Final, TypeVar

from kubernetes.aio.client import Configuration
from kubernetes.aio.config import ConfigException, list_kube_config_contexts, load_kube_config

from fencepost_cli.errors import CliError
from fencepost_operator.adapters.kubernetes.api_server import ApiServer
from fencepost_operator.errors import Conflict, Denied, PortError

_DEFAULT_NAMESPACE: Final = "default"

T = TypeVar("T")


async def configured(context: str | None) -> tuple[Configuration, str]:
    """Return the client's configuration, and the namespace of the context; None is the current one. Raises CliError."""
    configuration = Configuration()
    try:
        contexts, current = list_kube_config_contexts()  # type: ignore[no-untyped-call]
        chosen = _chosen(context, contexts, current)
        await load_kube_config(  # type: ignore[no-untyped-call]
            context=context, client_configuration=configuration, persist_config=False
        )
    except (ConfigException, OSError) as error:
        raise CliError(
            f"no cluster to talk to: {error}", remedy="set KUBECONFIG, or choose a context with --context"
        ) from error
    return configuration, str((chosen.get("context") or {}).get("namespace") or _DEFAULT_NAMESPACE)


async def answered(
    configuration: Configuration, namespace: str, work: Callable[[ApiServer], Awaitable[T]], rights: str
) -> T:
    """Do work with the API server; `rights` is what it takes in a namespace. Raises CliError."""
    api = ApiServer(configuration)
    try:
        return await work(api)
    except Conflict as error:
        raise CliError(error, remedy="the pipeline changed meanwhile: start the command again") from error
    except Denied as error:
        remedy = f"log in to the cluster again, or ask for the right to {rights} in namespace {namespace}"
        raise CliError(error, remedy=remedy) from error
    except PortError as error:
        raise CliError(error, remedy=error.remedy or f"see what `kubectl get spl -n {namespace}` says") from error
    finally:
        await api.close()


def _chosen(context: str | None, contexts: list[dict[str, Any]], current: dict[str, Any]) -> dict[str, Any]:
    if context is None:
        return current
    named = [one for one in contexts if one.get("name") == context]
    if not named:
        known = ", ".join(sorted(str(one.get("name")) for one in contexts))
        raise CliError(f"the kubeconfig has no context {context!r}", remedy=f"choose one of: {known}")
    return named[0]
