# Everything a person does here has a target; `make help` lists them.
SHELL := /bin/bash
.DEFAULT_GOAL := help
VENV := .venv
PY := $(VENV)/bin/python
SANDBOX_ENV := .build/sandbox/env
IMAGE_PREFIX ?= localhost:5000/slurm-bridge
OVERLAY ?= base
ARGS ?=

.PHONY: help
help: ## list the targets
	@grep -hE '^[a-z][a-z0-9-]*:.*## ' $(MAKEFILE_LIST) | sed -E 's/:[^#]*## /\t/' | awk -F'\t' '{printf "  %-22s %s\n", $$1, $$2}'

$(VENV)/.ready: requirements.lock pyproject.toml
	@bash deploy/images/bootstrap.sh python
	@test -x $(PY) || python3 -m venv $(VENV)
	@$(VENV)/bin/python -m pip -q install --disable-pip-version-check uv
	@$(VENV)/bin/uv pip sync -q --python $(PY) --require-hashes requirements.lock
	@$(VENV)/bin/uv pip install -q --python $(PY) --no-deps -e . uv
	@touch $@

.PHONY: venv lock
venv: $(VENV)/.ready ## the Python environment of this checkout, from requirements.lock
lock: ## renew requirements.lock (hashes, no hosts)
	$(VENV)/bin/uv pip compile -q --universal --generate-hashes --no-emit-index-url --no-annotate --no-header --extra dev --python-version 3.11 pyproject.toml -o requirements.lock

.PHONY: docker images
docker: ## a running Docker engine (installed on Debian as root when absent)
	@bash deploy/images/bootstrap.sh docker
images: venv docker ## build every image (what is built already is skipped)
	@$(PY) deploy/images/build.py

.PHONY: sandbox sandbox-up sandbox-down tour
sandbox: venv docker ## a whole platform on this machine: Kubernetes, Slurm, the bridge, then the tour
	@$(PY) deploy/sandbox/sandbox.py up
	@$(MAKE) --no-print-directory sandbox-deploy
	@$(MAKE) --no-print-directory tour
sandbox-up: venv docker ## the sandbox's Kubernetes only, without the bridge
	@$(PY) deploy/sandbox/sandbox.py up
.PHONY: sandbox-deploy
sandbox-deploy: venv ## `make deploy` onto the sandbox
	@set -a; . $(SANDBOX_ENV); set +a; $(MAKE) --no-print-directory deploy OVERLAY=sandbox
sandbox-down: venv ## remove the sandbox, leave nothing behind
	@$(PY) deploy/sandbox/sandbox.py down
tour: venv ## an sbatch job, a Deployment and a kubectl Job on the sandbox, with what each did
	@set -a; . $(SANDBOX_ENV); set +a; $(PY) deploy/sandbox/tour.py

.PHONY: deploy undeploy
deploy: venv ## build, push to IMAGE_PREFIX and deploy to the current kubectl context
	@$(PY) deploy/deploy.py deploy --image-prefix $(IMAGE_PREFIX) --overlay $(OVERLAY)
undeploy: venv ## take the bridge out without touching running work
	@$(PY) deploy/deploy.py undeploy --overlay $(OVERLAY)

.PHONY: check lint types layers unit
check: venv lint types layers unit ## before each commit: lint, types, layers, unit and property tests (< 2 minutes)
lint:
	@$(VENV)/bin/ruff check .
types:
	@$(VENV)/bin/mypy
layers:
	@$(VENV)/bin/lint-imports
unit:
	@$(PY) -m pytest -q -n 2 tests/unit tests/property

.PHONY: test-property-long
test-property-long: venv ## 300,000 decisions against a naive second implementation, then each rule broken on purpose
	@$(PY) -m tests.property.oracle_long $(ARGS)
	@$(PY) -m pytest -q -n 2 -m mutants tests/property/mutants

.PHONY: test test-contract test-integration test-e2e
test: check test-contract test-integration test-e2e ## every tier: unit, property, contract, integration, e2e
test-contract: images ## contract suites: each port's fake and its real thing
	@$(PY) -m pytest -q -n 2 --dist loadfile tests/contract
test-integration: images ## real slurmctld, real kube-apiserver, in containers of ours
	@$(PY) -m pytest -q -n 2 --dist loadfile tests/integration
.PHONY: test-takeovers
test-takeovers: images ## two bridges on PostgreSQL: the leader is killed or stopped 50 times under load
	@TAKEOVERS=50 $(PY) -m pytest -q -s tests/integration/test_two_bridges.py
test-e2e: sandbox-up ## the whole platform: what `make sandbox` does, the tour as one of the tests
	@$(MAKE) --no-print-directory sandbox-deploy
	@set -a; . $(SANDBOX_ENV); set +a; $(PY) -m pytest -q tests/e2e

.PHONY: bench replay bench-latency
bench: venv ## ledger and planner figures without a cluster (ARGS="--output json", "--tenth", "--only a")
	@$(PY) -m tests.bench $(ARGS)
replay: venv ## 60 jobs and 25 pods of public traces on the sandbox, sampled independently
	@set -a; . $(SANDBOX_ENV); set +a; $(PY) -m tests.e2e.replay $(ARGS)
bench-latency: venv ## sbatch -> running and pod -> bound, with and without the bridge
	@set -a; . $(SANDBOX_ENV); set +a; $(PY) -m tests.bench.latency $(ARGS)
