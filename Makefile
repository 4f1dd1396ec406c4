# All commands of the project. `make run` and `make test` need only Python 3.11 or newer, make and git.

PYTHON ?= python3
# Arguments for pytest or the benchmarks: make test ARGS="tests/tokens -k forged"
ARGS ?=
# Processes that run tests. Four keep two cores busy, because many tests wait for other processes; any number works.
WORKERS ?= 4
# The tool that `make walk` traces.
CALL ?= next_activity
# How many mutants `make mutants` runs, and which; ARGS names packages or files: make mutants ARGS="tokens engine/moves.py"
SAMPLE ?= 20
SEED ?= 1
BIN := .venv/bin

export PYTHON

.DEFAULT_GOAL := help
.PHONY: help run test soak lint format bench walk mutants docs requirements changelog pins clean

help: ## List these commands
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "  make %-13s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

run: ## Install Fidelio into .venv, show the tour and run a demo agent (Ctrl-C ends it)
	@scripts/setup.sh run
	@trap : INT; $(BIN)/fidelio tour && $(BIN)/fidelio up --demo || [ $$? -eq 130 ]  # Ctrl-C is how it ends, not an error

test: ## Run the tests (ARGS="..." is passed to pytest)
	@scripts/setup.sh test
	@scripts/parts.sh
	@PYTHONDONTWRITEBYTECODE= $(BIN)/pytest -m "not soak" -n $(WORKERS) $(ARGS)  # compiling the tests in every process takes longer

soak: ## Run the long tests too
	@scripts/setup.sh test
	@scripts/parts.sh
	@$(BIN)/pytest --timeout 3600 $(ARGS)

lint: ## Check style, types, layers, sizes, vocabulary, changelog and docs
	@scripts/setup.sh lint
	@scripts/lint.sh

format: ## Fix style with ruff where it can
	@scripts/setup.sh lint
	@$(BIN)/ruff check --fix --quiet
	@$(BIN)/ruff format --quiet

bench: ## Measure, and fail when a promised bound is exceeded
	@scripts/setup.sh test
	@$(BIN)/python -m benchmarks $(ARGS)

walk: ## Show the files that a tool call enters, in order: make walk CALL=next_activity
	@scripts/setup.sh run
	@$(BIN)/python -m scripts.walk $(CALL)

mutants: ## Change the source in small ways and list the changes that no test notices (SAMPLE, SEED, ARGS="tokens")
	@scripts/setup.sh test
	@$(BIN)/python -m scripts.mutants --sample $(SAMPLE) --seed $(SEED) $(ARGS)

docs: ## Generate the reference pages
	@scripts/setup.sh run
	@$(BIN)/python -m scripts.generate_docs
	@$(BIN)/python -m scripts.check_docs

requirements: ## List every requirement and the number of tests that prove it
	@scripts/setup.sh run
	@$(BIN)/python -m scripts.requirements

changelog: ## Assemble the changelog of a release: make changelog VERSION=0.2.0
	@scripts/setup.sh run
	@$(BIN)/python -m scripts.changelog assemble $(VERSION)

pins: ## Resolve constraints.txt again within the bounds of pyproject.toml
	@scripts/setup.sh lint
	@$(BIN)/python -m scripts.pins

clean: ## Remove .venv and all build and cache files
	@rm -rf .venv .build .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis dist
	@find src tests scripts benchmarks -name __pycache__ -type d -prune -exec rm -rf {} +
