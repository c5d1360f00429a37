"""The operator's rights are what its code asks of the API server: each of them is used, and none is missing."""

from __future__ import annotations

import ast
import importlib
import inspect
import pkgutil
from collections.abc import Iterator, Mapping
from types import ModuleType
from typing import Final, TypeAlias

import pytest

from fencepost_operator import adapters
from fencepost_operator.adapters.kubernetes.api_server import SECRETS, Resource
from fencepost_operator.api import GROUP, PLURAL, REWIND_PLURAL, TRIAL_PLURAL, VERSION
from fencepost_operator.runtime.watches import CHILDREN, PARTS
from unit.charts.rendering import Object, objects

Right: TypeAlias = tuple[str, str]
"""A verb and a resource as RBAC names it, such as ('list', 'jobs.batch')."""

VERBS: Final = {
    "get": "get", "list": "list", "pages": "list", "items": "list", "create": "create", "review": "create",
    "replace": "update", "merge": "patch", "delete": "delete",
}  # fmt: skip
"""Methods of ApiServer, and the verb of each."""
HELM_ASKS_FOR: Final = frozenset({"get", "list", "watch", "create", "update", "patch", "delete"})
"""What Helm may do to the kinds of its chart and to the Secrets with its releases; its own code decides which."""
AUTHENTICATED: Final = {"metrics.authentication": True, "metrics.tls.secretName": "certificate"}
REVIEWS: Final = {
    ("create", "tokenreviews.authentication.k8s.io"),
    ("create", "subjectaccessreviews.authorization.k8s.io"),
}
BLOCKS_DELETION: Final = ("update", f"{PLURAL}.{GROUP}/finalizers")
"""Asked for by the admission plugin OwnerReferencesPermissionEnforcement; no code calls it."""


def modules() -> list[ModuleType]:
    """All adapters."""
    found = pkgutil.walk_packages(adapters.__path__, f"{adapters.__name__}.")
    return [importlib.import_module(each.name) for each in found]


def calls(module: ModuleType) -> Iterator[Right]:
    """Each call of an ApiServer in a module's source, by the resource that its first argument names."""
    for node in ast.walk(ast.parse(inspect.getsource(module))):
        match node:
            case ast.Call(func=ast.Attribute(value=called, attr=method), args=[argument, *_]) if method in VERBS:
                if ast.unparse(called) in {"api", "self.api"}:
                    yield from ((VERBS[method], str(resource)) for resource in resources(module, argument))


def resources(module: ModuleType, argument: ast.expr) -> list[Resource]:
    """What an argument may be: a constant of the module, or any value of a mapping that is one."""
    name = argument.value if isinstance(argument, ast.Subscript) else argument
    assert isinstance(name, ast.Name), f"{module.__name__}: name the resource of {ast.unparse(argument)} by a constant"
    found = getattr(module, name.id)
    return list(found.values()) if isinstance(found, Mapping) else [found]


def asked() -> set[Right]:
    """What the adapters, the watches and Helm do."""
    found = {right for module in modules() for right in calls(module)}
    kinds = (*CHILDREN, *PARTS, *((GROUP, VERSION, plural) for plural in (PLURAL, REWIND_PLURAL, TRIAL_PLURAL)))
    found |= {(verb, dotted(group, plural)) for group, _, plural in kinds for verb in ("list", "watch")}
    chart = {dotted(item["apiVersion"].rpartition("/")[0], f"{item['kind'].lower()}s") for item in charted()}
    found |= {(verb, resource) for resource in (*chart, str(SECRETS)) for verb in HELM_ASKS_FOR}
    return found | {BLOCKS_DELETION}


def charted() -> list[Object]:
    """What Helm makes for a pipeline."""
    return objects("spark-cluster", "full")


def granted(found: list[Object]) -> set[Right]:
    """What all roles that are bound to the operator allow."""
    bound = {item["roleRef"]["name"] for item in found if item["kind"].endswith("RoleBinding")}
    roles = [item for item in found if item["kind"] in {"Role", "ClusterRole"} and item["metadata"]["name"] in bound]
    return {
        (verb, dotted(group, resource))
        for role in roles
        for rule in role["rules"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }


def dotted(group: str, resource: str) -> str:
    """A resource with its group, as `kubectl auth can-i` takes it."""
    plural, slash, subresource = resource.partition("/")
    return plural + (f".{group}" if group else "") + slash + subresource


@pytest.fixture(scope="module", params=[[], ["flights"]], ids=["everywhere", "confined"])
def rights(request: pytest.FixtureRequest) -> set[Right]:
    return granted(objects("fencepost", values={"watchNamespaces": request.param, **AUTHENTICATED}))


def test_open_metrics_need_no_reviews() -> None:
    assert not REVIEWS & granted(objects("fencepost", "default"))
    assert asked() >= REVIEWS


def test_the_calls_are_found() -> None:
    found = {right for module in modules() for right in calls(module)}
    assert {("create", "jobs.batch"), ("get", "configmaps"), ("update", f"{PLURAL}.{GROUP}/status")} <= found


def test_each_right_that_is_used_is_granted(rights: set[Right]) -> None:
    assert sorted(asked() - rights) == []


def test_each_right_that_is_granted_is_used(rights: set[Right]) -> None:
    assert sorted(rights - asked()) == []
