"""The charts as the API server would get them."""

import json
import re
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import yaml

from testbed.home import Home

REPOSITORY: Final = Path(__file__).resolve().parents[3]
CHARTS: Final = REPOSITORY / "charts"
CASES: Final = Path(__file__).parent / "cases"
GOLDEN: Final = Path(__file__).parent / "golden"
RELEASES: Final = {"fencepost": ("fencepost", "fencepost-system"), "spark-cluster": ("departures", "flights")}
"""Chart to the release and namespace it is rendered for."""

Object = dict[str, Any]


class HelmError(Exception):
    """Helm ended with an error; the text is what it printed."""


def helm(*words: str) -> str:
    """Run the testbed's Helm and return what it prints. Raises HelmError."""
    program = Home.of_user().bin / "helm"
    if not program.exists():
        raise HelmError(f"{program} is not there: run `make tools`")
    result = subprocess.run([program, *words], capture_output=True, text=True, check=False)
    if result.returncode != 0:
        raise HelmError(f"{result.stdout}\n{result.stderr}")
    return result.stdout


def cases() -> list[tuple[str, str]]:
    """Every (chart, case): a values file each."""
    return sorted((path.parent.name, path.stem) for path in CASES.glob("*/*.yaml"))


def render(
    chart: str, case: str | None = None, values: Mapping[str, Any] | None = None, options: Sequence[str] = ()
) -> str:
    """The chart's manifests for a case's values, with `values` over them. Raises HelmError."""
    release, namespace = RELEASES[chart]
    words = ["template", release, str(CHARTS / chart), f"--namespace={namespace}"]
    words += [f"--values={CASES / chart / case}.yaml"] if case else []
    words += ["--set-json=crds.enabled=false"] if chart == "fencepost" else []  # 2,500 lines that few tests are about
    words += [f"--set-json={name}={json.dumps(value)}" for name, value in (values or {}).items()]
    text = helm(*words, *options)
    return re.sub(r'^  secret: ".*"$', '  secret: "(random)"', text, flags=re.MULTILINE)


def objects(
    chart: str, case: str | None = None, values: Mapping[str, Any] | None = None, options: Sequence[str] = ()
) -> list[Object]:
    """The rendered manifests, parsed."""
    return [found for found in yaml.safe_load_all(render(chart, case, values, options)) if found]


def one(found: list[Object], kind: str, name: str) -> Object:
    """The only object of a kind whose name ends so."""
    (match,) = [item for item in found if item["kind"] == kind and item["metadata"]["name"].endswith(name)]
    return match


def pod_templates(found: list[Object]) -> Iterator[tuple[str, Object]]:
    """Every (name, pod template) in rendered manifests."""
    for item in found:
        if "template" in item.get("spec", {}):
            yield item["metadata"]["name"], item["spec"]["template"]
