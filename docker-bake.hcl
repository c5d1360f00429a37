# The images of a release: `docker buildx bake`. Every architecture that the base images have and Spark supports.
# A release gives REGISTRY, REVISION, CREATED, and the bases by digest: DEBIAN=debian:bookworm-slim@sha256:…
variable "VERSION" { default = "0.1.0" }
variable "REGISTRY" { default = "registry.example/fencepost" }
variable "REVISION" { default = "" }
variable "CREATED" { default = "" }
variable "DEBIAN" { default = "debian:bookworm-slim" }
variable "GOLANG" { default = "golang:1.26-bookworm" }

group "default" {
  targets = ["operator", "job"]
}

target "image" {
  context   = "."
  platforms = ["linux/amd64", "linux/arm64"]
  labels = {
    "org.opencontainers.image.revision"    = REVISION
    "org.opencontainers.image.created"     = CREATED
    "org.opencontainers.image.base.name"   = split("@", DEBIAN)[0]
    "org.opencontainers.image.base.digest" = length(split("@", DEBIAN)) > 1 ? split("@", DEBIAN)[1] : ""
  }
  attest = ["type=provenance,mode=max", "type=sbom"]
}

target "operator" {
  inherits   = ["image"]
  dockerfile = "Dockerfile"
  args       = { DEBIAN = DEBIAN, GOLANG = GOLANG }
  tags       = ["${REGISTRY}/fencepost-operator:${VERSION}"]
}

target "job" {
  inherits   = ["image"]
  dockerfile = "job-image/Dockerfile"
  args       = { DEBIAN = DEBIAN }
  tags       = ["${REGISTRY}/fencepost-job:${VERSION}"]
}
