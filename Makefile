# Two commands for a newcomer: `make demo` and `make test`. Everything else is a part of them.
# PYTHON is any Python >= 3.11; it is used only to create .venv.

# The first that runs: a version manager leaves names on PATH for versions that are not installed.
PYTHON ?= $(shell for p in python3.11 python3.12 python3.13 python3; do \
  $$p -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo $$p && break; done)
BIN := .venv/bin
PYTEST_ARGS ?=
# Two processes are faster than one from two cores up; more does not pay on the machines the checks are sized for.
WORKERS ?= 2
# Tests start dozens of processes; each would compile the sources it imports anew.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help venv demo test check lint types imports docs pytest explore format clean

help:  ## this list
	@awk -F ':.*## ' '/^[a-z]+:.*## /{printf "make %-8s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

venv:  ## create .venv and install everything into it
	@test -n "$(PYTHON)" || { echo "TileHAL needs Python 3.11 or newer on PATH, or make PYTHON=/path/to/python"; exit 1; }
	@$(PYTHON) scripts/bootstrap.py

demo: venv  ## compile three kernels for every target, run them on the CPU, compare with torch
	@$(BIN)/python -m demo

test: check pytest  ## every check and every test

check: lint types imports docs  ## the checks that run no test

lint: venv
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: venv
	$(BIN)/mypy

imports: venv
	$(BIN)/lint-imports --no-logo

docs: venv  ## build the documentation into build/docs; a warning is an error
	$(BIN)/mkdocs build --strict --site-dir build/docs

pytest: venv
	$(BIN)/python -m pytest -n $(WORKERS) --dist worksteal $(PYTEST_ARGS)

explore: venv  ## look for new counterexamples: ten times as many new examples, every size and type
	HYPOTHESIS_PROFILE=explore $(BIN)/python -m pytest -n $(WORKERS) --dist worksteal -m 'hypothesis or wide' $(PYTEST_ARGS)

format: venv  ## apply the formatter and the safe lint fixes
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

clean:  ## remove .venv and everything generated
	rm -rf .venv build dist demo-out *.egg-info backends/*/*.egg-info backends/*/build .pytest_cache .mypy_cache .ruff_cache
