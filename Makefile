# Everything a person does with this repository. Every target makes the environment it needs,
# from nothing but Python 3.11 or newer, and makes it again when the lock changes.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
BENCH_VENV := .venv-bench
BENCH_READY := $(BENCH_VENV)/.ready
DEMO_VENV := .venv-demo
DEMO_READY := $(DEMO_VENV)/.ready
PEERS := .bench-peers
PEERS_READY := $(PEERS)/.ready
EXTRAS := demo,otlp,agents,mcp,web,oidc,s3,dev

# Tests that wait leave room for others, so more run at a time than a small machine has processors.
# The longest files are the first.
PYTEST := $(BIN)/python -m pytest --dist loadfile --no-loadscope-reorder --numprocesses

# Tests at their longest, those that `make test` leaves out among them.
LONG := $(BIN)/python -m pytest -m ""

# Tests in which a real clock counts. They mostly wait for it: those that compute would be in the way.
TIMED := $(addprefix tests/,attack chaos contracts gates/test_on_a_server.py \
	acceptance/test_finding_expiry.py acceptance/test_gates_without_nodes.py)

# What `make check` runs: style, and what mypy says, which takes ten times as long without its cache.
CHECKED := tests/tidy tests/typed

# What is run apart from the others.
APART := $(TIMED) $(CHECKED)

# Python keeps what it compiled: the suite starts hundreds of programs, and none compiles it anew.
unexport PYTHONDONTWRITEBYTECODE

# Tests that play a story once for each moment at which a node may die in it.
CRASHES := $(addprefix tests/,gates/test_crashes.py testing/test_guides.py engine/execution/test_every_crash.py \
	$(addprefix engine/outputs/,test_outputs.py test_outputs_left.py test_outputs_called_off.py))

# A pip that only installs needs to say nothing but what goes wrong.
PIP_INSTALL := -m pip install --quiet --disable-pip-version-check

.DEFAULT_GOAL := help
.PHONY: help demo test check alone attack bench bench-peers bench-history bench-report chaos chaos-cluster contracts crashes screenshots limits nightly signals simulation workflows walk mutants pythons changelog lock

help: ## Say what can be made
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-13s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

demo: $(DEMO_READY) ## Watch this very machine with actors, until Ctrl-C; SECONDS=20 ends it by itself
	$(DEMO_VENV)/bin/vigil demo $(if $(SECONDS),--seconds $(SECONDS))

test: $(READY) ## Run the tests, on real servers that it starts and stops; make nightly runs what takes longer
	$(PYTEST) 5 $(APART:%=--ignore=%)
	$(PYTEST) 6 $(TIMED)

nightly: $(READY) ## Run every test at its longest: those that make test leaves out, and more of the others
	VIGIL_TEST_SIZE=full $(PYTEST) 3 -m "" --timeout 3600 $(APART:%=--ignore=%)
	VIGIL_TEST_SIZE=full $(PYTEST) 3 -m "" --timeout 3600 $(TIMED)

check: $(READY) ## Hold the style: format, lint, types, import directions, tidiness
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy --num-workers 2
	$(BIN)/lint-imports
	$(BIN)/python -m pytest --quiet --numprocesses 2 --dist worksteal $(CHECKED)
	$(BIN)/python tests/tidy/sizes.py

alone: $(READY) ## Run each file of tests by itself, and say what processor time it takes; PATHS, SINCE
	$(BIN)/python -m tests.alone $(PATHS) $(if $(SINCE),--since $(SINCE))

bench: $(READY) ## Measure Vigil on this machine, 12 minutes; QUICK=1 sees that it works
	$(BIN)/python -m bench engine $(if $(QUICK),--quick)

bench-peers: $(READY) $(PEERS_READY) ## Measure it beside DBOS and Restate, 9 minutes
	$(BIN)/python -m bench peers $(if $(QUICK),--quick)

bench-history: $(READY) ## Measure it with a million retained episodes, many actors and so on, 30 minutes
	$(BIN)/python -m bench history $(if $(QUICK),--quick)

bench-report: $(BENCH_READY) ## Write the newest results into docs/performance.md
	$(BENCH_VENV)/bin/python -m bench.report

chaos: $(READY) ## Break a cluster while it works; RUNS=10 for longer, SEED=7 to have one again
	$(BIN)/python -m tests.chaos --runs $(or $(RUNS),3) $(if $(SEED),--seed $(SEED))

chaos-cluster: $(READY) ## Break three NATS servers and three nodes while they work, and compare every replica; RUNS, SEED
	$(BIN)/python -m tests.cluster --runs $(or $(RUNS),3) $(if $(SEED),--seed $(SEED))

attack: $(READY) ## Kill, stop and freeze nodes at the messages about an episode; FAULTS=1000, STORY, SEED, and POINT with FAULT
	$(BIN)/python -m tests.attack $(if $(FAULTS),--faults $(FAULTS)) $(if $(STORY),--story $(STORY)) \
		$(if $(POINT),--point $(POINT)) $(if $(FAULT),--fault $(FAULT)) $(if $(SEED),--seed $(SEED))

children: $(READY) ## Kill all nodes after each commit of an episode that has 40 children
	VIGIL_TEST_SIZE=children $(LONG) tests/acceptance/test_children.py

limits: $(READY) ## Hold the limits of a cluster whose nodes die, with 10,000 events; EVENTS=3000 for fewer
	VIGIL_TEST_SIZE="limited=$(or $(EVENTS),10000) shared historic" $(LONG) --timeout 600 $(addprefix tests/acceptance/, \
		test_limits.py test_two_nodes.py test_gates_without_nodes.py)

signals: $(READY) ## Send bursts of signals to nodes that die, for 1,000 episodes; EPISODES=300 for fewer
	VIGIL_TEST_SIZE=signalled=$(or $(EPISODES),1000) $(LONG) --timeout 1200 tests/acceptance/test_signals.py

workflows: $(READY) ## Run workflows of 50 steps on nodes that die, 200 instances; INSTANCES=50 for fewer
	VIGIL_TEST_SIZE=instances=$(or $(INSTANCES),200) $(LONG) --timeout 1200 tests/acceptance/test_workflows.py

walk: $(READY) ## Say how many files of the engine an episode enters; FILES=1 lists them, JSON=1 for programs
	$(BIN)/python -m tests.walk $(if $(FILES),--files) $(if $(JSON),--json)

contracts: $(READY) ## Hold every port to its contract in every combination of what can be behind it
	VIGIL_TEST_SIZE=contracts $(LONG) tests/contracts

screenshots: $(READY) ## Take a picture of every screen of the console, with the browser that is here; FOLDER
	$(BIN)/python -m tests.web.screenshots $(or $(FOLDER),build/screenshots)

crashes: $(READY) ## Have a node die at every moment of a story; make test does so at every 13th
	VIGIL_TEST_SIZE=moments $(LONG) --numprocesses 2 --dist worksteal $(CRASHES)

simulation: $(READY) ## Simulate worlds in which everything goes wrong, SEEDS=1000 of them; make test does 20
	VIGIL_TEST_SIZE=worlds=$(or $(SEEDS),1000) $(LONG) --numprocesses 2 --dist worksteal tests/simulation/test_survival.py
	VIGIL_TEST_SIZE=retained $(LONG) tests/projections/test_years.py

mutants: $(READY) ## Switch off each guard and see that a test notices; NEW=1 leaves out what was killed as it is
	$(BIN)/python -m tests.mutation $(if $(NEW),--new)

pythons: ## Try every Python that the metadata names, of those that are here; PATHS names other tests
	$(PYTHON) -m tests.pythons

changelog: $(READY) ## Make the section VERSION=0.2.0 of CHANGELOG.md of the fragments in changes/, and remove them
	$(BIN)/towncrier build --yes --version $(or $(VERSION),$(error VERSION=… is missing))

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

# What a demo needs, at the locked versions, and none of the tools that check and test.
$(DEMO_READY): pyproject.toml requirements.lock
	@$(require_python)
	@$(DEMO_VENV)/bin/python -m pip --version >/dev/null 2>&1 || $(PYTHON) -m venv --clear $(DEMO_VENV)
	$(DEMO_VENV)/bin/python $(PIP_INSTALL) --constraint requirements.lock --editable '.[demo]'
	@touch $@

# What draws the plots; it needs nothing of ours but the results.
$(BENCH_READY): bench/requirements.lock
	@$(require_python)
	$(PYTHON) -m venv --clear $(BENCH_VENV)
	$(BENCH_VENV)/bin/python $(PIP_INSTALL) --requirement bench/requirements.lock
	@touch $@

# The peers, each in an environment of its own. Restate's server is a binary in an npm package.
$(PEERS_READY): bench/peers/dbos.lock bench/peers/restate.lock bench/peers/package.json
	@$(require_python)
	@command -v npm >/dev/null || { echo 'make bench-peers: Restate comes with npm; install it' >&2; exit 1; }
	@mkdir -p $(PEERS)
	@set -e; for peer in dbos restate; do \
		$(PYTHON) -m venv --clear $(PEERS)/$$peer; \
		$(PEERS)/$$peer/bin/python $(PIP_INSTALL) --requirement bench/peers/$$peer.lock; \
	done
	cp bench/peers/package.json $(PEERS)/
	cd $(PEERS) && npm install --no-package-lock --no-audit --no-fund --loglevel=error
	@touch $@

# One line of advice instead of a traceback from deep inside pip.
define require_python
$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || { \
	echo "Vigil needs Python 3.11 or newer; '$(PYTHON)' is $$($(PYTHON) --version 2>&1 || true)." >&2; \
	echo "Name another one: make PYTHON=/path/to/python3.12 $(or $(MAKECMDGOALS),check)" >&2; \
	exit 1; }
endef
