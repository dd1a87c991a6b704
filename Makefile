# The commands of this project. A newcomer needs two: `make demo` to see it work, `make test` to see it proven.
PYTHON ?= python3
BIN := .venv/bin
INSTALLED := .venv/.installed

.PHONY: help install check test demo serve protos deploy-files exactness fuzz faults gpu-check clean

help:  ## Show this list
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  make %-12s %s\n", $$1, $$2}'

install: $(INSTALLED)  ## Make .venv and install the project with what tests need

$(INSTALLED): pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv
	$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]'
	@touch $@

check: $(INSTALLED)  ## ruff, mypy, import rules, buf lint, stale stubs
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-cache
	$(BIN)/buf lint
	$(BIN)/python protos/generate.py --check

test: check  ## check, then every test; warnings are errors
	$(BIN)/python -m pytest

demo: $(INSTALLED)  ## Train a small model on a synthetic shop, serve it, ask it
	@$(BIN)/recall-service demo

serve: $(INSTALLED)  ## Keep the demo's server up and print how to call it
	@$(BIN)/recall-service demo --stay

protos: $(INSTALLED)  ## Regenerate recall_service/stubs from protos/
	$(BIN)/python protos/generate.py

deploy-files: $(INSTALLED)  ## Regenerate the SLO rules and the dashboard of deploy/
	$(BIN)/python -m deploy.generate

exactness: $(INSTALLED)  ## The engine against slow oracles on random catalogues
	@$(BIN)/python -m benchmarks.exactness

fuzz: $(INSTALLED)  ## A million hostile inputs to every reader of bytes, in some ten minutes
	@$(BIN)/python -m tests.fuzz

faults: $(INSTALLED)  ## Every fault the service must stand, long: real servers, a real Redis; 12 minutes
	@$(BIN)/python -m tests.faults --full

gpu-check:  ## Kernels and engine on an NVIDIA GPU, checked and timed; installs nothing
	@$(if $(wildcard $(BIN)/python),$(BIN)/python,$(PYTHON)) -m benchmarks.gpu_check

clean:  ## Remove the virtual environment, the demo and every cache
	rm -rf .venv .demo .pytest_cache .mypy_cache .ruff_cache .hypothesis *.egg-info
