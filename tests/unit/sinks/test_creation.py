"""The statements that create a table: every name quoted, every type before what needs it."""

from __future__ import annotations

from dataclasses import replace

from fakes.spark_types import frame
from fencepost.contract import CassandraSink, ClusteringColumn, CreateTable
from fencepost.sinks.cassandra.table_creation import statements

SINK = CassandraSink(name="rows", keyspace="shop", table="sessions")
KEY = CreateTable(partition_key=("customer",), clustering_key=(ClusteringColumn(column="Started", order="DESC"),))


def test_a_table_has_the_columns_of_the_frame_the_key_and_the_options_of_the_spec() -> None:
    wanted = replace(KEY, default_time_to_live=60, compaction={"class": "it's", "a": "1"})
    schema = frame(customer="string", Started="timestamp", amount="decimal(10,2)", tags="array<string>")
    (text,) = statements(SINK, wanted, schema)
    assert text == (
        'CREATE TABLE IF NOT EXISTS "shop"."sessions" ("customer" text, "Started" timestamp, "amount" decimal,'
        ' "tags" frozen<list<text>>, PRIMARY KEY (("customer"), "Started"))'
        ' WITH CLUSTERING ORDER BY ("Started" DESC) AND default_time_to_live = 60'
        " AND compaction = {'a': '1', 'class': 'it''s'}"
    )


def test_types_come_before_the_types_and_the_table_that_need_them() -> None:
    schema = frame(
        customer="string", Started="date", home="struct<at:struct<x:double>,names:map<string,struct<n:int>>>"
    )
    first, second, third, table = statements(SINK, KEY, schema)
    assert first == 'CREATE TYPE IF NOT EXISTS "shop"."sessions_home_at" ("x" double)'
    assert second == 'CREATE TYPE IF NOT EXISTS "shop"."sessions_home_names_value" ("n" int)'
    assert third == (
        'CREATE TYPE IF NOT EXISTS "shop"."sessions_home" ("at" frozen<"sessions_home_at">,'
        ' "names" frozen<map<text, frozen<"sessions_home_names_value">>>)'
    )
    assert '"home" frozen<"sessions_home">' in table


def test_no_name_ends_the_quotes() -> None:
    name = 'a" int); DROP TABLE x; --'
    wanted = CreateTable(partition_key=(name,))
    (text,) = statements(SINK, wanted, frame(**{name: "int"}))
    quoted = '"a"" int); DROP TABLE x; --"'
    assert text == f'CREATE TABLE IF NOT EXISTS "shop"."sessions" ({quoted} int, PRIMARY KEY (({quoted})))'
