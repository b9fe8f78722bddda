# `make run` and `make test` set up everything they need. VENV, PYTHON and TOOLMILL_* are yours to set.
SHELL := /bin/bash
VENV ?= .venv
# Test files run beside each other. Three fifths of their time is waiting: two cores take six workers
# (some .8 GB each), with which a tenth of the cores' time was idle where four left a quarter.
WORKERS ?= 6
# Where an image forbids bytecode, each process compiles all it imports again: a third of an import.
unexport PYTHONDONTWRITEBYTECODE
export TOOLMILL_HOME ?= $(CURDIR)/var
export GX_ANALYTICS_ENABLED := false
export TOKENIZERS_PARALLELISM := false
export HF_HUB_DISABLE_TELEMETRY := 1
BIN := $(VENV)/bin

.PHONY: help setup run dev test test-all lint format bench caller retriever lock clean
help: ## this list
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*##/:/'

setup: ## virtual environment, Python packages, Chromium, bubblewrap; Node is checked
	@VENV=$(VENV) scripts/setup.sh

run: setup ## one run end to end on the demo marketplaces (DAY=2 for the second day), then a summary
	@$(BIN)/toolmill run $(if $(DAY),--day $(DAY))

dev: setup ## the Dagster UI with the demo marketplaces up, on http://127.0.0.1:3000
	@$(BIN)/toolmill dev

test: setup ## the tests (about 7 minutes on 2 cores)
	$(BIN)/python -m tests.support.workers tests -n $(WORKERS) --dist loadfile --no-loadscope-reorder

test-all: setup ## the tests and the slow ones, those of Ray, Postgres and S3 among them
	$(BIN)/pip install -q --disable-pip-version-check --require-hashes --no-deps \
	  -r deploy/requirements.lock -r tests/requirements.lock
	HYPOTHESIS_PROFILE=random $(BIN)/python -m pytest tests -m "not live"

lint: setup ## ruff, import laws, types
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/pyright

format: setup ## format in place
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: setup ## measurements as ratios; tables on stdout
	@for script in benchmarks/bench_*.py; do name=$$(basename $$script .py); echo "== $$name"; \
	  $(BIN)/python -m benchmarks.$$name || exit 1; done

retriever: setup ## train the shipped tool retriever again on the query sets in SETS (about an hour)
	$(BIN)/python -m benchmarks.retriever_fit --write $(if $(SETS),--data "$(SETS)")

caller: setup ## train the shipped caller again on the corpus in DATA (45 minutes on one core)
	$(BIN)/python -m benchmarks.caller_fit --write --data "$(DATA)" --home "$(TOOLMILL_HOME)"

lock: ## requirements.lock and constraints.txt again from pyproject.toml (UPGRADE=1: newest versions)
	@VENV=$(VENV) UPGRADE=$(UPGRADE) scripts/lock.sh

clean: ## forget all that was made (not the virtual environment)
	@if [ -d "$(TOOLMILL_HOME)" ] && [ ! -d "$(TOOLMILL_HOME)/tables" ] \
	  && ! grep -qs '"layout"' "$(TOOLMILL_HOME)/home.json"; then \
	  echo "$(TOOLMILL_HOME): Toolmill made nothing there; remove it yourself if it is to go" >&2; exit 1; fi
	rm -rf "$(TOOLMILL_HOME)"
