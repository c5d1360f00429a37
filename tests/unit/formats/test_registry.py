"""The registry: what is an outage, what is asked for, and how the Secret is read."""

from __future__ import annotations

import base64
import pickle
from pathlib import Path
from typing import Any

import pytest

from fencepost.contract import Reason
from fencepost.contract.formats import Format
from fencepost.errors import BadSpec, DependencyDown
from fencepost.formats import registry as client
from fencepost.formats.access import Access
from fencepost.formats.decoding import Decoding
from fencepost.formats.registry import Registry
from fencepost.kafka.reader import ARROW_SCHEMA
from harness.web_server import Quiet, serving
from unit.formats.conftest import Served, avro, batch, failure, framed

SCHEMA = {"type": "record", "name": "R", "fields": [{"name": "id", "type": "long"}]}
KEY = {"type": "string"}


def asked(registry: Served, patience: float = 0.0, texts: Any = (), **more: Any) -> Registry:
    return Registry(Access(url=registry.url, texts=texts), Format.AVRO, patience=patience, **more)


def test_an_unknown_id_is_an_outage(registry: Served) -> None:
    registry.register("value", SCHEMA)
    found = failure(registry.decoding(Format.AVRO), [framed(77, b"\2")])
    assert type(found) is DependencyDown
    assert found.reason is Reason.SCHEMA_NOT_FOUND
    assert "has no schema 77" in found.message


def test_a_registry_that_is_down_is_an_outage_and_known_schemas_are_decoded(registry: Served) -> None:
    number = registry.register("value", SCHEMA)
    later = registry.register("later", {**SCHEMA, "doc": "later"})
    decoding = registry.decoding(Format.AVRO)
    decoding(batch([avro(number, SCHEMA, {"id": 1})]))
    registry.schemas.is_down = True
    decoding(batch([avro(number, SCHEMA, {"id": 2})]))
    found = failure(decoding, [avro(later, SCHEMA, {"id": 3})])
    assert found.reason is Reason.REGISTRY_UNREACHABLE
    registry.schemas.is_down = False
    decoding(batch([avro(later, SCHEMA, {"id": 3})]))


def test_a_registry_without_an_address_is_an_outage() -> None:
    for url in ("http://127.0.0.1:9", "http://no-such-host.invalid", "https://127.0.0.1:9"):
        with pytest.raises(DependencyDown, match="gives no answer") as raised:
            Registry(Access(url=url), Format.AVRO, patience=0.0).version("value", 1)
        assert raised.value.reason is Reason.REGISTRY_UNREACHABLE


def test_a_question_is_repeated_while_there_is_patience(registry: Served) -> None:
    def register(_seconds: float) -> None:
        registry.register("value", SCHEMA)

    found = asked(registry, 60.0, sleep=register).version("value", 1)
    assert found.format is Format.AVRO


def test_the_account_is_the_secrets(registry: Served) -> None:
    registry.register("value", SCHEMA)
    account = base64.b64encode(b"me:secret").decode()
    registry.schemas.authorization = f"Basic {account}"
    asked(registry, texts=(("username", "me"), ("password", "secret"))).version("value", 1)
    registry.schemas.authorization = "Bearer abc"
    asked(registry, texts=(("token", "abc"),)).version("value", 1)
    with pytest.raises(DependencyDown) as raised:
        asked(registry, 60.0, texts=(("token", "other"),)).version("value", 1)
    assert raised.value.reason is Reason.REGISTRY_CREDENTIALS_REJECTED
    assert "other" not in raised.value.message


def test_secrets_are_in_no_representation() -> None:
    assert "hidden" not in repr(Access(url="http://x", texts=(("password", "hidden"),)))


def test_a_registry_under_a_path_and_subjects_with_slashes(registry: Served) -> None:
    registry.schemas.register("a/b c", '"string"')
    assert asked(registry).version("a/b c", 1).text == '"string"'
    with pytest.raises(DependencyDown):
        Registry(Access(url=f"{registry.url}/apis"), Format.AVRO, patience=0.0).version("a", 1)
    assert registry.schemas.asked[-1] == "/apis/subjects/a/versions/1"


def test_references_in_a_circle_end(registry: Served) -> None:
    registry.register("a", SCHEMA, references=[{"name": "b", "subject": "b", "version": 1}])
    registry.register("b", KEY, references=[{"name": "a", "subject": "a", "version": 1}])
    assert [name for name, _ in asked(registry).version("a", 1).references] == ["a", "b"]


def test_references_are_bounded(registry: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client, "MOST_REFERENCES", 3)
    count = client.MOST_REFERENCES + 1
    for number in range(count):
        registry.register(
            f"s{number}", SCHEMA, references=[{"name": f"s{number + 1}", "subject": f"s{number + 1}", "version": 1}]
        )
    registry.register(f"s{count}", SCHEMA)
    with pytest.raises(DependencyDown, match="refers to more than 3"):
        asked(registry).version("s0", 1)


@pytest.mark.parametrize(
    "body",
    [b"", b"[]", b"<html>", b"{}", b'{"schema": 1}', b'{"schema": "x", "schemaType": "XML"}',
     b'{"schema": "x", "references": [{}]}', b" " * (client.MOST_BYTES + 1)],
    ids=["empty", "list", "html", "no schema", "number", "type", "reference", "huge"],
)  # fmt: skip
def test_another_answer_is_an_outage(body: bytes) -> None:
    class Handler(Quiet):
        def do_GET(self) -> None:  # noqa: N802 - the base class names it so
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

    with serving(Handler) as port, pytest.raises(DependencyDown) as raised:
        Registry(Access(url=f"http://127.0.0.1:{port}"), Format.AVRO, patience=0.0).version("value", 1)
    assert raised.value.reason is Reason.REGISTRY_UNREACHABLE


def test_credentials_do_not_follow_a_redirect(registry: Served) -> None:
    registry.register("value", SCHEMA)
    url = registry.url

    class Handler(Quiet):
        def do_GET(self) -> None:  # noqa: N802 - the base class names it so
            self.acknowledge(302, {"Location": f"{url}{self.path}"})

    with serving(Handler) as port, pytest.raises(DependencyDown, match="HTTP 302"):
        Registry(Access(url=f"http://127.0.0.1:{port}"), Format.AVRO, patience=0.0).version("value", 1)
    assert registry.schemas.asked == []


def test_a_schema_of_another_format_is_refused(registry: Served) -> None:
    registry.register("value", SCHEMA)
    with pytest.raises(BadSpec, match=r"version 1 of subject 'value' is avro, and spec.source.kafka.value.format"):
        registry.decoding(Format.JSON_SCHEMA)


def test_an_id_of_another_format_makes_its_records_undecodable(registry: Served) -> None:
    number = registry.register("value", SCHEMA)
    other = registry.register("other", {"type": "object"}, "JSON")
    found = failure(registry.decoding(Format.AVRO), [avro(number, SCHEMA, {"id": 1}), framed(other, b"{}")])
    assert found.message.startswith("flights/3@41: ")
    assert "it is jsonSchema, and not avro" in found.message


def test_key_and_value_have_schemas_of_their_own(registry: Served) -> None:
    key, value = registry.register("key", KEY), registry.register("value", SCHEMA)
    columns = [registry.decoding(Format.AVRO, subject=name, column=name).columns[0] for name in ("key", "value")]
    decoding = pickle.loads(pickle.dumps(Decoding(tuple(columns))))  # noqa: S301 - what was just pickled
    found = decoding(batch([avro(value, SCHEMA, {"id": 1}), None], [avro(key, KEY, "k"), None]))
    assert found.schema == decoding.schema(ARROW_SCHEMA)
    assert found.column("key").to_pylist() == ["k", None]
    assert found.column("value").to_pylist() == [{"id": 1}, None]
    assert found.column("offset").to_pylist() == [40, 41]
    empty = decoding(batch([]))
    assert empty.schema == found.schema


def test_without_a_format_a_batch_stays_as_it_is() -> None:
    records = batch([b"x"])
    assert Decoding()(records) is records


def folder(path: Path, **texts: str) -> Path:
    path.mkdir()
    for name, content in texts.items():
        (path / name.replace("_", ".")).write_text(content)
    return path


@pytest.mark.parametrize(
    ("texts", "problem"),
    [
        ({"user": "x"}, "has none of the keys username"),
        ({"username": "x"}, "has the key username and not password"),
        ({"tls_crt": "x", "ca_crt": "x"}, "has the key tls.crt and not tls.key"),
        ({"ca_crt": "nonsense"}, "key ca.crt holds no certificates"),
        ({"headers": "api-key: k\nno header"}, "has a line in headers that is not a header"),
    ],
)
def test_a_secret_that_cannot_be_used_is_refused(tmp_path: Path, texts: dict[str, str], problem: str) -> None:
    with pytest.raises(BadSpec, match=problem) as raised:
        Access.of("https://registry", folder(tmp_path / "secret", **texts), field="spec.it.credentialsFrom")
    assert "the Secret of spec.it.credentialsFrom" in raised.value.message
    assert raised.value.remedy


def test_a_secret_is_read_from_files(tmp_path: Path) -> None:
    texts = folder(tmp_path / "secret", username="me\n", password="p")  # noqa: S106 - of no account
    found = Access.of("http://registry/", texts, field="spec.f")
    assert found == Access(url="http://registry", texts=(("password", "p"), ("username", "me")))
    assert Access.of("http://registry", tmp_path / "none", field="spec.f") == Access(url="http://registry")


def test_a_secret_may_have_headers_of_its_own(tmp_path: Path) -> None:
    texts = folder(tmp_path / "secret", headers="api-key: k=1\n\nx-team:ours\n", token="t")  # noqa: S106 - of no account
    found = Access.of("http://registry", texts, field="spec.f").headers()
    assert found == {"api-key": "k=1", "x-team": "ours", "Authorization": "Bearer t"}
