"""All steps and what each stands on: the one place that knows them all."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

from testbed.cluster import CASSANDRA_PORT, DATA_NODE, KAFKA_PORT, WORKERS, Cluster, Kubectl
from testbed.engine import Docker, Engine
from testbed.home import Home
from testbed.images.base_images import DebianBase, GolangBase, Registry
from testbed.images.built_images import REPOSITORY, Image, Loaded
from testbed.images.node_image import IMAGE, NodeImage
from testbed.network import Network
from testbed.preflight import Preflight
from testbed.programs.debian_programs import browser, monitoring_programs, redis_program, registry_program
from testbed.programs.gitops_programs import argo_cd, flux, newer
from testbed.programs.go_programs import host_tools, node_programs, prose_linter, signing_program
from testbed.programs.go_toolchain import Go
from testbed.release import Operator
from testbed.services.certificates import Certificates
from testbed.services.credentials import Credentials, KafkaUser
from testbed.services.kafka_and_cassandra import DataService
from testbed.steps import Milestone, Step

IMAGE_STEPS: Final = ("node-image", "kafka-image", "cassandra-image", "job-image", "operator-image")
READY: Final = "ready"
"""The testbed without what only `make check` and the tests need."""
TESTS: Final = "tests"
"""The testbed with all that `make test` needs."""
GITOPS: Final = "gitops"
"""The testbed with all that `make test-gitops` needs."""
PICTURES: Final = "pictures"
"""The testbed with all that `make pictures` needs."""
RELEASE: Final = "release"
"""What `make release-dry-run` needs, without a cluster."""
BESIDE: Final = frozenset(
    {"kustomize-controller", "argo-cd", "kustomize", "argo-cd-3", "helm-4", "kstatus", "promtool-3"}
)
"""Long builds that only tests wait for."""
_FOLDER: Final = Path(__file__).parent


def _service_image(docker: Docker, service: str, keys: Callable[[], Mapping[str, str]]) -> Image:
    folder = _FOLDER / service
    return Image(
        docker,
        name=f"{service}-image",
        repository=f"fencepost-testbed/{service}",
        dockerfile=folder / "Dockerfile",
        context=folder,
        sources=(folder.relative_to(REPOSITORY).as_posix(),),
        needs=("debian-bookworm",),
        keys=keys,
    )


def steps(home: Home, keys: Callable[[], Mapping[str, str]]) -> list[Step]:
    """Every step, long ones of the same rank first; `keys` gives the runner's keys so far."""
    docker = Docker(home)
    registry = Registry(docker)
    kubectl = Kubectl(home)
    tools: tuple[Step, ...] = (*host_tools(home), monitoring_programs(home))
    gitops: tuple[Step, ...] = (*flux(home), *argo_cd(home), redis_program(home), *newer(home))
    node_image = NodeImage(home, docker, registry)
    cluster = Cluster(home, docker, node_image)
    kafka, cassandra = (_service_image(docker, service, keys) for service in ("kafka", "cassandra"))
    job = Image(
        docker,
        name="job-image",
        repository="fencepost-job",
        dockerfile=REPOSITORY / "job-image" / "Dockerfile",
        context=REPOSITORY,
        sources=("job-image", "uv.lock", "uv.txt", "pyproject.toml"),
        needs=("debian-bookworm",),
        keys=keys,
    )
    operator = Image(
        docker,
        name="operator-image",
        repository="fencepost-operator",
        dockerfile=REPOSITORY / "Dockerfile",
        context=REPOSITORY,
        sources=(
            "operator",
            "charts/spark-cluster",
            "job-image/pyproject.toml",
            "job-image/src",
            "uv.lock",
            "uv.txt",
            "pyproject.toml",
        ),
        needs=("debian-bookworm", "golang"),
        keys=keys,
    )
    return [
        Preflight(home, warm=lambda: docker.image_id(IMAGE) is not None),
        Engine(home, needs=("preflight",)),
        Go(home),
        *tools,
        Milestone("tools", tuple(tool.name for tool in tools)),
        prose_linter(home),
        Milestone("linters", ("helm", "vale")),
        DebianBase(home, docker, registry, "bookworm"),
        DebianBase(home, docker, registry, "trixie"),
        *node_programs(home),
        cassandra,
        kafka,
        node_image,
        GolangBase(home, docker, registry),
        job,
        operator,
        cluster,
        Network(cluster),
        Loaded(docker, "data-loaded", (kafka, cassandra), (DATA_NODE,), ("network", "kafka-image", "cassandra-image")),
        DataService(kubectl, "cassandra", cassandra, CASSANDRA_PORT, ("data-loaded",)),
        Certificates(home, kubectl),
        DataService(kubectl, "kafka", kafka, KAFKA_PORT, ("data-loaded", "kafka-certificates")),
        Credentials(),
        KafkaUser(),
        Loaded(docker, "job-loaded", (job,), WORKERS, ("network", "job-image")),
        Loaded(docker, "operator-loaded", (operator,), WORKERS, ("network", "operator-image")),
        Operator(home, kubectl, operator),
        Milestone(READY, ("operator", "job-loaded", "cassandra", "kafka", "kafka-user")),
        Milestone(TESTS, (READY, "tools")),
        *gitops,
        Milestone(GITOPS, (TESTS, *(step.name for step in gitops))),
        browser(home),
        Milestone(PICTURES, (READY, "tools", "browser")),
        signing_program(home),
        registry_program(home),
        Milestone(RELEASE, ("helm", "cosign", "registry", "job-image", "operator-image")),
    ]
