"""The pod network of a cluster whose node image was built here: point-to-point links and static routes.

Containernetworking's `ptp` and `host-local` plugins come as a Debian package; each node hands out addresses of its
own pod subnet and knows the way to the others' by a route over Docker's network. Nothing here enforces a
NetworkPolicy.
"""

import json
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from testbed.cluster import NODES, Cluster, node_addresses
from testbed.keys import content_key
from testbed.process import Transcript
from testbed.steps import StepError

POD_SUBNET: Final = "10.244.0.0/16"
"""kind's default."""
CONFIG_FILE: Final = "/etc/cni/net.d/10-fencepost.conflist"
READY_WITHIN: Final = 180
"""Seconds that nodes and DNS are given: several times what a busy two-core machine needs (9 s seen)."""


def plugin_configuration(pod_subnet: str) -> str:
    """The CNI configuration list of the node that owns `pod_subnet`."""
    addresses = {
        "type": "host-local",
        "dataDir": "/run/cni-ipam-state",
        "routes": [{"dst": "0.0.0.0/0"}],
        "ranges": [[{"subnet": pod_subnet}]],
    }
    plugins = [
        {"type": "ptp", "ipMasq": False, "mtu": 1500, "ipam": addresses},
        {"type": "portmap", "capabilities": {"portMappings": True}},
    ]
    return json.dumps({"cniVersion": "0.4.0", "name": "fencepost", "plugins": plugins})


def node_script(node: str, addresses: Mapping[str, tuple[str, str]]) -> str:
    """The shell script that gives `node` its configuration, routes and way out; running it twice changes nothing."""
    routes = [
        f"ip route replace {subnet} via {address}" for other, (address, subnet) in addresses.items() if other != node
    ]
    rule = f"POSTROUTING -s {POD_SUBNET} ! -d {POD_SUBNET} -j MASQUERADE"
    masquerade = f"iptables -t nat -C {rule} 2>/dev/null || iptables -t nat -A {rule}"
    # Kubernetes reads the file as soon as it is there: it has to be whole.
    configure = f"cat >{CONFIG_FILE}.new && mv {CONFIG_FILE}.new {CONFIG_FILE}"
    return "\n".join(["set -e", configure, *routes, masquerade])


@dataclass(frozen=True, slots=True)
class Network:
    """Step: pods reach each other, names resolve, every node is Ready."""

    cluster: Cluster
    name: str = "network"
    doing: str = "connecting the nodes' pod subnets"
    needs: tuple[str, ...] = ("cluster", "kubernetes")

    def inputs(self) -> Mapping[str, str]:
        """The configuration and script, for nodes of made-up addresses."""
        sample = {name: (f"address of {name}", f"subnet of {name}") for name in NODES}
        return {
            "script": content_key({name: node_script(name, sample) for name in NODES}),
            "plugins": plugin_configuration("subnet"),
        }

    def present(self, key: str) -> bool:  # noqa: ARG002
        """Every node is Ready and has its routes where the network is ours, and DNS is ready."""
        return not self._missing()

    def make(self, key: str, log: Transcript) -> None:  # noqa: ARG002
        """Configure the nodes and wait for them.  Raises StepError that says what did not come up."""
        # One is enough, and it stays on the control plane, which no test takes away.
        self.cluster.kubectl.run("-n", "kube-system", "scale", "deployment/coredns", "--replicas=1", log=log)
        if self.cluster.image.built():
            self._connect(log)
        deadline = time.monotonic() + READY_WITHIN
        while missing := self._missing():
            log.note(f"missing: {'; '.join(missing)}")
            if time.monotonic() > deadline:
                self.cluster.kubectl.run("-n", "kube-system", "describe", "nodes,pods", log=log)
                raise StepError(f"not there after {READY_WITHIN} s: {'; '.join(missing)}")
            time.sleep(1)
        # The tests' volumes are its work, and no later step waits for it.
        arguments = ("rollout", "status", "deployment/local-path-provisioner", "--timeout=120s")
        self.cluster.kubectl.run("-n", "local-path-storage", *arguments, log=log)

    def _connect(self, log: Transcript) -> None:
        addresses = self._addresses()
        for node in NODES:
            script = node_script(node, addresses)
            command = [self.cluster.docker.client, "exec", "-i", node, "sh", "-c", script]
            log.run(command, text=plugin_configuration(addresses[node][1]))

    def _addresses(self) -> dict[str, tuple[str, str]]:
        deadline = time.monotonic() + 60
        while True:
            try:
                return node_addresses(self.cluster.kubectl)
            except StepError:
                if time.monotonic() > deadline:
                    raise
                time.sleep(1)

    def _missing(self) -> list[str]:
        """What is not there yet, in words for the log."""
        try:
            missing = [f"{node} is not Ready" for node in self._unready()]
            if not self._dns_ready():
                missing.append("CoreDNS is not ready")
            if self.cluster.image.built():
                addresses = node_addresses(self.cluster.kubectl)
                missing += [f"{node} lacks its routes" for node in NODES if not self._routed(node, addresses)]
        except StepError as error:
            return [str(error)]
        return missing

    def _unready(self) -> list[str]:
        path = '{range .items[*]}{.metadata.name}={.status.conditions[?(@.type=="Ready")].status} {end}'
        statuses = (self.cluster.kubectl.ask("get", "nodes", "-o", f"jsonpath={path}") or "").split()
        return [node for node in NODES if f"{node}=True" not in statuses]

    def _dns_ready(self) -> bool:
        ready = "jsonpath={.status.readyReplicas}"
        return self.cluster.kubectl.ask("-n", "kube-system", "get", "deployment/coredns", "-o", ready) == "1"

    def _routed(self, node: str, addresses: Mapping[str, tuple[str, str]]) -> bool:
        state = self.cluster.docker.ask(
            "exec", node, "sh", "-c", f"cat {CONFIG_FILE}; ip route; iptables -t nat -S POSTROUTING"
        )
        wanted = [f"{subnet} via {address}" for other, (address, subnet) in addresses.items() if other != node]
        wanted += [plugin_configuration(addresses[node][1]), f"-s {POD_SUBNET} ! -d {POD_SUBNET} -j MASQUERADE"]
        return state is not None and all(part in state for part in wanted)
