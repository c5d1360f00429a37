"""Programs built from their Go modules: Kubernetes, kind, Helm, and what the node image is made of.

Modules come through the ordinary Go proxy and are checked against go.sum (ours, or the module's own and the checksum
database). A program is built into a scratch folder and renamed into the store under its content key, so a killed
build leaves nothing that looks finished; Go's own build cache makes the next try short.
"""

import os
import shutil
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from testbed import versions
from testbed.home import Home
from testbed.keys import content_key, files_key, folder_files
from testbed.process import Transcript
from testbed.programs.go_toolchain import BUILD, QUIET
from testbed.programs.host_packages import install

_FOLDER: Final = Path(__file__).parents[1]


@dataclass(frozen=True, slots=True)
class Program:
    """Step: one Go program, in the store and linked in the bin folder."""

    home: Home
    name: str
    package: str = ""
    """`path@version` of a module that can be installed by version; else the folder here with its main.go."""
    flags: str = "-s -w"
    """For the linker; upstream's own builds set their version the same way."""
    links: tuple[str, ...] = ()
    """Names it is linked by in the bin folder, itself when empty."""
    needs: tuple[str, ...] = ("go",)
    cgo: bool = False
    """Whether the program holds C code: then a C compiler is installed if it is missing."""
    main: str = "."
    """The package to build in the folder here: its own, or one that its go.mod names."""
    command: str = ""
    """What `go install` calls it, its own name when empty."""
    tags: str = ""
    """Build constraints that are met, separated by commas."""
    nice: int = 5
    """How far other processes go before the build; 19 is last."""
    source: str = ""
    """The folder here whose Go files it is built from, its own when empty; go.mod and go.sum are its own."""
    replaces: tuple[tuple[str, str], ...] = ()
    """What another version of a module spells otherwise in those files: old, new."""
    doing: str = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "doing", f"building {self.package or self.name} from its Go module")

    def inputs(self) -> Mapping[str, str]:
        """The module's version, or the files of the folder; the flags."""
        if self.package:
            return {"package": self.package, "flags": self.flags}
        chosen = {"main": self.main, "tags": self.tags} if self.main != "." else {}
        if self.source:
            chosen |= {"source": content_key(self.go_files())}
        return {"files": files_key(_FOLDER, folder_files(_FOLDER / self.name)), "flags": self.flags, **chosen}

    def present(self, key: str) -> bool:
        """The program is in the store and the links point at it."""
        program = self._stored(key)
        return program.is_file() and all(self._link(name).resolve() == program for name in self._names())

    def make(self, key: str, log: Transcript) -> None:
        """Build it unless the store has it; link it."""
        program = self._stored(key)
        if not program.is_file():
            scratch = self.home.scratch / f"{self.name}-{key}"
            scratch.mkdir(parents=True, exist_ok=True)
            self._build(scratch, log)
            program.parent.mkdir(parents=True, exist_ok=True)
            (scratch / (self.command or self.name)).replace(program)
        for name in self._names():
            fresh = self.home.scratch / f"link-{name}"
            fresh.unlink(missing_ok=True)
            fresh.symlink_to(program)
            fresh.replace(self._link(name))

    def _build(self, scratch: Path, log: Transcript) -> None:
        go = ["nice", "-n", str(self.nice), str(self.home.bin / "go")]
        options = ["-trimpath", f"-ldflags={self.flags}", *([f"-tags={self.tags}"] if self.tags else [])]
        if self.package:
            if self.cgo:
                install(("cc",), log)
            env = {**BUILD, "GOBIN": str(scratch), "CGO_ENABLED": "1" if self.cgo else "0"}
            log.run([*go, "install", *options, self.package], env=env)
        else:
            built = ["build", *options, "-o", str(scratch / (self.command or self.name)), self.main]
            log.run([*go, *built], env=BUILD, cwd=self._folder(scratch))

    def go_files(self) -> dict[str, str]:
        """Return the Go files of `source` as this program has them, by name."""
        found = {path.name: path.read_text() for path in sorted((_FOLDER / self.source).glob("*.go"))}
        for old, new in self.replaces:
            found = {name: text.replace(old, new) for name, text in found.items()}
        return found

    def _folder(self, scratch: Path) -> Path:
        """Return the folder to build in: the one here, or a copy of it with the Go files of `source`."""
        here = _FOLDER / self.name
        if not self.source:
            return here
        made = scratch / "source"
        shutil.copytree(here, made, dirs_exist_ok=True)
        for name, text in self.go_files().items():
            (made / name).write_text(text)
        return made

    def _stored(self, key: str) -> Path:
        return self.home.store / f"{self.name}-{key}" / self.name

    def _names(self) -> tuple[str, ...]:
        return self.links or (self.name,)

    def _link(self, name: str) -> Path:
        return self.home.bin / name


def _kubernetes_flags() -> str:
    major, minor, _ = versions.KUBERNETES.split(".")
    version = "k8s.io/component-base/version"
    values = {
        f"{version}.gitVersion": f"v{versions.KUBERNETES}",
        f"{version}.gitMajor": major,
        f"{version}.gitMinor": minor,
        f"{version}.gitTreeState": "clean",
        f"{version}.gitCommit": "unknown",
        "k8s.io/client-go/pkg/version.gitVersion": f"v{versions.KUBERNETES}",
    }
    return " ".join(["-s -w", *(f"-X {name}={value}" for name, value in values.items())])


def host_tools(home: Home) -> tuple[Program, ...]:
    """What is used on the host wherever the testbed runs: kubectl, kind, Helm."""
    major, minor, _ = versions.KUBERNETES.split(".")
    helm_flags = (
        f"-s -w -X helm.sh/helm/v3/internal/version.version=v{versions.HELM}"
        f" -X helm.sh/helm/v3/pkg/chartutil.k8sVersionMajor={major}"
        f" -X helm.sh/helm/v3/pkg/chartutil.k8sVersionMinor={minor}"
    )
    return (
        Program(home, "kubernetes", flags=_kubernetes_flags(), links=("kubernetes", "kubectl")),
        Program(home, "kind", f"sigs.k8s.io/kind@v{versions.KIND}"),
        Program(home, "helm", f"helm.sh/helm/v3/cmd/helm@v{versions.HELM}", flags=helm_flags),
    )


def prose_linter(home: Home) -> Program:
    """What `make check` reads the text with; its parsers are C. The package on PyPI downloads a binary instead."""
    return Program(home, "vale", f"github.com/vale-cli/vale/v3/cmd/vale@v{versions.VALE}", cgo=True)


def signing_program(home: Home) -> Program:
    """What a release is signed with."""
    return Program(home, "cosign", f"github.com/sigstore/cosign/v3/cmd/cosign@v{versions.COSIGN}", nice=19)


def node_programs(home: Home) -> tuple[Program, ...]:
    """What only a node image made here needs."""
    provisioner = "github.com/rancher/local-path-provisioner"
    return (
        Program(home, "etcd"),
        Program(home, "coredns"),
        Program(home, "pause"),
        Program(home, "local-path-provisioner", f"{provisioner}@v{versions.LOCAL_PATH_PROVISIONER}"),
    )


def module_folder(home: Home, module: str, log: Transcript) -> Path:
    """Where Go keeps the unpacked files of `path@version`, downloading them if need be."""
    go = str(home.bin / "go")
    log.run([go, "mod", "download", module], env=QUIET, cwd=Path(os.sep))
    listing = log.output(
        [go, "list", "-m", "-f", "{{.Dir}}", module], env={**QUIET, "GOFLAGS": "-mod=mod"}, cwd=Path(os.sep)
    )
    return Path(listing.strip())
