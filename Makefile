# One command each: `make run` to use it, `make test` to check everything.

# Some shells export HOST as the machine's name or type, so only `make run HOST=…` counts.
ifneq ($(origin HOST),command line)
HOST := $(or $(FIRSTTOKEN_HOST),127.0.0.1)
endif
PORT ?= $(or $(FIRSTTOKEN_PORT),8000)
VENV ?= .venv

BIN := $(VENV)/bin
export VENV
export PYRIGHT_PYTHON_IGNORE_WARNINGS := 1

.DEFAULT_GOAL := help
.PHONY: help install install-test install-bench run test check format bench calibrate validate lock clean

help: ## show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "%-14s %s\n", $$1, $$2}' Makefile

install: ## put everything that running needs into .venv
	@.ci/install

install-test: ## that, and the tools of the tests (Chromium and fonts through apt)
	@.ci/install test

run: install ## serve on http://HOST:PORT (127.0.0.1:8000)
	$(BIN)/python -m webapp --host $(HOST) --port $(PORT)

test: check ## install, check and run all tests
	@.ci/test

check: install-test ## format, lint, types, floors and JavaScript syntax; changes nothing
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/lint-imports
	$(BIN)/pyright
	@.ci/check-js

format: install-test ## format and fix what can be fixed
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

install-bench: ## build llama.cpp as a further peer of `make bench`: some minutes, once
	@.ci/install-bench

bench: install-test ## tokens per second beside transformers, llama.cpp and the roofline; what pays
	$(BIN)/python -m tests.benchmarks
	$(BIN)/python -m tests.benchmarks.pays
	$(BIN)/python -m tests.benchmarks.step_profile
	$(BIN)/python -m tests.benchmarks.serving
	$(BIN)/python -m tests.benchmarks.estimates

calibrate: install ## measure this machine's bandwidth and FLOP/s
	$(BIN)/python -m engine calibrate

validate: install ## score the simulator against published measurements
	$(BIN)/python -m engine.simulator.validation

lock: ## resolve the dependencies again and write the lock files
	@.ci/lock

clean: ## remove the environment and all caches
	rm -rf $(VENV) build dist *.egg-info .pytest_cache .hypothesis .ruff_cache .import_linter_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
