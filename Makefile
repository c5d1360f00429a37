# Three commands do everything on a fresh machine: `make local`, `make demo` and `make test`. `make help` lists the rest.
SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help
MAKEFLAGS += --no-print-directory

UV_VERSION := $(shell sed -n 's/^uv==\([0-9.]*\).*/\1/p' uv.txt)
# The first Python that runs and that the lock is for; a name on PATH alone may be another tool's shim.
PYTHON ?= $(shell for name in python3.13 python3.12 python3.11 python3; do \
	$$name -c 'import sys; sys.exit(not (3, 11) <= sys.version_info < (3, 14))' 2>/dev/null && { command -v $$name; break; }; done)
VENV := .venv
BIN := $(VENV)/bin
UV_VENV := .cache/uv-$(UV_VERSION)
UV := $(UV_VENV)/bin/uv
export PYTHONPATH := dev:tests
export UV_PYTHON_DOWNLOADS := never
SOURCES := operator/src job-image/src cli/src dev tests examples
# Three processes for two CPUs, since tests wait; tests/conftest.py says which one runs what, and in which order.
SIDE_BY_SIDE := --numprocesses=3 --dist=loadscope --no-loadscope-reorder
# Of `make simulate`; SEED or STATEFUL_SEED plays one of them.
HISTORIES ?= 100000
STATEFUL_HISTORIES ?= 10000
FAILOVER_HISTORIES ?= 2000
PROSE := README.md CHANGELOG.md CONTRIBUTING.md SECURITY.md ROADMAP.md Makefile charts crds docs examples operator/src job-image cli dev tests

.PHONY: help
help: ## List the targets
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## (.*)/  make \1\t\2/' | expand -t 18

$(UV):
	@test -n "$(PYTHON)" || { echo "python: needs Python 3.11 to 3.13. Remedy: apt-get install python3" >&2; exit 1; }
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || ./dev/testbed/install-python-venv
	@$(PYTHON) -m venv $(UV_VENV)
	@$(UV_VENV)/bin/python -m pip install --quiet --disable-pip-version-check --only-binary :all: --require-hashes -r uv.txt

$(VENV)/.synced: uv.lock pyproject.toml operator/pyproject.toml job-image/pyproject.toml cli/pyproject.toml | $(UV)
	@echo "python: installing the locked packages into $(VENV)"
	@$(UV) sync --locked --quiet --python $(PYTHON)
	@touch $@

.PHONY: venv
venv: $(VENV)/.synced ## Install the locked Python packages into .venv

.PHONY: tools
tools: venv ## Build or find the pinned kubectl, kind and Helm, and Prometheus' promtool
	@$(BIN)/python -m testbed up --until tools

.PHONY: up
up: venv ## Start the testbed: cluster, Kafka, Cassandra, images, operator
	@$(BIN)/python -m testbed up

.PHONY: down
down: venv ## Stop what `up` started; keep images and caches
	@$(BIN)/python -m testbed down

.PHONY: status
status: venv ## Show what of the testbed is up
	@$(BIN)/python -m testbed status

.PHONY: local
local: venv ## Run real flights through a pipeline on this machine: needs Java 17 or 21, and neither Docker nor a cluster
	@$(BIN)/fencepost run --local examples/departures/pipeline.yaml

.PHONY: demo
demo: up ## Run real flights through Kafka, Spark and Cassandra, with the driver killed halfway
	@$(BIN)/python -m demo

.PHONY: demo-stateful
demo-stateful: up ## Run late and unordered views through the sessions example, with the driver killed halfway; compare its state too
	@$(BIN)/python -m demo sessions

.PHONY: check
check: venv ## Lint, types, layers, prose, charts: needs no cluster
	@$(BIN)/python -m testbed up --until linters
	@$(BIN)/ruff format --check $(SOURCES)
	@$(BIN)/ruff check $(SOURCES)
	@$(BIN)/mypy
	@$(BIN)/lint-imports --no-cache
	@"$$($(BIN)/python -m testbed env --tool vale)" --output=line $(PROSE)
	@for chart in fencepost spark-cluster; do "$$($(BIN)/python -m testbed env --tool helm)" lint --strict --quiet charts/$$chart; done

.PHONY: test
test: check ## Run every test on the real parts
	@$(BIN)/python -m testbed up --until tests
	@$(BIN)/pytest $(SIDE_BY_SIDE) tests --durations=12

.PHONY: test-gitops
test-gitops: venv ## Run all of the tests of alerts and GitOps, also those that take minutes, with newer versions too
	@$(BIN)/python -m testbed up --until gitops
	@$(BIN)/pytest -m '' tests/gitops tests/unit/charts/test_alerts.py tests/integration/monitoring --durations=30

.PHONY: test-unit
test-unit: tools ## Run the tests that need no cluster
	@$(BIN)/pytest $(SIDE_BY_SIDE) tests/unit tests/crash tests/security tests/simulation

.PHONY: simulate
simulate: venv ## Play random histories with faults: 100,000 on the operator, 10,000 on a stateful pipeline, 2,000 on two regions (HISTORIES, SEED)
	@$(if $(STATEFUL_SEED),,PYTHONPATH=tests $(BIN)/python -m simulation \
		$(if $(SEED),--seed $(SEED),--count $(HISTORIES) --coverage))
	@$(if $(SEED),,PYTHONPATH=tests $(BIN)/python -m simulation.stateful \
		$(if $(STATEFUL_SEED),--seed $(STATEFUL_SEED),--count $(STATEFUL_HISTORIES) --coverage))
	@$(if $(SEED)$(STATEFUL_SEED),,PYTHONPATH=tests $(BIN)/python -m simulation.failover --count $(FAILOVER_HISTORIES))

.PHONY: mutants
mutants: venv ## Break the core at random, and print what its tests do not find (MODULES, COUNT, SEED)
	@$(BIN)/python -m mutants $(MODULES) --count $(or $(COUNT),30) --seed $(or $(SEED),1)

.PHONY: replicas
replicas: venv ## Hold the fence on several nodes of Cassandra against 500 faults and 220 losses of datacenters (CAMPAIGNS, SEED)
	@$(BIN)/python -m testbed up --until cassandra-image
	@$(BIN)/python -m replicas $(CAMPAIGNS) --seed $(or $(SEED),1)

.PHONY: brokers
brokers: up ## Run a pipeline on three brokers of Kafka against 120 faults, with unclean elections (CAMPAIGNS, SEED)
	@$(BIN)/python -m brokers $(CAMPAIGNS) --seed $(or $(SEED),1)

.PHONY: campaign
campaign: up ## Play faults at random moments on the testbed, with users at work (MINUTES, FAULTS, SEED)
	@$(BIN)/python -m campaign --minutes $(or $(MINUTES),30) $(if $(FAULTS),--faults $(FAULTS)) --seed $(or $(SEED),1)

.PHONY: bench
bench: up ## Measure; assert nothing
	@$(BIN)/python -m bench all

.PHONY: soak
soak: up ## Lose a node for ten minutes, crash 500 executors, fill the memory, work off gigabytes of large records, run two hours of load with and without state; print each trend
	@$(BIN)/pytest -m long -s tests --ignore tests/gitops
	@$(BIN)/python -m soak

.PHONY: reference
reference: venv ## Write what follows from the code: crds/, docs/reference.md, decisions.md, metrics.md, job-image.md, a runbook for each reason, dashboards
	@$(BIN)/python -m generators.crds
	@$(BIN)/python -m generators.reference >docs/reference.md
	@$(BIN)/python -m generators.decisions
	@$(BIN)/python -m generators.metrics
	@$(BIN)/python -m generators.dashboards
	@$(BIN)/python -m generators.image_versions

.PHONY: docs
docs: venv ## Write the documentation as a site, into build/site: `python3 -m http.server -d build/site` shows it
	@NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --quiet --strict
	@echo "docs: build/site/index.html"

.PHONY: benchmarks
benchmarks: venv ## Write docs/benchmarks.md and its plots from what `make bench` measured
	@$(BIN)/python -m generators.benchmarks

.PHONY: pictures
pictures: venv ## Write the pictures of docs/metrics.md, from a run of a few minutes on the testbed
	@$(BIN)/python -m testbed up --until pictures
	@$(BIN)/python -m generators.pictures record
	@$(BIN)/python -m generators.pictures draw

.PHONY: release-dry-run
release-dry-run: venv ## Make and verify what a release consists of, and publish nothing: build/release
	@$(BIN)/python -m testbed up --until release
	@UV=$(UV) $(BIN)/python -m release dry-run

.PHONY: lock
lock: venv ## Update uv.lock
	@$(UV) lock --upgrade

.PHONY: clean
clean: ## Remove the testbed with its images and caches, and .venv
	@if test -x $(BIN)/python; then $(BIN)/python -m testbed down --all; fi
	@rm -rf $(VENV) .cache .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis
