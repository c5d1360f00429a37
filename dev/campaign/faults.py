"""What is done to the testbed, each fault for some seconds."""

from __future__ import annotations

import random
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Final

from campaign.world import CLOCK_FILE, NAME, World
from campaign.writes import WRITES
from harness.faults.clocks import OFFSETS, packed
from harness.faults.node_loss import NodeLoss
from harness.faults.schedule import Draw, NoTargetError, Pace, Schedule
from harness.kubernetes.kubectl import Kubectl, KubectlError, Object
from harness.kubernetes.nodes import Container, NodeError
from harness.kubernetes.placement import COMPONENT
from harness.operator_replicas import leader
from harness.pipelines import PIPELINE_LABEL, copy_of
from harness.waiting import eventually
from testbed.cluster import WORKERS
from testbed.release import NAMESPACE as OPERATOR_NAMESPACE
from testbed.release import RELEASE as OPERATOR
from testbed.services.kafka_and_cassandra import NAMESPACE as DATA_NAMESPACE

SECONDS: Final = (2.0, 20.0)
"""How long one fault lasts."""
PACE: Final = Pace(between=(0.5, 6.0), burst=25, calm=30.0)
"""About ten faults a minute, of which two or three overlap: a third of the draws find no free target.

A calm is as long as a driver takes from its start to its first commit on two busy CPUs.
"""
WRITE_SECONDS: Final = 45.0
"""How long a fault waits for a write of the operator: several restarts of a driver."""
CONTROL_PLANE: Final = "fencepost-control-plane"
OWN_KINDS: Final = ("services", "secrets", "configmaps", "poddisruptionbudgets", "statefulsets", "jobs", "pods")
"""Kinds of which a generation or a run owns objects."""
_OURS: Final = "fencepost-campaign"
"""Marks the rules in a node's firewall."""
_MISSES: Final = (NoTargetError, NodeError, KubectlError, AssertionError, subprocess.SubprocessError)


@dataclass(frozen=True, slots=True)
class Fault:
    """What is done, for how long, and what it draws besides."""

    world: World
    seconds: float
    chance: random.Random

    def pod(self, component: str) -> Object:
        """Return a running pod of the pipeline."""
        selector = f"--selector={PIPELINE_LABEL}={NAME},{COMPONENT}={component}"
        return self._running(self.world.kubectl.items("pods", selector))

    def operator(self) -> Object:
        """Return a running pod of the operator."""
        return self._running(
            self.world.kubectl.within(OPERATOR_NAMESPACE).items(
                "pods", f"--selector=app.kubernetes.io/instance={OPERATOR}"
            )
        )

    def service(self, name: str) -> Object:
        """Return the running pod of Kafka or Cassandra."""
        return self._running(self.data.items("pods", f"--selector=app={name}"))

    @property
    def data(self) -> Kubectl:
        """The namespace of Kafka and Cassandra."""
        return self.world.kubectl.within(DATA_NAMESPACE)

    def _running(self, pods: list[Object]) -> Object:
        running = [pod for pod in pods if Container.of(pod) is not None]
        if not running:
            raise NoTargetError
        return self.chance.choice(sorted(running, key=lambda pod: str(pod["metadata"]["name"])))

    def kill(self, pod: Object) -> None:
        """SIGKILL to every process of a pod's container."""
        self.world.nodes.signal(_container(pod), "KILL")

    def freeze(self, pod: Object) -> None:
        """SIGSTOP to every process of a pod's container, and SIGCONT later."""
        container = _container(pod)
        self.world.nodes.signal(container, "STOP")
        try:
            time.sleep(self.seconds)
        finally:
            for process in self.world.nodes.processes(container):
                self.world.nodes.run(container.node, "kill", "-CONT", str(process), check=False)

    def starve(self, pod: Object) -> None:
        """Leave a pod's container 2 % of a CPU."""
        container = _container(pod)
        groups = self.world.nodes.run(
            container.node, "cat", f"/proc/{self._process(container)}/cgroup", check=False
        ).splitlines()
        path = next((line.split(":", 2)[2] for line in groups if ":cpu:" in line or ":cpu," in line), None)
        if path is None:
            raise NoTargetError
        quota = f"/sys/fs/cgroup/cpu{path}/cpu.cfs_quota_us"
        before = self.world.nodes.run(container.node, "cat", quota).strip()
        self.world.nodes.run(container.node, "sh", "-c", f"echo 2000 > {quota}")
        try:
            time.sleep(self.seconds)
        finally:
            self.world.nodes.run(container.node, "sh", "-c", f"echo {before} > {quota}", check=False)

    def fill(self, pod: Object) -> None:
        """Fill the scratch of a pod to 95 % of its volume's limit, and beyond it in one of two cases."""
        container = _container(pod)
        volumes = [one["emptyDir"] for one in pod["spec"]["volumes"] if "sizeLimit" in one.get("emptyDir", {})]
        if not volumes:
            raise NoTargetError
        file = f"/proc/{self._process(container)}/root/tmp/{_OURS}"
        limit = max(_bytes(volume["sizeLimit"]) for volume in volumes)
        size = int(limit * self.chance.choice((0.95, 1.1)))
        self.world.nodes.run(container.node, "fallocate", "--length", str(size), file)
        try:
            time.sleep(self.seconds)
        finally:
            self.world.nodes.run(container.node, "rm", "-f", file, check=False)

    def set_clock(self, pod: Object) -> None:
        """Set the wall clock of a pod's containers apart from the node's."""
        self._write_clock(pod, self.chance.choice(OFFSETS), check=True)
        try:
            time.sleep(self.seconds)
        finally:
            self._write_clock(pod, 0.0, check=False)

    def _write_clock(self, pod: Object, offset: float, *, check: bool) -> None:
        """Write into the file that the preloaded library has mapped; its volume outlives the pod's containers."""
        octal = "".join(f"\\{byte:03o}" for byte in packed(offset))
        file = f"/var/lib/kubelet/pods/{pod['metadata']['uid']}/volumes/kubernetes.io~empty-dir/{CLOCK_FILE}"
        script = f"test -s {file} && printf '{octal}' | dd of={file} conv=notrunc status=none"
        self.world.nodes.run(pod["spec"]["nodeName"], "sh", "-c", script, check=check)

    def kill_operator_at(self, write: Callable[[World, float], None]) -> None:
        """SIGKILL to the acting operator at the moment that a write of a kind is stored.

        Its pod is deleted afterwards: the kubelet would wait longer after each of so many crashes.
        """
        pod = leader(self.world.kubectl)
        container = Container.of(pod) if pod is not None else None
        if pod is None or container is None:
            raise NoTargetError
        with self.world.nodes.trigger(container) as kill:
            write(self.world, WRITE_SECONDS)
            if not kill():
                raise NoTargetError
        operator = self.world.kubectl.within(OPERATOR_NAMESPACE)
        operator.run("delete", "pod", pod["metadata"]["name"], "--wait=false", "--ignore-not-found")

    def _process(self, container: Container) -> int:
        processes = self.world.nodes.processes(container)
        if not processes:
            raise NoTargetError
        return processes[0]

    @contextmanager
    def firewall(self, node: str, *rules: str) -> Iterator[None]:
        """Put rules in front of those of a node's FORWARD chain while the block runs."""
        mark = f"{_OURS}-{self.chance.getrandbits(32)}"
        words = [f"{rule} -m comment --comment {mark} -j DROP" for rule in rules]
        try:
            for word in words:
                self.world.nodes.run(node, "sh", "-c", f"iptables -w -I FORWARD {word}")
            yield
        finally:
            for word in words:
                self.world.nodes.run(node, "sh", "-c", f"while iptables -w -D FORWARD {word}; do :; done", check=False)

    def cut(self, pod: Object, *filters: str) -> None:
        """Drop what a pod sends that passes one of the filters, written for iptables."""
        address = pod["status"]["podIP"]
        with self.firewall(pod["spec"]["nodeName"], *(f"-s {address} {words}" for words in filters)):
            time.sleep(self.seconds)

    def slow(self, pod: Object) -> None:
        """Let no more than 256 kbit/s reach a pod."""
        node, address = pod["spec"]["nodeName"], pod["status"]["podIP"]
        route = self.world.nodes.run(node, "ip", "-o", "route", "get", address).split()
        device = route[route.index("dev") + 1]
        if not device.startswith("veth"):
            raise NoTargetError
        limit = f"tc qdisc add dev {device} root tbf rate 256kbit burst 16kb latency 2s"
        self.world.nodes.run(node, "sh", "-c", limit)
        try:
            time.sleep(self.seconds)
        finally:
            self.world.nodes.run(node, "tc", "qdisc", "del", "dev", device, "root", check=False)

    def own_object(self) -> tuple[str, Object]:
        """Return the kind and one object of the pipeline's."""
        kind = self.chance.choice(OWN_KINDS)
        found = self.world.kubectl.items(kind, f"--selector={PIPELINE_LABEL}={NAME}")
        if not found:
            raise NoTargetError
        return kind, self.chance.choice(sorted(found, key=lambda one: str(one["metadata"]["name"])))


def _container(pod: Object) -> Container:
    container = Container.of(pod)
    if container is None:
        raise NoTargetError
    return container


def _bytes(quantity: str) -> int:
    for suffix, factor in (("Gi", 1 << 30), ("Mi", 1 << 20), ("Ki", 1 << 10)):
        if quantity.endswith(suffix):
            return int(float(quantity.removesuffix(suffix)) * factor)
    return int(quantity)


def _node_paused(fault: Fault) -> None:
    with NodeLoss(fault.world.kubectl, fault.world.nodes).silent(fault.chance.choice(WORKERS)):
        time.sleep(fault.seconds)


def _control_plane_paused(fault: Fault) -> None:
    docker = fault.world.nodes.docker
    subprocess.run([docker, "pause", CONTROL_PLANE], check=True, capture_output=True, timeout=30)
    try:
        time.sleep(fault.seconds)
    finally:
        subprocess.run([docker, "unpause", CONTROL_PLANE], check=True, capture_output=True, timeout=60)


def _node_drained(fault: Fault) -> None:
    loss = NodeLoss(fault.world.kubectl, fault.world.nodes)
    node = fault.chance.choice(WORKERS)
    try:
        with loss.drained(node):
            time.sleep(fault.seconds)
    finally:  # the API server may have been away when the block ended

        def is_uncordoned() -> bool:
            try:
                fault.world.kubectl.run("uncordon", node)
            except KubectlError as error:
                raise AssertionError(str(error)) from error
            return True

        eventually(f"{node} is uncordoned", is_uncordoned, seconds=120)


def _node_rebooted(fault: Fault) -> None:
    """Restart the node that holds neither Kafka nor Cassandra.

    The testbed's pod network is static routes and a rule, which a reboot takes away: they are put back.
    """
    nodes = fault.world.nodes
    busy = {fault.service(name)["spec"]["nodeName"] for name in ("kafka", "cassandra")}
    node = next((node for node in WORKERS if node not in busy), None)
    if node is None:
        raise NoTargetError
    routes = [line.strip() for line in nodes.run(node, "ip", "-4", "route").splitlines()]
    rules = nodes.run(node, "iptables", "-t", "nat", "-S", "POSTROUTING").splitlines()
    restored = [f"ip route replace {line}" for line in routes if " via " in line and not line.startswith("default")]
    restored += [f"iptables -w -t nat {line}" for line in rules if line.endswith("-j MASQUERADE")]
    subprocess.run([nodes.docker, "restart", node], check=True, capture_output=True, timeout=120)
    nodes.run(node, "sh", "-c", "\n".join(restored))
    NodeLoss(fault.world.kubectl, nodes).wait_ready(node, seconds=180)


def _object_deleted(fault: Fault) -> None:
    kind, found = fault.own_object()
    fault.world.kubectl.run("delete", kind, found["metadata"]["name"], "--wait=false", "--ignore-not-found")


def _object_changed(fault: Fault) -> None:
    """Change what the object is for, as a hand that meant another one does."""
    kind, found = fault.own_object()
    changes: Mapping[str, Mapping[str, object]] = {
        "services": {"spec": {"selector": {"app": "another"}}},
        "secrets": {"data": dict.fromkeys(found.get("data", {}), "")},
        "configmaps": {"data": dict.fromkeys(found.get("data", {}), "")},
        "poddisruptionbudgets": {"spec": {"minAvailable": None, "maxUnavailable": 1}},
        "statefulsets": {"spec": {"replicas": 0}},
        "jobs": {"spec": {"suspend": True}},
        "pods": {"metadata": {"labels": {COMPONENT: None}}},
    }
    fault.world.kubectl.patch(kind, found["metadata"]["name"], changes[kind])


def _job_copied(fault: Fault) -> None:
    """Create the run's Job a second time under another name; delete the copy later."""
    pod = fault.pod("driver")
    job = fault.world.kubectl.get("job", pod["metadata"]["labels"]["batch.kubernetes.io/job-name"])
    if job is None:
        raise NoTargetError
    name = f"copy-{fault.chance.getrandbits(32):08x}"
    fault.world.kubectl.create(copy_of(job, name=name))
    time.sleep(fault.seconds)
    fault.world.kubectl.delete("job", name)


def _job_deleted(fault: Fault) -> None:
    """Delete the run's Job and leave its pod, as `--cascade=orphan` does; delete the pod later, as the status asks."""
    pod = fault.pod("driver")
    name = pod["metadata"]["labels"]["batch.kubernetes.io/job-name"]
    fault.world.kubectl.run("delete", "job", name, "--cascade=orphan", "--wait=false", "--ignore-not-found")
    time.sleep(fault.seconds)
    fault.world.kubectl.run("delete", "pod", pod["metadata"]["name"], "--wait=false", "--ignore-not-found")


@dataclass(frozen=True, slots=True)
class Kind:
    """One kind of fault. `target` keeps two at once off the same thing.

    `blinds` the operator while it lasts, or at its end only when it `waits` for its moment.
    """

    act: Callable[[Fault], None]
    target: str
    blinds: bool = False
    waits: bool = False


_CASSANDRA: Final = "-p tcp --dport 9042"
_KAFKA: Final = "-p tcp --dport 9092"
_LOSS: Final = "-m statistic --mode random --probability 0.3"
KINDS: Final[Mapping[str, Kind]] = {
    "driver killed": Kind(lambda fault: fault.kill(fault.pod("driver")), "driver"),
    "driver frozen": Kind(lambda fault: fault.freeze(fault.pod("driver")), "driver"),
    "driver starved": Kind(lambda fault: fault.starve(fault.pod("driver")), "driver"),
    "driver cut from Cassandra": Kind(lambda fault: fault.cut(fault.pod("driver"), _CASSANDRA), "driver network"),
    "driver cut from Kafka": Kind(lambda fault: fault.cut(fault.pod("driver"), _KAFKA), "driver network"),
    "driver's network lossy": Kind(lambda fault: fault.cut(fault.pod("driver"), _LOSS), "driver network"),
    "driver's network slow": Kind(lambda fault: fault.slow(fault.pod("driver")), "driver network"),
    "driver without DNS": Kind(
        lambda fault: fault.cut(fault.pod("driver"), "-p udp --dport 53", "-p tcp --dport 53"), "driver network"
    ),
    "driver's scratch full": Kind(lambda fault: fault.fill(fault.pod("driver")), "driver"),
    "worker killed": Kind(lambda fault: fault.kill(fault.pod("worker")), "worker"),
    "worker frozen": Kind(lambda fault: fault.freeze(fault.pod("worker")), "worker"),
    "worker starved": Kind(lambda fault: fault.starve(fault.pod("worker")), "worker"),
    "worker cut from Kafka": Kind(lambda fault: fault.cut(fault.pod("worker"), _KAFKA), "worker network"),
    "worker cut from Cassandra": Kind(lambda fault: fault.cut(fault.pod("worker"), _CASSANDRA), "worker network"),
    "worker's network lossy": Kind(lambda fault: fault.cut(fault.pod("worker"), _LOSS), "worker network"),
    "worker's scratch full": Kind(lambda fault: fault.fill(fault.pod("worker")), "worker"),
    "master killed": Kind(lambda fault: fault.kill(fault.pod("master")), "master"),
    "master frozen": Kind(lambda fault: fault.freeze(fault.pod("master")), "master"),
    "operator killed": Kind(lambda fault: fault.kill(fault.operator()), "operator", blinds=True),
    "operator frozen": Kind(lambda fault: fault.freeze(fault.operator()), "operator", blinds=True),
    "operator cut from Kafka": Kind(lambda fault: fault.cut(fault.operator(), _KAFKA), "operator network"),
    "operator cut from Cassandra": Kind(lambda fault: fault.cut(fault.operator(), _CASSANDRA), "operator network"),
    "operator cut from the API server": Kind(
        lambda fault: fault.cut(fault.operator(), "-p tcp --dport 6443"), "operator network", blinds=True
    ),
    "Kafka killed": Kind(lambda fault: fault.kill(fault.service("kafka")), "kafka"),
    "Kafka frozen": Kind(lambda fault: fault.freeze(fault.service("kafka")), "kafka"),
    "Cassandra killed": Kind(lambda fault: fault.kill(fault.service("cassandra")), "cassandra"),
    "Cassandra frozen": Kind(lambda fault: fault.freeze(fault.service("cassandra")), "cassandra"),
    "node paused": Kind(_node_paused, "node", blinds=True),
    "control plane paused": Kind(_control_plane_paused, "control plane", blinds=True),
    "node drained": Kind(_node_drained, "node", blinds=True),
    "node rebooted": Kind(_node_rebooted, "node", blinds=True),
    "object deleted": Kind(_object_deleted, "object"),
    "object changed": Kind(_object_changed, "object"),
    "Job copied": Kind(_job_copied, "job"),
    "Job deleted": Kind(_job_deleted, "job"),
    "driver's clock set": Kind(lambda fault: fault.set_clock(fault.pod("driver")), "driver clock"),
    "worker's clock set": Kind(lambda fault: fault.set_clock(fault.pod("worker")), "worker clock"),
    "operator's clock set": Kind(lambda fault: fault.set_clock(fault.operator()), "operator clock"),
    **{
        f"operator killed at its write of {what}": Kind(
            partial(Fault.kill_operator_at, write=write), "operator at a write", blinds=True, waits=True
        )
        for what, write in WRITES.items()
    },
}


def schedule(world: World, chance: random.Random, report: Callable[[str], None]) -> Schedule:
    """Return the faults of the testbed."""

    def draw(chance: random.Random) -> Draw:
        name = chance.choice(sorted(KINDS))
        fault = Fault(world, chance.uniform(*SECONDS), random.Random(chance.random()))
        label = f"{name} ({fault.seconds:.0f} s)"
        return Draw(kind=name, target=KINDS[name].target, label=label, act=lambda: KINDS[name].act(fault))

    return Schedule(draw=draw, chance=chance, pace=PACE, report=report, misses=_MISSES)


def blinded(faults: Schedule, since: float) -> bool:
    """Whether a fault kept the operator from its work at or after a moment of the monotonic clock."""
    return any(
        KINDS[one.kind].blinds and (one.ended is not None or not KINDS[one.kind].waits) for one in faults.since(since)
    )
