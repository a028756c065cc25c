# Every task of the project by its verb: `make help` lists them.
SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:

VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.setup-done
# How often an installation is tried: registries and networks have bad moments, a wrong version stays wrong.
SETUP_TRIES := 3
# The first of these that is Python 3.11 or newer makes the virtual environment.
PYTHON ?=
PYTHONS := $(PYTHON) python3 python3.13 python3.12 python3.11

.PHONY: help
help: ## list the verbs
	@awk -F ':.*## ' '/^[a-z-]+:.*## /{printf "  make %-12s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

.PHONY: setup
setup: $(STAMP) ## make the virtual environment, with exact versions (quick when nothing changed)

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
	  if $(BIN)/python -m pip install --quiet --disable-pip-version-check -c requirements.lock -e '.[test,agents]'; then touch $@; exit 0; fi; \
	  echo "setup: installation failed, try $$try of $(SETUP_TRIES)" >&2; sleep $$((try * 3)); \
	done; exit 1

.PHONY: lock
lock: setup ## write requirements.lock from what is installed now
	@{ echo '# Exact versions that every test ran with. Written by `make lock`; `make setup` installs under these constraints.'; \
	  $(BIN)/pip freeze --all --exclude-editable --exclude pip | LC_ALL=C sort -f; } > requirements.lock.new
	@mv requirements.lock.new requirements.lock
	@touch $(STAMP)
