# What runs in kube-system: all programs in one set of layers, so that a node unpacks them once.
FROM debian:trixie-slim AS kubernetes
RUN apt-get update \
 && DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends conntrack ipset iptables kmod nftables \
 && rm -rf /var/lib/apt/lists/*
COPY kubernetes etcd coredns pause local-path-provisioner /usr/local/bin/
RUN for program in kube-apiserver kube-controller-manager kube-scheduler kube-proxy; do \
      ln -s kubernetes /usr/local/bin/$program; done

# Manifests name the programs of the others; these two are started by their entry point.
FROM kubernetes AS coredns
ENTRYPOINT ["/usr/local/bin/coredns"]

FROM kubernetes AS pause
USER 65535:65535
ENTRYPOINT ["/usr/local/bin/pause"]
