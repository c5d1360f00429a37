"""A driver reads the configuration of an older and of a newer operator, and refuses what it would misunderstand."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from fencepost.contract import (
    CONTRACT_VERSION,
    LOCAL_SERIAL,
    LONGEST_REQUEST,
    CassandraSink,
    CassandraTls,
    ContractError,
    DriverConfig,
    FunctionSink,
    KafkaSource,
    PluginSink,
    StartingOffsets,
)

CONFIGS = Path(__file__).with_name("configs")
FUTURE: dict[str, Any] = json.loads((CONFIGS / "future.json").read_text())


def test_the_configuration_of_the_previous_release_is_read() -> None:
    found = DriverConfig.from_json((CONFIGS / "0.1.0.json").read_text())
    assert (found.epoch, found.owner, found.first_batch_limit) == (5, "", None)
    assert found.source == KafkaSource(
        bootstrap_servers="kafka:9093",
        topics=("orders",),
        properties={"security.protocol": "SASL_SSL"},
        max_records_per_batch=500,
        starting_offsets=StartingOffsets(partitions={"orders/0": 7}),
    )


def test_fields_of_a_later_release_are_ignored() -> None:
    found = DriverConfig.from_json(json.dumps(FUTURE))
    assert (found.owner, found.first_batch_limit, found.contract_version) == ("cluster/uid", 50, "1.7")
    assert (found.batch_interval, found.cassandra.local_datacenter) == (5.0, None)
    assert DriverConfig.from_json(found.to_json()) == found


def test_the_source_of_a_release_without_batch_bounds_bounds_records_alone() -> None:
    source = DriverConfig.from_json((CONFIGS / "0.1.0.json").read_text()).source
    assert (source.target_batch_duration, source.max_bytes_per_batch) == (None, None)
    assert (source.split_partitions, source.mirror_to_group) == (True, "")


def test_an_image_of_the_previous_release_finds_its_own_fields_alone() -> None:
    previous = json.loads((CONFIGS / "0.1.0.json").read_text())
    written = json.loads(DriverConfig.from_json(json.dumps(FUTURE)).to_json_before_1_0())
    assert written.keys() == previous.keys()
    for part in ("source", "cassandra"):
        assert written[part].keys() == previous[part].keys()
    assert [sink.keys() for sink in written["sinks"]] == [previous["sinks"][0].keys()] * len(written["sinks"])


def test_a_newer_major_version_is_refused_with_what_to_do() -> None:
    with pytest.raises(ContractError, match=r"contract version 3\.0.*set spec\.job\.image"):
        DriverConfig.from_json(json.dumps({"contract_version": "3.0", "everything": "else"}))


def test_a_table_is_written_as_images_of_contract_1_read_it() -> None:
    table = CassandraSink(name="rows", keyspace="shop", table="orders")
    plain = DriverConfig.from_json(json.dumps({**FUTURE, "contract_version": CONTRACT_VERSION}))
    written = json.loads(replace(plain, sinks=(table,)).to_json())
    assert written["sinks"] == [{"name": "rows", "keyspace": "shop", "table": "orders"}]
    assert written["contract_version"] == CONTRACT_VERSION


def test_a_table_with_options_is_refused_by_images_of_contract_1() -> None:
    table = CassandraSink(name="rows", keyspace="shop", table="orders", delete_where="gone", ttl=60)
    config = replace(DriverConfig.from_json(json.dumps(FUTURE)), sinks=(table,))
    assert DriverConfig.from_json(config.to_json()).sinks == (table,)
    assert json.loads(config.to_json())["contract_version"] == "2.0"


def test_a_sink_of_another_kind_is_read_back_and_refused_by_images_of_contract_1() -> None:
    sinks = (
        CassandraSink(name="rows", keyspace="shop", table="orders"),
        FunctionSink(name="mine", entrypoint="a.b:write", options={"url": "x"}),
        PluginSink(name="theirs", plugin="postgresql", options={"table": "t"}),
    )
    config = replace(DriverConfig.from_json(json.dumps(FUTURE)), sinks=sinks)
    assert DriverConfig.from_json(config.to_json()).sinks == sinks
    assert json.loads(config.to_json())["contract_version"] == "2.0"
    for text in (config.to_json(), config.to_json_before_1_0()):
        assert all("table" not in sink for sink in json.loads(text)["sinks"][1:]), "an older image misses the table"


@pytest.mark.parametrize("strict", [{"tls": CassandraTls(server_name="c")}, {"serial_consistency": LOCAL_SERIAL}])
def test_what_an_older_driver_would_misunderstand_is_of_a_version_that_it_refuses(strict: dict[str, Any]) -> None:
    plain = DriverConfig.from_json(json.dumps({**FUTURE, "contract_version": "1.0"}))
    used = replace(plain, cassandra=replace(plain.cassandra, **strict))
    assert json.loads(plain.to_json())["contract_version"] == "1.0"
    assert json.loads(used.to_json())["contract_version"] == "2.0"
    assert DriverConfig.from_json(used.to_json()).cassandra == used.cassandra
    assert strict.keys() <= json.loads(used.to_json_before_1_0())["cassandra"].keys()
    assert not strict.keys() & json.loads(plain.to_json())["cassandra"].keys()


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"epoch": "5"}, "epoch is of type str, not int"),
        ({"epoch": True}, "epoch is of type bool, not int"),
        ({"sinks": [{"name": "a", "keyspace": "k"}]}, r"sinks\[0\]\.table is missing"),
        ({"sinks": [{"name": "a", "kind": "carrier-pigeon"}]}, r"sinks\[0\]\.kind is 'carrier-pigeon'.*newer"),
        ({"sinks": [{"name": "a", "kind": "plugin"}]}, r"sinks\[0\]\.plugin is missing"),
        ({"sinks": [{"name": "a", "kind": ["plugin"]}]}, r"sinks\[0\]\.kind"),
        ({"source": {"topics": ["a"]}}, r"source\.bootstrap_servers is missing"),
        ({"cassandra": {"contact_points": [1]}}, r"cassandra\.contact_points\[0\] is of type int, not str"),
        ({"spark_conf": {"a": 1}}, r"spark_conf\.a is of type int"),
        ({"contract_version": "newest"}, "contract_version"),
    ],
)
def test_a_field_that_cannot_be_read_is_named(change: dict[str, Any], named: str) -> None:
    with pytest.raises(ContractError, match=named):
        DriverConfig.from_json(json.dumps({**FUTURE, **change}))


@pytest.mark.parametrize("text", ["", "[]", "null", "3", "[" * 5000, '{"contract_version": null}'], ids=lambda t: t[:5])
def test_what_is_no_configuration_is_a_contract_error(text: str) -> None:
    with pytest.raises(ContractError):
        DriverConfig.from_json(text)


def waiting(stall_timeout: float) -> DriverConfig:
    return replace(DriverConfig.from_json(json.dumps(FUTURE)), stall_timeout=stall_timeout)


@pytest.mark.parametrize("stall_timeout", [45.0, 60.0, 120.0, 86_400.0])
def test_all_attempts_of_a_task_give_up_well_before_the_operator_does(stall_timeout: float) -> None:
    config = waiting(stall_timeout)
    # An attempt may begin its last request just before its patience ends.
    assert 2 * (config.task_patience + LONGEST_REQUEST) <= 0.8 * stall_timeout
    assert config.executor_patience == 0.8 * stall_timeout
    assert config.patience == stall_timeout / 2


def test_more_attempts_of_a_task_share_the_same_time() -> None:
    config = replace(waiting(120.0), spark_conf={"spark.task.maxFailures": "4"})
    assert 4 * (config.task_patience + LONGEST_REQUEST) <= 0.8 * 120
    for refused_by_spark in ("many", "0", "-1"):
        config = replace(config, spark_conf={"spark.task.maxFailures": refused_by_spark})
        assert config.task_patience == replace(config, spark_conf={}).task_patience


def test_a_short_stall_timeout_leaves_time_for_a_few_requests() -> None:
    config = waiting(10.0)
    assert (config.patience, config.executor_patience, config.task_patience) == (15.0, 15.0, 5.0)
