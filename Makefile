SHELL := /bin/bash
PY ?= python3
VENV := .venv
BIN := $(VENV)/bin
STORE ?= sqlite
REPO ?=
export PYTHONDONTWRITEBYTECODE := 1

.PHONY: install up demo test check bench torture soak audit clean help

help: ## what can be made
	@grep -E '^[a-z]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 12

$(VENV)/.installed: pyproject.toml constraints.txt
	@command -v $(PY) >/dev/null || { echo "Python is missing: install python3 (3.11 or newer), or say PY=/path/to/python3"; exit 1; }
	@$(PY) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "$(PY) is older than 3.11: say PY=/path/to/a/newer/python3"; exit 1; }
	@$(PY) -m venv $(VENV) || { echo "The venv module is missing: apt-get install python3-venv"; exit 1; }
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --upgrade 'pip>=25.1' -c constraints.txt
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt --group dev -e .
	@touch $@

install: $(VENV)/.installed ## the environment, in .venv

up: install ## the main job on an embedded store: STORE=sqlite|postgres|surreal, REPO=path or URL
	$(BIN)/dramaturg up --store $(STORE) $(if $(REPO),--repo "$(REPO)")

demo: install ## the same, ends by itself once everything was shown
	$(BIN)/dramaturg up --demo --store $(STORE) $(if $(REPO),--repo "$(REPO)")

check: install ## lint (of security, too), formatting, types, arrows between rooms
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/python -m pytest -q tests/style

test: check ## every test
	$(BIN)/python -m pytest -n 4 --dist worksteal

bench: install ## speed beside plain Dramatiq and peers, as ratios in one run: OPTIONS="--rounds 1 --crowd 0"
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt --group dev -e '.[bench]'
	$(BIN)/python -m ops.bench $(OPTIONS)

torture: install ## faults on real processes: STORE=..., MINUTES=10, SEED=..., REPORT=file, OPTIONS="--cluster --pooler"; or SEEDS=from-to
	$(if $(SEEDS),$(BIN)/python -m tests.simulation --store $(STORE) --seeds $(SEEDS),$(BIN)/python -m ops.torture --store $(STORE) --minutes $(or $(MINUTES),10) $(if $(SEED),--seed $(SEED)) $(if $(REPORT),--report "$(REPORT)") $(OPTIONS))

soak: install ## what may not grow: STORE=..., JOBS=200000, RESTARTS=200, REPORT=file
	$(BIN)/python -m ops.torture.soak --store $(STORE) --jobs $(or $(JOBS),200000) --restarts $(or $(RESTARTS),200) $(if $(REPORT),--report "$(REPORT)")

audit: install ## known weaknesses of the pinned packages; asks an advisory source on the network
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt '.[audit]'
	$(BIN)/python -m pip_audit --requirement constraints.txt --no-deps --disable-pip --strict || { echo "Weaknesses were found, or some packages could not be looked up: see above."; exit 1; }

clean: ## the environment and the data directory
	rm -rf $(VENV) .dramaturg .pytest_cache .mypy_cache .ruff_cache .hypothesis
