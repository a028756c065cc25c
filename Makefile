# Every task of the project by its verb: `make help` lists them.
SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:

VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.setup-done
KERNELS_STAMP := $(VENV)/.kernels-compiled
KERNELS := $(wildcard themis_arbiter/core/kernels/*.py)
# How often an installation is tried: registries and networks have bad moments, a wrong version stays wrong.
SETUP_TRIES := 3
# The first of these that is Python 3.11 or newer makes the virtual environment.
PYTHON ?=
PYTHONS := $(PYTHON) python3 python3.13 python3.12 python3.11

.PHONY: help
help: ## list the verbs
	@awk -F ':.*## ' '/^[a-z-]+:.*## /{printf "  make %-12s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

.PHONY: setup
setup: $(STAMP) $(KERNELS_STAMP) ## make the virtual environment, with exact versions (quick when nothing changed)

$(STAMP): pyproject.toml requirements.lock
	@python=; for candidate in $(PYTHONS); do \
	  if "$$candidate" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then python=$$candidate; break; fi; \
	done; \
	if [ -z "$$python" ]; then \
	  echo "setup: Python 3.11 or newer is needed and none was found; install it, or name it: make setup PYTHON=/path/to/python3" >&2; exit 1; \
	fi; \
	if ! $(BIN)/python -c 'import pip' 2>/dev/null; then \
	  "$$python" -m venv --clear $(VENV) || { echo "setup: cannot make a virtual environment; on Debian install python3-venv" >&2; exit 1; }; \
	fi; \
	for try in $$(seq $(SETUP_TRIES)); do \
	  if $(BIN)/python -m pip install --quiet --disable-pip-version-check -c requirements.lock -e '.[test,agents,sweep]'; then touch $@; exit 0; fi; \
	  echo "setup: installation failed, try $$try of $(SETUP_TRIES)" >&2; sleep $$((try * 3)); \
	done; exit 1

$(KERNELS_STAMP): $(STAMP) $(KERNELS)
	@$(BIN)/python -m themis_arbiter.core.kernels.build
	@touch $@

.PHONY: lock
lock: setup ## write requirements.lock from what is installed now
	@{ echo '# Exact versions that every test ran with. Written by `make lock`; `make setup` installs under these constraints.'; \
	  $(BIN)/pip freeze --all --exclude-editable --exclude pip | LC_ALL=C sort -f; } > requirements.lock.new
	@mv requirements.lock.new requirements.lock
	@touch $(STAMP) $(KERNELS_STAMP)

.PHONY: gen
gen: setup ## generate the protobuf code anew
	@$(BIN)/python -m themis_arbiter.gen.regenerate

# --- Java -----------------------------------------------------------------------------------------------------------

JAVA_DIR := yarn_bridge/java
JAVA_SOURCES := $(shell find $(JAVA_DIR) -name target -prune -o -type f -print 2>/dev/null)
PLUGIN_STAMP := $(JAVA_DIR)/target/.packaged
MVN := mvn -B -Dstyle.color=never --no-transfer-progress -Daether.connector.http.retryHandler.count=5 -Dmaven.wagon.http.retryHandler.count=5 -f $(JAVA_DIR)/pom.xml
HAS_JAVA := $(shell command -v javac >/dev/null && command -v mvn >/dev/null && echo yes)
JAVA_MISSING := Java (a JDK, 8 to 17) or Maven is not here; on Debian install openjdk-17-jdk-headless and maven

.PHONY: plugin
plugin: ## package the ResourceManager's plugin (quick when nothing changed)
ifeq ($(HAS_JAVA),yes)
plugin: $(PLUGIN_STAMP)
else
	@echo "plugin: $(JAVA_MISSING)" >&2; exit 1
endif

$(PLUGIN_STAMP): $(JAVA_SOURCES)
	@# Maven resets colours even where it uses none.
	@$(MVN) -q package -DskipTests 2>&1 | sed 's/\x1b\[[0-9;]*m//g' | grep -v '^$$' || test $${PIPESTATUS[0]} -eq 0
	@mkdir -p $(@D); touch $@

# Where Java is missing, what needs it is left out with a line that says so, instead of failing.
.PHONY: plugin-if-java
plugin-if-java:
ifeq ($(HAS_JAVA),yes)
plugin-if-java: $(PLUGIN_STAMP)
else
	@echo "plugin: $(JAVA_MISSING); going on without YARN"
endif

.PHONY: java-test
java-test: plugin ## run the plugin's own tests
	@$(MVN) verify | grep -E 'Tests run|ERROR|FAIL|BUILD'

# --- checks ---------------------------------------------------------------------------------------------------------

.PHONY: format
format: setup ## format the Python code and put right what ruff can
	@$(BIN)/ruff check --fix-only --quiet . ; $(BIN)/ruff format .

.PHONY: lint
lint: setup ## formatting, lint, layers, spelling
	@$(BIN)/ruff format --check .
	@$(BIN)/ruff check .
	@$(BIN)/lint-imports
	@$(BIN)/codespell

.PHONY: type
type: setup ## mypy, strict
	@$(BIN)/mypy

# --- tests ----------------------------------------------------------------------------------------------------------

# More arguments for pytest: make unit ARGS='-k rho -x'
ARGS ?=
SLOW_MARKERS := yarn or zookeeper or e2e or browser or slow

.PHONY: unit
unit: setup ## the tests that need nothing but Python, in seconds
	@$(BIN)/python -m pytest -q -m "not ($(SLOW_MARKERS))" $(ARGS)

# Every stage runs though one before it failed: one run tells all. pytest comes last, so its summary closes the output.
STAGES := lint type $(if $(HAS_JAVA),java-test)
.PHONY: test
test: setup plugin-if-java ## every check and every test there is, real YARN and ZooKeeper too
	@failed=; \
	for stage in $(STAGES); do \
	  echo "== $$stage"; $(MAKE) --no-print-directory $$stage || failed="$$failed $$stage"; \
	done; \
	echo "== pytest"; $(BIN)/python -m pytest $(ARGS) || failed="$$failed pytest"; \
	if [ -n "$$failed" ]; then echo "make test: failed:$$failed" >&2; exit 1; fi

# --- long sets: not part of `make test` -------------------------------------------------------------------------------

# Another seed, some scenarios, fewer faults: make chaos ARGS='--seed 4 --only rm-kill,bridge-stop --count 3'
.PHONY: chaos
chaos: setup plugin ## kill and stop bridge, arbiter and ResourceManager under load, and judge (about an hour)
	@$(BIN)/python -m tests.chaos $(ARGS)

# One seed with its story: make sim SEED=7. The first so many: make sim SEEDS=200. Others: make sim ARGS='--seeds 5000-5999 --jobs 4'
.PHONY: sim
sim: setup ## the fault simulation: failover and every fault in virtual time, by seed (SEED=n, SEEDS=n)
	@$(BIN)/python -m tests.simulation.faults $(if $(SEED),'--seed=$(SEED)') $(if $(SEEDS),'--count=$(SEEDS)') $(ARGS)

.PHONY: bench
bench: setup ## measure the lease book and, in short, replays (docs/performance.md has what they were)
	@$(BIN)/python -m tests.bench.lease_book $(ARGS)
	@$(BIN)/python -m tests.bench.simulator --policies fifo,themis --times 1,2

# About ten minutes; ARGS=--quick for less, ARGS='--json FILE --chart FILE.svg' for all figures and a picture.
.PHONY: bench-auction
bench-auction: setup ## measure auctions of all sizes, beside HiGHS and CP-SAT
	@$(BIN)/python -m tests.bench.auction $(ARGS)

# Whole: hours, and what is done stays done; ARGS=--quick for minutes, ARGS='--only targets --write-docs' for the table of docs/fairness.md.
.PHONY: figures
figures: setup ## compute the paper's figures and the table of targets anew
	@$(BIN)/python -m tests.figures $(ARGS)

# --- running --------------------------------------------------------------------------------------------------------

.PHONY: run
run: setup plugin-if-java ## a local YARN with the plugin and sample apps (KEEP=1 stays up)
	@$(BIN)/python -m themis_arbiter.cli.local_run $(if $(filter 1,$(KEEP)),--keep)
