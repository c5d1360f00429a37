"""What a tenant writes reaches librdkafka only where the contract allows it, and no message repeats a value."""

from __future__ import annotations

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException

from fencepost.contract import kafka_properties
from fencepost.contract.kafka_properties import (
    ALLOWED,
    DRIVER_ONLY,
    READER,
    RESERVED,
    SECRETS,
    for_operator,
    of_secret,
    problems,
    why_driver_only,
)

PEM = "-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----\n"
HOSTILE = {
    "plugin.library.paths": "/tmp/evil.so",  # noqa: S108 - a tenant's text
    "ssl.engine.location": "/tmp/evil.so",  # noqa: S108
    "ssl.engine.id": "dynamic",
    "ssl.providers": "legacy",
    "debug": "all",
    "statistics.interval.ms": "1",
    "error_cb": "x",
    "oauth_cb": "x",
    "stats_cb": "x",
    "logger": "x",
    "default.topic.config": "x",
    "interceptors": "x",
    "enable.sasl.oauthbearer.unsecure.jwt": "true",
    "internal.termination.signal": "9",
    "log_level": "7",
    "client.dns.lookup": "x",
    "ssl.ca": "x",
    "made.up": "x",
    "": "x",
    "bad\u2028key": "x",
}


@pytest.mark.parametrize("key", HOSTILE)
def test_a_property_outside_the_lists_is_refused_by_name(key: str) -> None:
    (found,) = problems({key: HOSTILE[key]})
    assert found.key.isprintable()
    assert "\u2028" not in found.key
    assert found.remedy


@pytest.mark.parametrize("key", sorted(RESERVED))
def test_what_fencepost_sets_is_refused(key: str) -> None:
    assert [found.key for found in problems({key: "x"})] == [key]


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("security.protocol", "hunter2"),
        ("sasl.mechanism", "hunter2"),
        ("sasl.mechanisms", "SCRAM-SHA-1"),
        ("ssl.ca.pem", "/var/run/secrets/kubernetes.io/serviceaccount/token"),
        ("ssl.key.pem", "file:///etc/shadow"),
        ("ssl.certificate.pem", "hunter2"),
        ("socket.timeout.ms", "99999999999999999999"),
        ("socket.timeout.ms", "\u0663\u0663\u0663\u0663"),
        ("isolation.level", "hunter2"),
        ("client.id", "two\nlines"),
        ("ssl.endpoint.identification.algorithm", "hunter2"),
    ],
)
def test_a_value_that_is_refused_is_never_repeated(key: str, value: str) -> None:
    (found,) = problems({key: value})
    assert found.key == key
    assert value not in f"{found}"


def test_what_a_user_needs_is_accepted() -> None:
    wanted = {
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "SCRAM-SHA-512",
        "sasl.username": "orders",
        "sasl.password": "pä ss\nword",
        "ssl.ca.pem": PEM,
        "ssl.endpoint.identification.algorithm": "https",
        "isolation.level": "read_uncommitted",
        "socket.timeout.ms": "30000",
    }
    assert problems(wanted) == ()
    assert why_driver_only(wanted) is None
    assert for_operator(wanted) == wanted


def test_a_newline_at_the_end_of_a_secrets_value_does_not_count() -> None:
    assert of_secret({"sasl.password": "p\n", "ssl.ca.pem": PEM}) == {
        "sasl.password": "p",
        "ssl.ca.pem": PEM.rstrip("\n"),
    }


@pytest.mark.parametrize("key", sorted(DRIVER_ONLY))
def test_the_operator_opens_no_client_with_a_setting_of_the_drivers(key: str) -> None:
    assert problems({key: "x"}) == ()
    assert key in (why_driver_only({key: "x"}) or "")
    with pytest.raises(ValueError, match="must not load"):
        for_operator({key: "x"})


@pytest.mark.parametrize(
    "properties",
    [
        {"security.protocol": "sasl_ssl"},  # librdkafka's default mechanism is GSSAPI, which runs kinit
        {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "gssapi"},
        {"security.protocol": "sasl_ssl", "sasl.mechanisms": "OAUTHBEARER"},
        {"security.protocol": "sasl_ssl", "sasl.mechanism": "PLAIN", "sasl.mechanisms": "OAUTHBEARER"},
    ],
)
def test_the_operator_opens_no_client_with_a_mechanism_of_the_drivers(properties: dict[str, str]) -> None:
    assert problems(properties) == ()
    assert why_driver_only(properties)


def test_the_operator_leaves_out_how_the_driver_fetches() -> None:
    assert for_operator({"fetch.min.bytes": "1", "client.id": "a"}) == {"client.id": "a"}


def test_the_operator_loads_nothing_that_is_refused() -> None:
    with pytest.raises(ValueError, match=r"plugin\.library\.paths"):
        for_operator({"plugin.library.paths": "x"})


def test_the_lists_share_no_key() -> None:
    lists = [set(ALLOWED), set(READER), DRIVER_ONLY, RESERVED]
    assert sum(map(len, lists)) == len(set[str]().union(*lists))
    assert set(ALLOWED) | DRIVER_ONLY >= SECRETS


def test_nothing_that_names_a_file_an_address_or_code_is_for_the_operator() -> None:
    for key in ALLOWED:
        assert not any(
            part in key for part in ("location", "path", "url", "file", "oauth", "kerberos", "engine", "plugin", "_cb")
        )


@pytest.mark.parametrize("key", sorted({*ALLOWED, *READER, *DRIVER_ONLY, *RESERVED}))
def test_librdkafka_knows_every_key_of_the_lists(key: str) -> None:
    try:
        Consumer({"group.id": "g", key: "\x01"}).close()
    except KafkaException as error:
        failure: KafkaError = error.args[0]
        assert "No such configuration property" not in failure.str()


@pytest.mark.parametrize("key", sorted({*ALLOWED, *READER}))
def test_librdkafka_takes_every_value_that_the_check_takes(key: str) -> None:
    check = kafka_properties.ALLOWED.get(key) or kafka_properties.READER[key]
    for value in ("true", "none", "https", "any", "ssl", "read_committed", "0", "100", "1024", "60000", "3600000"):
        if check(value) is None and not key.startswith(("sasl", "fetch", "receive", "reconnect", "socket.c")):
            Consumer({"group.id": "g", "log_level": 0, key: value}).close()
