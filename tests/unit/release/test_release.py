"""A release has one version, its notes, its bases by digest, and workflows that pin what they run."""

from __future__ import annotations

import base64
import json
import re
import tomllib
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import pytest
import yaml

from release import images, sbom, signatures
from release import version as versions
from release.dry_run import DryRun
from release.provenance import provenance
from release.registry import changed_copy
from release.version import PLACES, ROOT, ReleaseError, notes, the_version

WORKFLOWS = sorted((ROOT / ".github/workflows").glob("*.yaml"))
DIGEST = "sha256:" + "a" * 64


def test_every_place_has_the_same_version() -> None:
    assert the_version() == tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]


@pytest.mark.parametrize("place", PLACES)
def test_a_place_with_another_version_is_named(place: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for one in PLACES:
        (tmp_path / one).parent.mkdir(parents=True, exist_ok=True)
        text = (ROOT / one).read_text()
        (tmp_path / one).write_text(text.replace(the_version(), "9.8.7") if one == place else text)
    monkeypatch.setattr(versions, "ROOT", tmp_path)
    with pytest.raises(ReleaseError, match=re.escape(place) + r".*9\.8\.7"):
        the_version()


def test_the_changelog_has_the_version() -> None:
    assert "### " in notes(the_version())
    with pytest.raises(ReleaseError, match=r"no section for 9\.9\.9"):
        notes("9.9.9")


def test_a_base_image_is_pinned_by_digest_alone() -> None:
    assert images.unpinned({"A": f"debian:bookworm-slim@{DIGEST}", "B": "golang:1.26"}) == ["golang:1.26"]


def test_the_images_of_a_release_are_those_of_the_configuration() -> None:
    text = images.BAKE.read_text()
    assert '"linux/amd64", "linux/arm64"' in text
    for image in images.IMAGES:
        assert f'dockerfile = "{image.dockerfile}"' in text
        assert f"${{REGISTRY}}/{image.name}:${{VERSION}}" in text
        assert f"org.opencontainers.image.title={image.name}" in (ROOT / image.dockerfile).read_text()
        arguments = re.findall(
            r"^ARG (\w+)=", (ROOT / image.dockerfile).read_text().partition("\nFROM ")[0], re.MULTILINE
        )
        assert arguments
        assert all(f"{name} = {name}" in text for name in arguments)


LISTED = """deb\tlibc6\t2.36-9+deb12u1\tamd64
pypi\tTyping_Extensions\t4.15.0\tPSF-2.0
pypi\tpyspark\t4.3.0\t
jar\tspark-core_2.13-4.3.0.jar
jar\tspark-core_2.13-4.3.0.jar
"""


def test_a_bill_of_materials_names_each_package_once() -> None:
    found = sbom.document(LISTED, name="fencepost-job", version="1.0.0", digest=DIGEST)
    assert (found["bomFormat"], found["specVersion"]) == ("CycloneDX", "1.6")
    assert [component["purl"] for component in found["components"]] == [
        "pkg:deb/debian/libc6@2.36-9%2Bdeb12u1?arch=amd64",
        "pkg:generic/spark-core_2.13@4.3.0?type=jar",
        "pkg:pypi/pyspark@4.3.0",
        "pkg:pypi/typing-extensions@4.15.0",
    ]
    assert found["components"][3]["licenses"] == [{"expression": "PSF-2.0"}]
    assert found["metadata"]["component"]["hashes"] == [{"alg": "SHA-256", "content": "a" * 64}]
    assert found == sbom.document(LISTED, name="fencepost-job", version="1.0.0", digest=DIGEST)


def test_an_image_without_packages_has_no_bill() -> None:
    with pytest.raises(ReleaseError, match="0 components"):
        sbom.document("", name="fencepost-job", version="1.0.0", digest=DIGEST)


def test_the_origin_names_commit_and_bases() -> None:
    bases = {"DEBIAN": f"debian:bookworm-slim@{DIGEST}", "GOLANG": "golang:1.26"}
    found = provenance(revision="c0ffee", command="docker build .", bases=bases, builder="a workflow")
    assert found["buildDefinition"]["externalParameters"] == {"command": "docker build .", "bases": bases}
    assert found["buildDefinition"]["resolvedDependencies"] == [
        {"uri": "git+.", "digest": {"gitCommit": "c0ffee"}},
        {"uri": "docker://debian:bookworm-slim", "digest": {"sha256": "a" * 64}},
    ]
    assert found["runDetails"]["builder"] == {"id": "a workflow"}


def signer(folder: Path, script: str) -> signatures.Signer:
    """Return one whose cosign is this script."""
    cosign = folder / "cosign"
    cosign.write_text(f"#!/bin/sh\n{script}\n")
    cosign.chmod(0o755)
    return signatures.Signer(cosign, folder)


def test_a_changed_artefact_has_to_be_refused_for_what_it_is(tmp_path: Path) -> None:
    """Injected: a cosign that takes everything, one that finds no signature, and one that cannot reach the registry."""
    reference = f"127.0.0.1:1/chart@{DIGEST}"
    refusal = "no matching attestations: provided artifact digest does not match any digest in statement"
    signer(tmp_path, f"echo 'Error: {refusal}' >&2; exit 1").refuse(reference, "slsaprovenance1")
    with pytest.raises(ReleaseError, match="no signatures found"):
        signer(tmp_path, "echo 'Error: no signatures found' >&2; exit 1").refuse(reference)
    with pytest.raises(ReleaseError, match="which was changed after it was signed"):
        signer(tmp_path, "exit 0").refuse(reference)
    with pytest.raises(ReleaseError, match="connection refused"):
        signer(tmp_path, "echo 'Error: dial tcp: connection refused' >&2; exit 1").refuse(reference)


def test_a_signature_is_verified_before_an_attestation_could_count_as_one(tmp_path: Path) -> None:
    """Injected: a cosign that signs nothing, and verifies whatever has an attestation."""
    found = signer(tmp_path, f'cd {tmp_path}; case "$1" in attest) touch attested;; verify) test -e attested;; esac')
    run = DryRun(registry="registry.example/x", bases={}, version="1.0.0", revision="c0ffee", programs=tmp_path)
    with pytest.raises(ReleaseError, match="cosign verify"):
        run._signed(found, "chart", f"127.0.0.1:1/chart@{DIGEST}", slsaprovenance1=tmp_path / "provenance.json")


def test_a_changed_copy_has_what_cosign_lists_for_the_original() -> None:
    """A registry without the referrers API: the tag sha256-abc is an index of what belongs to sha256:abc."""
    stored = {DIGEST: b'{"layers": []}', DIGEST.replace(":", "-"): b'{"manifests": ["a bundle"]}'}

    class Registry(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            content = stored[self.path.rpartition("/")[2]]
            self.send_response(200)
            self.send_header("Content-Type", "application/vnd.oci.image.index.v1+json")
            self.end_headers()
            self.wfile.write(content)

        def do_PUT(self) -> None:
            stored[self.path.rpartition("/")[2]] = self.rfile.read(int(self.headers["Content-Length"]))
            self.send_response(201)
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base class's name
            """Print nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Registry) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        name = f"127.0.0.1:{server.server_port}/chart"
        found, _, fresh = changed_copy(f"{name}@{DIGEST}").partition("@")
        server.shutdown()
    assert (found, fresh == DIGEST) == (name, False)
    assert json.loads(stored[fresh]) == {"layers": [], "annotations": {"changed": "yes"}}
    assert stored[fresh.replace(":", "-")] == stored[DIGEST.replace(":", "-")]


def test_an_attestation_of_something_else_is_an_error(tmp_path: Path) -> None:
    payload = base64.b64encode(json.dumps({"predicate": {"of": "another release"}}).encode()).decode()
    predicate = tmp_path / "provenance.json"
    found = signer(tmp_path, f"echo '{json.dumps({'payload': payload})}'")
    predicate.write_text('{"of": "another release"}')
    found.verify("127.0.0.1:1/chart", slsaprovenance1=predicate)
    predicate.write_text('{"of": "this release"}')
    with pytest.raises(ReleaseError, match="no attestation of 127"):
        found.verify("127.0.0.1:1/chart", slsaprovenance1=predicate)


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.name)
def test_a_workflow_pins_what_it_runs_and_has_no_more_rights_than_it_needs(path: Path) -> None:
    text = path.read_text()
    parsed = yaml.safe_load(text)
    assert parsed["permissions"] == {"contents": "read"}
    assert all(re.search(r"@[0-9a-f]{40}( # v\S+)?$", line) for line in re.findall(r"uses: (.+)", text))
    for job in parsed["jobs"].values():
        assert job["timeout-minutes"]
    # Text of an event reaches a shell by the environment alone.
    commands = [step["run"] for job in parsed["jobs"].values() for step in job["steps"] if "run" in step]
    assert all("${{" not in command for command in commands)


def test_the_workflows_call_targets_that_exist() -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    called = {name for path in WORKFLOWS for name in re.findall(r"\bmake ([a-z-]+)", path.read_text())}
    assert called
    assert called <= targets
