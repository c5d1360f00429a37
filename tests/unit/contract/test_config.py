"""A driver reads the configuration of an older and of a newer operator, and refuses what it would misunderstand."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from fencepost.contract import (
    LOCAL_SERIAL,
    LONGEST_REQUEST,
    CassandraSink,
    CassandraTls,
    ContractError,
    DriverConfig,
    FunctionSink,
    PluginSink,
    PostgresqlEndpoint,
    PostgresqlSink,
    PostgresqlTls,
    StateConfig,
)

CONFIGS = Path(__file__).with_name("configs")
FUTURE: dict[str, Any] = json.loads((CONFIGS / "future.json").read_text())


def test_fields_of_a_later_release_are_ignored() -> None:
    found = DriverConfig.from_json(json.dumps(FUTURE))
    assert (found.owner, found.first_batch_limit, found.contract_version) == ("cluster/uid", 50, "1.7")
    assert (found.batch_interval, found.cluster.local_datacenter) == (5.0, None)
    assert DriverConfig.from_json(found.to_json()) == found


def test_a_newer_major_version_is_refused_with_what_to_do() -> None:
    with pytest.raises(ContractError, match=r"contract version 3\.0.*set spec\.job\.image"):
        DriverConfig.from_json(json.dumps({"contract_version": "3.0", "everything": "else"}))


def test_what_is_written_is_read_back() -> None:
    sinks = (
        CassandraSink(name="rows", keyspace="shop", table="orders"),
        CassandraSink(name="some", keyspace="shop", table="others", delete_where="gone", ttl=60),
        FunctionSink(name="mine", entrypoint="a.b:write", options={"url": "x"}),
        PluginSink(name="theirs", plugin="postgresql", options={"table": "t"}),
        PostgresqlSink(name="beside", schema="shop", table="orders"),
    )
    plain = DriverConfig.from_json((CONFIGS / "plain.json").read_text())
    cassandra = replace(plain.cluster, tls=CassandraTls(server_name="c"), serial_consistency=LOCAL_SERIAL)
    state = StateConfig(partitions=4, max_bytes=20 << 30, data_port=7081)
    database = PostgresqlEndpoint(hosts=("a", "b"), database="shop", tls=PostgresqlTls())
    elsewhere = replace(plain, sinks=sinks[2:], cassandra=None, postgresql=database)
    for config in (plain, replace(plain, sinks=sinks, cassandra=cassandra, state=state), elsewhere):
        assert DriverConfig.from_json(config.to_json()) == config


def test_the_fence_is_in_one_database() -> None:
    both = {**FUTURE, "postgresql": {"hosts": ["a"]}}
    for written in (both, {name: value for name, value in FUTURE.items() if name != "cassandra"}):
        with pytest.raises(ContractError, match="one of `cassandra` and `postgresql`"):
            DriverConfig.from_json(json.dumps(written))
    elsewhere = replace(DriverConfig.from_json(json.dumps(FUTURE)), cassandra=None)
    with pytest.raises(ContractError, match="needs `cassandra`"):
        _ = elsewhere.cluster


def test_equal_configurations_are_equal_text() -> None:
    plain = DriverConfig.from_json((CONFIGS / "plain.json").read_text())
    one, other = ({"b": "1", "a": "2"}, {"a": "2", "b": "1"})
    assert replace(plain, spark_conf=one).to_json() == replace(plain, spark_conf=other).to_json()


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"epoch": "5"}, "Expected `int`, got `str` - at `$.epoch`"),
        ({"epoch": True}, "Expected `int`, got `bool` - at `$.epoch`"),
        ({"sinks": [{"name": "a", "kind": "cassandra", "keyspace": "k"}]}, "field `table` - at `$.sinks[0]`"),
        ({"sinks": [{"name": "a", "kind": "carrier-pigeon"}]}, "'carrier-pigeon' - at `$.sinks[0].kind`"),
        ({"sinks": [{"name": "a", "kind": "plugin"}]}, "field `plugin` - at `$.sinks[0]`"),
        ({"sinks": [{"name": "a", "kind": ["plugin"]}]}, "at `$.sinks[0].kind`"),
        ({"source": {"topics": ["a"]}}, "field `bootstrap_servers` - at `$.source`"),
        ({"cassandra": {"contact_points": [1]}}, "got `int` - at `$.cassandra.contact_points[0]`"),
        ({"spark_conf": {"a": 1}}, "got `int` - at `$.spark_conf[...]`"),
        ({"contract_version": "newest"}, "at `$.contract_version`"),
    ],
)
def test_a_field_that_cannot_be_read_is_named(change: dict[str, Any], named: str) -> None:
    with pytest.raises(ContractError, match=re.escape(named)):
        DriverConfig.from_json(json.dumps({**FUTURE, **change}))


@pytest.mark.parametrize("text", ["", "[]", "null", "3", "[" * 5000, '{"contract_version": null}'], ids=lambda t: t[:5])
def test_an_invalid_configuration_is_a_contract_error(text: str) -> None:
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
