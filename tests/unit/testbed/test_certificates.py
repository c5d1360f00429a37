"""The certificates are what Kafka and its clients accept: signed by one authority, for the names that clients use."""

import subprocess
from pathlib import Path

import pytest

from testbed.process import Transcript
from testbed.services.certificates import BROKER_NAMES, FILES, make_certificates


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tls")
    make_certificates(folder, Transcript(folder.with_suffix(".log")))
    return folder


def openssl(folder: Path, *arguments: str) -> str:
    return subprocess.run(["openssl", *arguments], cwd=folder, capture_output=True, text=True, check=True).stdout


def test_the_authority_s_key_is_not_kept(folder: Path) -> None:
    assert sorted(file.name for file in folder.iterdir()) == sorted(FILES)


@pytest.mark.parametrize(("name", "purpose"), [("server.pem", "sslserver"), ("client.crt", "sslclient")])
def test_both_certificates_verify_against_the_authority(folder: Path, name: str, purpose: str) -> None:
    assert openssl(folder, "verify", "-CAfile", "ca.crt", "-purpose", purpose, name) == f"{name}: OK\n"


def test_the_broker_s_certificate_names_how_clients_reach_it(folder: Path) -> None:
    names = openssl(folder, "x509", "-in", "server.pem", "-noout", "-ext", "subjectAltName")
    assert all(f":{name}" in names for name in BROKER_NAMES)


def test_keys_are_pkcs8_as_kafka_wants_them(folder: Path) -> None:
    for name in ("server.pem", "client.key"):
        assert (folder / name).read_text().startswith("-----BEGIN PRIVATE KEY-----")
