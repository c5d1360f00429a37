"""The operator, installed from its own chart."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from testbed.cluster import Kubectl
from testbed.home import Home
from testbed.images.built_images import REPOSITORY, Image
from testbed.keys import files_key, source_files
from testbed.process import CommandError, Transcript, probe
from testbed.services.kafka_and_cassandra import restricted_namespace
from testbed.steps import StepError

NAMESPACE: Final = "fencepost-system"
RELEASE: Final = "fencepost"
CHART: Final = REPOSITORY / "charts" / "fencepost"
VALUES: Final = Path(__file__).parent / "manifests" / "operator-values.yaml"


@dataclass(frozen=True, slots=True)
class Operator:
    """Step: the chart's release runs this operator image.

    Helm keeps the key as the release's description, so that the release itself says what it was made from.
    """

    home: Home
    kubectl: Kubectl
    image: Image
    name: str = "operator"
    doing: str = "installing the operator from its chart"
    needs: tuple[str, ...] = ("helm", "operator-loaded", "credentials", "kafka")

    def inputs(self) -> Mapping[str, str]:
        """The chart and the values; the image comes in by `needs`."""
        files = source_files(REPOSITORY, [CHART.relative_to(REPOSITORY).as_posix()])
        return {"chart": files_key(REPOSITORY, files), "values": files_key(VALUES.parent, [VALUES])}

    def present(self, key: str) -> bool:
        """The release is deployed for this key and its deployments are available."""
        status = self._status()
        return status.get("status") == "deployed" and status.get("description") == key and self._available()

    def make(self, key: str, log: Transcript) -> None:
        """Install or upgrade the release and wait for it.  Raises CommandError, StepError."""
        if not (CHART / "Chart.yaml").is_file():
            raise StepError(
                f"{CHART.relative_to(REPOSITORY)}/Chart.yaml does not exist yet, and the operator is installed from it"
            )
        self.kubectl.apply(restricted_namespace(NAMESPACE), log)
        self._clear_interrupted(log)
        name, _, tag = self.image.content_name.rpartition(":")
        image = [f"--set=image.repository={name}", f"--set=image.tag={tag}"]
        try:
            log.run(
                [*self._helm(), "upgrade", "--install", RELEASE, str(CHART), "--create-namespace", f"--values={VALUES}",
                 *image, f"--description={key}", "--wait", "--timeout=2m",
                 "--take-ownership"],  # of CRDs that were applied by hand
            )  # fmt: skip
        except CommandError:
            self.kubectl.run("-n", NAMESPACE, "get", "pods,events", log=log)
            self.kubectl.run("-n", NAMESPACE, "logs", "--all-containers", "--tail=40", "--prefix",
                             f"--selector=app.kubernetes.io/instance={RELEASE}", log=log)  # fmt: skip
            raise

    def _status(self) -> dict[str, str]:
        found: dict[str, str] = json.loads(self._ask("status", RELEASE, "--output=json") or "{}").get("info", {})
        return found

    def _ask(self, *arguments: str) -> str | None:
        return probe([*self._helm(), *arguments])

    def _clear_interrupted(self, log: Transcript) -> None:
        """Drop what a killed install or upgrade left: Helm refuses to work on a release that is pending."""
        if self._status().get("status", "").startswith("pending"):
            log.run([*self._helm(), "uninstall", RELEASE, "--no-hooks", "--wait", "--timeout=2m"])

    def _helm(self) -> list[str]:
        return [str(self.home.bin / "helm"), f"--kubeconfig={self.home.kubeconfig}", f"--namespace={NAMESPACE}"]

    def _available(self) -> bool:
        listing = json.loads(self.kubectl.ask("-n", NAMESPACE, "get", "deployments", "-o", "json") or '{"items": []}')
        deployments = listing["items"]
        return bool(deployments) and all(
            item["status"].get("availableReplicas", 0) >= item["spec"].get("replicas", 1) for item in deployments
        )
