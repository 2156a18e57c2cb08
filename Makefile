# All that is done with this project, one word each. `make` alone lists the words.
#
# Both `make run` and `make test` set up what they need first: .venv from the locked requirements,
# and for the tests a real Kafka broker and a browser. The second time that takes a blink.

SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help

# Words of the command line go through: make run ARGS="--config my.yaml"
ARGS ?=
SEED ?=
BIN := .venv/bin

# What CI takes is counted from here, over all scripts of a `make test-all`.
export STREAMNB_BEGAN_S := $(shell date +%s)

.PHONY: help
help: ## Show this list
	@printf 'streamnb: naive Bayes that learns from a stream, one message at a time.\n\n'
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-11s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)
	@printf '\nMore for a command in ARGS:  make run ARGS="--help"   make test ARGS="-k gaussian"\n'

.PHONY: setup
setup: ## Set up everything for run and test: .venv, tools, the test broker, a browser
	@scripts/setup.sh test

.PHONY: run
run: ## Learn from the made-up stream and show it live; ARGS go to `streamnb run`
	@scripts/setup.sh run
	@exec $(BIN)/streamnb run $(ARGS)

.PHONY: stack
stack: setup ## Run broker, replayer, daemon and Prometheus until Ctrl-C; ARGS go to scripts/stack.py
	@$(BIN)/python -m scripts.stack $(ARGS)

.PHONY: test
test: setup ## Run linters, types, import contracts and the tests; ARGS go to pytest
	@scripts/test.sh $(ARGS)

.PHONY: test-all
test-all: test ## Run `make test`, then what takes longer; SEED=1 replays the run of a seed
	@scripts/test_long.sh $(SEED)

.PHONY: boundscheck
boundscheck: setup ## Test all kernels with checked indices, a deep run; ARGS go to pytest
	@scripts/test_boundscheck.sh $(ARGS)

.PHONY: campaigns
campaigns: setup ## Try for hours to break the daemon's promises, into docs/reliability.md; ARGS names one
	@$(BIN)/python -m tests.campaigns $(or $(ARGS),all) --json build/campaigns.json
	@$(BIN)/python -m tests.campaigns publish build/campaigns.json

.PHONY: simulate
simulate: setup ## Run 10,000 seeds of the daemon on a simulated log, clock, disk and scheduler, and keep what fails; ARGS go to it
	@$(BIN)/python -m tests.simulation $(or $(ARGS),--seeds 10000 --keep)

.PHONY: lint
lint: setup ## Check style, formatting, types and import contracts
	@scripts/lint.sh

.PHONY: format
format: setup ## Format the code and mend what ruff can mend
	$(BIN)/ruff check --quiet --fix .
	$(BIN)/ruff format --quiet .

.PHONY: benchmark
benchmark: ## Measure speed and memory, into build/ and the documents; ARGS names some cases, for build/ alone
	@scripts/setup.sh bench
	@$(BIN)/python -m benchmarks --json build/benchmark.json --plots build $(ARGS)
	@$(if $(ARGS),,$(BIN)/python -m benchmarks publish build/benchmark.json)

.PHONY: docs
docs: ## Build the documentation site into build/site, to be opened there or served from any place
	@scripts/setup.sh docs
	@$(BIN)/python -m scripts.website $(ARGS)

.PHONY: pictures
pictures: setup ## Take new pictures of the guides, in the tests' browser, into docs/pictures
	@$(BIN)/python -m tests.browser.pictures $(ARGS)

.PHONY: lock
lock: ## Write new requirements/*.txt; ARGS="--upgrade" takes the newest of everything
	@scripts/setup.sh run
	@scripts/lock.sh $(ARGS)

.PHONY: clean
clean: ## Remove .venv, caches and the broker's jars; what was learned (state/) stays
	rm -rf .venv .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache \
	    .coverage coverage.xml dist tests/broker/libs
	find streamnb consumers tests benchmarks scripts -name __pycache__ -prune -exec rm -rf {} +
