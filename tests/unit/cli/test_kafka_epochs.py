"""The consumer that asks for a leader epoch, with librdkafka itself and nothing that answers."""

from __future__ import annotations

import pytest

from fencepost.contract import KafkaEndpoint
from fencepost_cli.errors import CliError
from fencepost_cli.ports import KafkaAccess
from fencepost_cli.stores.kafka import epochs as kafka_epochs

PROPERTIES: list[dict[str, str]] = [
    {},
    {"message.max.bytes": "67108864"},
    {"fetch.max.bytes": "1024", "message.max.bytes": "1000"},
    {"fetch.max.bytes": "268435456", "receive.message.max.bytes": "536870912"},
]


@pytest.mark.parametrize("properties", PROPERTIES)
def test_any_sizes_of_the_pipeline_make_a_consumer(monkeypatch: pytest.MonkeyPatch, properties: dict[str, str]) -> None:
    """Found on the cluster: librdkafka refused its own default of fetch.max.bytes beside the bound of an answer."""
    monkeypatch.setattr(kafka_epochs, "READ_WITHIN", 0.1)
    access = KafkaAccess(
        endpoint=KafkaEndpoint(bootstrap_servers="127.0.0.1:9"),
        topics=("t",),
        properties=properties,
        dial=lambda host, port: (host, port),
    )
    with pytest.raises(CliError, match="did not give the record t/0@5"):
        kafka_epochs.leader_epoch(access, "t", 0, 5)
