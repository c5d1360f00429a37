"""What of a foreign log looks like a secret, and is covered before it is stored or shown."""

from __future__ import annotations

import json

import pytest

from fencepost_operator.masking import masked

SECRET = "hunter2-Prod"  # noqa: S105 - the tests look for it

HOLD = [
    f"password={SECRET}",
    f"PASSWORD = '{SECRET} and more {SECRET}'",
    f"CASSANDRA_PASSWORD={SECRET}",
    f"sasl.password: {SECRET}",
    f"ssl.keystore.password={SECRET},{SECRET}",
    f"{{'username': 'a', 'password': '{SECRET}', 'b': 1}}",
    json.dumps({"user": "a", "clientSecret": f'a"{SECRET}'}),
    json.dumps({"log": json.dumps({"token": SECRET})}),
    f"passwd => {SECRET}",
    f"api_key={SECRET} access-key={SECRET}",
    f"AWS_SECRET_ACCESS_KEY={SECRET}",
    f"Authorization: Basic {SECRET}",
    f"authorization=Bearer {SECRET}",
    f"sent Bearer {SECRET}.0123456789",
    f"run --sasl-password {SECRET} --verbose",
    f"--token={SECRET}",
    f'sasl.jaas.config=o.a.k.PlainLoginModule required username="{SECRET}" pin="{SECRET}";',
    f"KAFKA_JAAS: any {SECRET}",
    f"cannot connect to https://reader:{SECRET}@api.example/path",
    f"jdbc://{SECRET}@host, postgres://a:p/{SECRET}@{SECRET}@host/db",
    f"-----BEGIN RSA PRIVATE KEY-----\n{SECRET}\n{SECRET}\n-----END RSA PRIVATE KEY-----",
    f"-----BEGIN PRIVATE KEY-----\n{SECRET}",
    f"got eyJhbGciOiJI.{SECRET}.sig",
]

HARMLESS = [
    "java.lang.OutOfMemoryError: Java heap space",
    '{"level": "info", "message": "ready: kafka"}',
    "the password is wrong",
    "Authentication failed: invalid credentials",
    "cannot reach kafka://broker-0:9092 or http://metrics:8080/path",
    "KeyError: 'order_id'",
    "basic authentication is off, and no bearer was sent",
    "pip --no-cache-dir install x",
]


@pytest.mark.parametrize("text", HOLD)
def test_a_secret_is_covered(text: str) -> None:
    assert SECRET not in masked(text)
    assert "***" in masked(text)


@pytest.mark.parametrize("text", HARMLESS)
def test_what_explains_a_failure_stays(text: str) -> None:
    assert masked(text) == text


def test_what_is_beside_a_secret_stays() -> None:
    found = masked(f"line 1\nuser=reader password={SECRET} host=db\nhttps://a:{SECRET}@api.example/x failed")
    assert found == "line 1\nuser=reader password=*** host=db\nhttps://***@api.example/x failed"


@pytest.mark.parametrize("part", ["password", "://", "-", '"', "jaas", "token ", "eyJ", "-----BEGIN KEY-----", "a"])
def test_a_hostile_text_does_not_hold_the_operator_up(part: str) -> None:
    """A pattern that backtracks without a bound would not come back from this."""
    text = part * (16_384 // len(part))
    assert len(masked(text)) <= 2 * len(text)
