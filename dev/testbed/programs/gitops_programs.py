"""Flux, Argo CD, Helm 4 and others from their Go modules, and the CRDs of the first two: for the tests of GitOps.

Each wrapper's go.mod carries the `replace` lines of the program's module, which Go ignores in a dependency.
"""

import shutil
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import PurePosixPath
from typing import Final

from testbed import versions
from testbed.home import Home
from testbed.keys import content_key
from testbed.process import Transcript
from testbed.programs.go_programs import Program, module_folder
from testbed.steps import StepError

_LAST: Final = 19
"""These builds run at a lower priority than all that the cluster needs."""


@dataclass(frozen=True, slots=True)
class ModuleFiles:
    """Step: files of Go modules, in a folder of the store that is linked in the share folder."""

    home: Home
    name: str
    files: Mapping[str, tuple[str, ...]]
    """`path@version` of a module to files in it; no two have the same last name."""
    needs: tuple[str, ...] = ("go",)
    doing: str = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "doing", f"reading {self.name} from {', '.join(self.files)}")

    def inputs(self) -> Mapping[str, str]:
        """The files by module."""
        return {module: content_key(dict.fromkeys(files, "")) for module, files in self.files.items()}

    def present(self, key: str) -> bool:
        """The folder is in the store and the link leads to it."""
        stored = self.home.store / f"{self.name}-{key}"
        return stored.is_dir() and (self.home.share / self.name).resolve() == stored

    def make(self, key: str, log: Transcript) -> None:
        """Copy the files from the modules; link the folder.  Raises StepError, CommandError."""
        stored = self.home.store / f"{self.name}-{key}"
        if not stored.is_dir():
            scratch = self.home.scratch / f"{self.name}-{key}"
            shutil.rmtree(scratch, ignore_errors=True)
            scratch.mkdir(parents=True)
            for module, files in self.files.items():
                folder = module_folder(self.home, module, log)
                for file in files:
                    if not (folder / file).is_file():
                        raise StepError(f"the module {module} holds no file {file}")
                    shutil.copyfile(folder / file, scratch / PurePosixPath(file).name)
            scratch.replace(stored)
        fresh = self.home.scratch / f"link-{self.name}"
        fresh.unlink(missing_ok=True)
        fresh.symlink_to(stored)
        fresh.replace(self.home.share / self.name)


def flux(home: Home) -> tuple[Program | ModuleFiles, ...]:
    """Flux's kustomize-controller and the kinds that it watches."""
    version = f"v{versions.FLUX_KUSTOMIZE_CONTROLLER}"
    sources = ("externalartifacts", "gitrepositories", "ocirepositories", "buckets")
    bases = "config/crd/bases"
    return (
        Program(home, "kustomize-controller", main="github.com/fluxcd/kustomize-controller", nice=_LAST),
        ModuleFiles(
            home,
            "flux-crds",
            {
                f"github.com/fluxcd/kustomize-controller@{version}": (
                    f"{bases}/kustomize.toolkit.fluxcd.io_kustomizations.yaml",
                ),
                f"github.com/fluxcd/source-controller@{version}": tuple(
                    f"{bases}/source.toolkit.fluxcd.io_{kind}.yaml" for kind in sources
                ),
            },
        ),
    )


def argo_cd(home: Home) -> tuple[Program | ModuleFiles, ...]:
    """Argo CD's application controller and repo server, the kustomize that it calls, and its kinds."""
    return (
        Program(home, "argo-cd", nice=_LAST),
        Program(home, "kustomize", f"sigs.k8s.io/kustomize/kustomize/v5@v{versions.KUSTOMIZE}", nice=_LAST),
        ModuleFiles(
            home,
            "argo-cd-crds",
            {
                f"github.com/argoproj/argo-cd/v2@v{versions.ARGO_CD}": (
                    "manifests/crds/application-crd.yaml",
                    "manifests/crds/appproject-crd.yaml",
                ),
            },
        ),
    )


def newer(home: Home) -> tuple[Program | ModuleFiles, ...]:
    """Newer versions of Argo CD, Helm and promtool, and kstatus alone."""
    argo = f"github.com/argoproj/argo-cd/v3@v{versions.ARGO_CD_3}"
    return (
        Program(
            home,
            "argo-cd-3",
            source="argo-cd",
            replaces=(("argo-cd/v2/", "argo-cd/v3/"), ("action.ActionLua)", "action.ActionLua, nil)")),
            nice=_LAST,
        ),
        ModuleFiles(
            home,
            "argo-cd-3-crds",
            {argo: ("manifests/crds/application-crd.yaml", "manifests/crds/appproject-crd.yaml")},
        ),
        Program(home, "helm-4", f"helm.sh/helm/v4/cmd/helm@v{versions.HELM_4}", command="helm", nice=_LAST),
        Program(home, "kstatus", nice=_LAST),
        Program(
            home,
            "promtool-3",
            main="github.com/prometheus/prometheus/cmd/promtool",
            tags="remove_all_sd",
            nice=_LAST,
        ),
    )
