"""The Leases of shards, as the API server has them."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from fencepost_operator.adapters.kubernetes.leases import KubernetesShardLeases
from fencepost_operator.ports import LeaseRecord

AT = datetime(2026, 1, 1, 12, 30, 15, 123456, tzinfo=UTC)


@dataclass
class Server:
    """The API server's Leases of one namespace, by name."""

    leases: dict[str, dict[str, Any]] = field(default_factory=dict)

    async def list(self, _resource: object, *, namespace: str) -> list[dict[str, Any]]:
        assert namespace == "home"
        return list(self.leases.values())

    async def create(self, _resource: object, *, namespace: str, body: dict[str, Any]) -> dict[str, Any]:
        given = {"uid": "uid-1", "resourceVersion": "1", "creationTimestamp": "2026-01-01T00:00:00Z"}
        metadata = {**body["metadata"], **given}
        assert metadata["namespace"] == namespace
        self.leases[metadata["name"]] = {**body, "metadata": metadata}
        return self.leases[metadata["name"]]


def leases(server: Server, name: str = "fencepost") -> KubernetesShardLeases:
    return KubernetesShardLeases(api=server, namespace="home", name=name)  # type: ignore[arg-type]


async def test_what_is_written_is_read() -> None:
    found = leases(Server())
    record = LeaseRecord(
        holder="a", duration=12.0, acquired_at=AT, renewed_at=AT, transitions=2, shards=3, wanted_by="pod-b_uid",
        troubles="one\ntwo",
    )  # fmt: skip
    written = await found.of(2).write(record)
    assert await found.all() == {2: written}
    assert written.troubles == "one\ntwo"
    assert (written.holder, written.shards, written.wanted_by, written.renewed_at) == ("a", 3, "pod-b_uid", AT)


async def test_a_lease_that_another_program_wrote_has_no_number_of_shards() -> None:
    server = Server()
    await leases(server).of(0).write(LeaseRecord(holder="a", duration=12.0, acquired_at=AT, renewed_at=AT))
    assert (await leases(server).all())[0].shards == 0
    assert not server.leases["fencepost"]["metadata"]["annotations"]


async def test_leases_of_other_programs_are_left_out() -> None:
    server = Server()
    for name in ("fencepost", "fencepost-shard-1", "fencepost-shard-31", "fencepost-shard-0", "fencepost-shard-01",
                 "fencepost-shard-x", "fencepost-2", "fencepost2", "other"):  # fmt: skip
        record = LeaseRecord(holder="a", duration=12.0, acquired_at=AT, renewed_at=AT)
        await leases(server, name).of(0).write(record)
    assert sorted(await leases(server).all()) == [0, 1, 31]
