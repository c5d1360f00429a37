"""A first installation without a helm that talks to the API server: what is written, in which order, and when not."""

from __future__ import annotations

import asyncio
import base64
import gzip
import json
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

import pytest

from fencepost_operator.adapters.clock import SystemClock
from fencepost_operator.adapters.helm.command import Helm
from fencepost_operator.adapters.helm.release_manifest import applied_objects
from fencepost_operator.adapters.helm.releases import HelmReleases
from fencepost_operator.adapters.kubernetes.api_server import CONFIG_MAPS, SECRETS, AlreadyExists, ApiServer, Resource
from fencepost_operator.api import ObjectKey
from fencepost_operator.desired import labels, names
from fencepost_operator.errors import Rejected
from testbed.home import Home

KEY: Final = ObjectKey("shop", "orders")
STORE: Final = "fencepost-system"
RELEASE: Final = names.release_name(KEY)


def item(version: str, kind: str, suffix: str, **content: Any) -> dict[str, Any]:
    metadata = {"name": f"orders-g1-{suffix}", "namespace": "shop", "labels": {labels.GENERATION: "1"}}
    return {"apiVersion": version, "kind": kind, "metadata": metadata, **content}


@dataclass
class Server(ApiServer):
    """An API server that keeps what is created, in order; `there` are names of objects that exist."""

    there: set[str] = field(default_factory=set)
    said: list[str] = field(default_factory=list)
    secrets: dict[str, dict[str, Any]] = field(default_factory=dict)
    made: dict[str, dict[str, Any]] = field(default_factory=dict)
    fails: Callable[[str], None] = lambda _name: None
    lists: int = 0
    """Of the cluster's objects."""

    async def list(self, resource: Resource, *_: Any, namespace: str | None = None, **__: Any) -> list[dict[str, Any]]:
        if namespace == STORE:
            return [{"metadata": each["metadata"]} for each in self.secrets.values()]
        self.lists += 1
        kinds = {SECRETS: "Secret", CONFIG_MAPS: "ConfigMap"}
        return [{"metadata": each["metadata"]} for each in self.made.values() if each["kind"] == kinds.get(resource)]

    async def get(self, *_: Any, **__: Any) -> dict[str, Any]:
        raise AssertionError("what has just been created is not compared with what was to be created")

    async def create(self, resource: Resource, *, namespace: str, body: Mapping[str, Any]) -> dict[str, Any]:
        name = body["metadata"]["name"]
        self.fails(name)
        if name in self.there:
            raise AlreadyExists(f"{name} exists")
        self.said.append(f"create {namespace}/{name}")
        kept: dict[str, Any] = json.loads(json.dumps(body))
        kept["metadata"] |= {"uid": f"uid of {name}", "resourceVersion": "1"}
        (self.secrets if resource is SECRETS and namespace == STORE else self.made)[name] = kept
        return kept

    async def replace(
        self, resource: Resource, *, namespace: str, name: str, body: Mapping[str, Any]
    ) -> dict[str, Any]:
        assert resource is SECRETS
        assert body["metadata"]["resourceVersion"] == "1", "on condition of the version that was created"
        self.said.append(f"replace {namespace}/{name}")
        self.secrets[name] = {**json.loads(json.dumps(body)), "uid": f"uid of {name}"}
        return {}

    async def delete(self, *_: Any, namespace: str, name: str, uid: str | None = None, **__: Any) -> None:
        assert uid == f"uid of {name}"
        self.said.append(f"delete {namespace}/{name}")
        del self.secrets[name]


@dataclass
class Comparable(Server):
    """One whose objects may be fetched."""

    async def get(self, *_: Any, name: str, **__: Any) -> dict[str, Any]:
        return (self.secrets | self.made)[name]


@dataclass(frozen=True, slots=True, kw_only=True)
class Renders(Helm):
    """A Helm that renders these objects, and notes what else it is asked to do."""

    objects: list[dict[str, Any]]
    asked: list[str] = field(default_factory=list)

    async def template(
        self, values: Mapping[str, Any], *, name: str = "", namespace: str = "", tenant: str = ""
    ) -> str:
        assert (name, namespace, tenant) == (RELEASE, STORE, "shop")
        assert values["namespace"] == "shop"
        return "".join(f"---\n# Source: a.yaml\n{json.dumps(each)}\n" for each in self.objects)

    async def change(self, operation: str, *arguments: str, **_: Any) -> None:
        self.asked.append(f"{operation} {arguments[0]}")


@pytest.fixture
def chart(tmp_path: Path) -> Path:
    (tmp_path / "templates").mkdir()
    (tmp_path / "templates" / "a.yaml").write_text("{{ .Values.a }}")
    (tmp_path / "Chart.yaml").write_text("apiVersion: v2\nname: spark-cluster\nversion: 0.1.0\n")
    (tmp_path / "values.yaml").write_text("a: 1\n")
    (tmp_path / "values.schema.json").write_text("{}")
    return tmp_path


@pytest.fixture
def objects(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """A cluster of two objects, which are all that is expected."""
    from fencepost_operator.adapters.helm import post_renderer  # noqa: PLC0415 - it is changed for the test alone

    found = [item("v1", "Secret", "auth", type="Opaque", data={"secret": "eA=="}), item("v1", "ConfigMap", "conf")]
    known = post_renderer._checks

    def few(expected: post_renderer.Expected) -> Mapping[Any, Any]:
        return {each: check for each, check in known(expected).items() if each[1] in {"Secret", "ConfigMap"}}

    monkeypatch.setattr(post_renderer, "_checks", few)
    return found


def releases(server: Server, helm: Helm) -> HelmReleases:
    return HelmReleases(api=server, helm=helm, clock=SystemClock(), namespace=STORE)


def revision(server: Server) -> dict[str, Any]:
    """The release as Helm unpacks it."""
    (secret,) = server.secrets.values()
    packed = base64.b64decode(base64.b64decode(secret["data"]["release"]))
    found: dict[str, Any] = json.loads(gzip.decompress(packed))
    return found


async def test_the_revision_is_recorded_before_its_objects_and_deployed_after_them(
    chart: Path, objects: list[dict[str, Any]]
) -> None:
    server, helm = Server(), Renders(binary=Path("helm"), chart=chart, objects=objects)
    await releases(server, helm).install(KEY, {"generation": 1})
    record = f"{STORE}/sh.helm.release.v1.{RELEASE}.v1"
    assert server.said == [
        f"create {record}", "create shop/orders-g1-auth", "create shop/orders-g1-conf", f"replace {record}"
    ]  # fmt: skip
    assert helm.asked == []


async def test_the_revision_is_what_helm_would_have_written(chart: Path, objects: list[dict[str, Any]]) -> None:
    server, helm = Server(), Renders(binary=Path("helm"), chart=chart, objects=objects)
    await releases(server, helm).install(KEY, {"generation": 1})
    (secret,) = server.secrets.values()
    marks = {"name": RELEASE, "owner": "helm", "status": "deployed", "version": "1"}
    own = {labels.PIPELINE: "orders", labels.NAMESPACE: "shop"}
    assert secret["metadata"]["labels"].items() >= {**marks, **own}.items()
    assert secret["type"] == "helm.sh/release.v1"
    found = revision(server)
    assert (found["name"], found["namespace"], found["version"]) == (RELEASE, STORE, 1)
    assert found["info"]["status"] == "deployed"
    assert found["config"] == {"generation": 1, "namespace": "shop"}
    assert found["chart"]["metadata"]["name"] == "spark-cluster"
    assert found["chart"]["values"] == {"a": 1}
    assert [each["name"] for each in found["chart"]["templates"]] == ["templates/a.yaml"]
    assert [each["metadata"]["name"] for each in applied_objects(secret)] == ["orders-g1-auth", "orders-g1-conf"]


async def test_helm_knows_the_objects_for_its_own(chart: Path, objects: list[dict[str, Any]]) -> None:
    server, helm = Server(), Renders(binary=Path("helm"), chart=chart, objects=objects)
    await releases(server, helm).install(KEY, {"generation": 1})
    for each in server.made.values():
        marks = each["metadata"]["annotations"]
        assert marks == {"meta.helm.sh/release-name": RELEASE, "meta.helm.sh/release-namespace": STORE}
        assert each["metadata"]["labels"]["app.kubernetes.io/managed-by"] == "Helm"


async def test_objects_that_were_just_created_are_as_applied(chart: Path, objects: list[dict[str, Any]]) -> None:
    """A fetch of each of them would be half of what a pipeline's start asks the API server for."""
    server, helm = Server(), Renders(binary=Path("helm"), chart=chart, objects=objects)
    installed = releases(server, helm)
    await installed.install(KEY, {"generation": 1})
    found = await installed.objects(KEY, urgent=False)
    assert {each.name for each in found.found} == {"orders-g1-auth", "orders-g1-conf"}
    assert found.damage == ()


@pytest.mark.parametrize("generation", [None, 7])
async def test_objects_are_listed_after_an_installation_only_beside_those_of_another_generation(
    chart: Path, objects: list[dict[str, Any]], generation: int | None
) -> None:
    """What a suspended pipeline has left would otherwise not be pruned until the next list."""
    server, helm = Comparable(), Renders(binary=Path("helm"), chart=chart, objects=objects)
    if generation is not None:
        left = item("v1", "ConfigMap", "left")
        marks = {"name": f"orders-g{generation}-conf", "labels": {labels.GENERATION: str(generation)}, "uid": "left"}
        server.made["left"] = {**left, "metadata": marks | {"annotations": {"meta.helm.sh/release-name": RELEASE}}}
    installed = releases(server, helm)
    await installed.objects(KEY, urgent=False)
    await installed.install(KEY, {"generation": 1})
    lists = server.lists
    found = await installed.objects(KEY, urgent=False)
    assert {each.generation for each in found.found} == {1, generation or 1}
    assert (server.lists > lists) == (generation is not None)


async def test_helm_adopts_what_is_there(chart: Path, objects: list[dict[str, Any]]) -> None:
    """As after an operator that ended between two writes, or where a tenant made an object of that name."""
    server, helm = Server(there={"orders-g1-conf"}), Renders(binary=Path("helm"), chart=chart, objects=objects)
    await releases(server, helm).install(KEY, {"generation": 1})
    assert server.secrets == {}
    assert helm.asked == ["install upgrade"]


async def test_an_installation_that_was_cut_off_leaves_a_pending_revision(
    chart: Path, objects: list[dict[str, Any]]
) -> None:
    def refuse(name: str) -> None:
        if name == "orders-g1-conf":
            raise Rejected("exceeded quota")

    server, helm = Server(fails=refuse), Renders(binary=Path("helm"), chart=chart, objects=objects)
    with pytest.raises(Rejected, match="quota"):
        await releases(server, helm).install(KEY, {"generation": 1})
    assert revision(server)["info"]["status"] == "pending-install"


async def test_what_is_not_expected_is_not_applied(chart: Path, objects: list[dict[str, Any]]) -> None:
    stranger = item("rbac.authorization.k8s.io/v1", "RoleBinding", "auth")
    server, helm = Server(), Renders(binary=Path("helm"), chart=chart, objects=[*objects, stranger])
    with pytest.raises(Rejected, match="nothing was applied"):
        await releases(server, helm).install(KEY, {"generation": 1})
    assert server.said == []
    assert helm.asked == []


class Secrets(BaseHTTPRequestHandler):
    """An API server that says its version, and lists one Secret in every namespace."""

    secret: Mapping[str, Any]

    def do_GET(self) -> None:
        path = urlsplit(self.path).path
        version = {"major": "1", "minor": "31", "gitVersion": "v1.31.0"}
        one = path.endswith(self.secret["metadata"]["name"])
        found = {"kind": "SecretList", "apiVersion": "v1", "metadata": {}, "items": [self.secret]}
        body = json.dumps(version if path == "/version" else self.secret if one else found).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Say nothing."""


@contextmanager
def serving(secret: Mapping[str, Any]) -> Iterator[str]:
    """Yield the address of such an API server."""
    handler = type("OneSecret", (Secrets,), {"secret": secret})
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_address[1]}"
        server.shutdown()


async def test_a_real_helm_reads_the_revision(chart: Path, objects: list[dict[str, Any]], tmp_path: Path) -> None:
    server, renders = Server(), Renders(binary=Path("helm"), chart=chart, objects=objects)
    await releases(server, renders).install(KEY, {"generation": 1})
    (secret,) = server.secrets.values()
    with serving(secret) as address:
        config = {
            "apiVersion": "v1", "kind": "Config", "current-context": "c", "clusters": [
                {"name": "c", "cluster": {"server": address}}
            ], "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}], "users": [{"name": "u"}],
        }  # fmt: skip
        (tmp_path / "kubeconfig").write_text(json.dumps(config))

        async def helm(*words: str) -> str:
            binary = Home.of_user().bin / "helm"
            where = {"KUBECONFIG": str(tmp_path / "kubeconfig"), "HOME": str(tmp_path)}
            process = await asyncio.create_subprocess_exec(
                binary, *words, "--namespace", STORE, env=where, stdout=asyncio.subprocess.PIPE
            )
            said, _ = await process.communicate()
            assert process.returncode == 0, words
            return said.decode()

        (listed,) = json.loads(await helm("list", "--output", "json"))
        assert (listed["name"], listed["status"], listed["chart"]) == (RELEASE, "deployed", "spark-cluster-0.1.0")
        (noted,) = json.loads(await helm("history", RELEASE, "--output", "json"))
        assert (noted["revision"], noted["description"]) == (1, "Install complete")
        assert json.loads(await helm("get", "values", RELEASE, "--all", "--output", "json")) == {
            "a": 1, "generation": 1, "namespace": "shop"
        }  # fmt: skip
        assert revision(server)["manifest"].strip() in await helm("get", "manifest", RELEASE)
