# Everything a person does with this repository. Every target makes the environment it needs,
# from nothing but Python 3.11 or newer, and makes it again when the lock changes.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
EXTRAS := embedded,otlp,examples,dev

# A pip that only installs needs to say nothing but what goes wrong.
PIP_INSTALL := -m pip install --quiet --disable-pip-version-check

.DEFAULT_GOAL := help
.PHONY: help demo test check bench chaos mutants lock

help: ## Say what can be made
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "make %-8s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

demo: $(READY) ## Watch this very machine with actors; SECONDS=20 ends it by itself
	$(BIN)/vigil demo $(if $(SECONDS),--seconds $(SECONDS))

test: $(READY) ## Run every test, on real servers that it starts and stops
	$(BIN)/python -m pytest

check: $(READY) ## Hold the style: format, lint, types, import directions, tidiness
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python -m pytest --quiet tests/tidy
	$(BIN)/python tests/tidy/sizes.py

bench: $(READY) ## Measure this machine
	$(BIN)/python bench/episodes.py

chaos: $(READY) ## Break a cluster while it works; RUNS=10 for longer, SEED=7 to have one again
	$(BIN)/python -m tests.chaos --runs $(or $(RUNS),3) $(if $(SEED),--seed $(SEED))

mutants: $(READY) ## Switch off each guard and see that a test notices
	$(BIN)/python tests/mutants.py

lock: ## Write requirements.lock anew, from the newest versions that pyproject.toml allows
	@$(require_python)
	@set -e; venv=$$(mktemp -d); trap 'rm -rf "$$venv"' EXIT; \
	$(PYTHON) -m venv "$$venv"; \
	"$$venv/bin/python" $(PIP_INSTALL) '.[$(EXTRAS)]'; \
	"$$venv/bin/python" -m pip freeze --exclude vigil-engine > "$$venv/lock"; \
	if grep -vE '^[A-Za-z0-9._-]+==[A-Za-z0-9.+!-]+$$' "$$venv/lock"; then \
		echo 'make lock: the lines above are not name==version; nothing was written' >&2; exit 1; \
	fi; \
	cp "$$venv/lock" requirements.lock; \
	echo "requirements.lock: $$(wc -l < requirements.lock) packages"

$(READY): pyproject.toml requirements.lock
	@$(require_python)
	@$(BIN)/python -m pip --version >/dev/null 2>&1 || $(PYTHON) -m venv --clear $(VENV)
	$(BIN)/python $(PIP_INSTALL) --requirement requirements.lock
	$(BIN)/python $(PIP_INSTALL) --no-deps --editable .
	@touch $@

# One line of advice instead of a traceback from deep inside pip.
define require_python
$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || { \
	echo "Vigil needs Python 3.11 or newer; '$(PYTHON)' is $$($(PYTHON) --version 2>&1 || true)." >&2; \
	echo "Name another one: make PYTHON=/path/to/python3.12 $(or $(MAKECMDGOALS),check)" >&2; \
	exit 1; }
endef
