# `make train` and `make test` need nothing but Python 3.11: each makes .venv and installs what it uses, in the versions
# of requirements.lock.

PYTHON ?= python3
VENV ?= .venv
CONFIG ?= configs/tiny.py
# The game that `make train` plays: the paper's, or `aimed`, in which tests learn to aim (docs/demo.md).
DEMO ?= code_a1
WORKDIR ?= runs/$(if $(filter code_a1,$(DEMO)),tiny,$(DEMO))
code_a1 = recipe=official,steps=60
aimed = world=blind,recipe=aimed,steps=120
GAME = $(or $(and $(filter code_a1 aimed,$(DEMO)),$($(DEMO))),$(error DEMO is $(DEMO); it can be code_a1 or aimed))
TRAIN_FLAGS ?=
EXTRAS ?= dev
TABLES ?= runs/tables
TABLES_STEPS ?= 40
TABLES_AT_ONCE ?= 2
LOCK_FLAGS ?=

# Where libtpu is installed, to compile for TPUs, JAX would look for one.
export JAX_PLATFORMS ?= cpu

# Huge pages for malloc save about a quarter of the gradient step's CPU time on Linux; the variable is ignored elsewhere.
RUN = GLIBC_TUNABLES=glibc.malloc.hugetlb=1 $(VENV)/bin/python
INSTALL = $(VENV)/bin/pip install --quiet --constraint requirements.lock

.PHONY: install train tables docs address test test-rest test-all test-long lint lock clean

install: $(VENV)/.base

train: $(VENV)/.base
	$(RUN) -m codea1.sft --config=$(CONFIG):$(GAME) --workdir=$(WORKDIR)/sft $(TRAIN_FLAGS)
	$(RUN) -m codea1.train --config=$(CONFIG):$(GAME),sft=$(WORKDIR)/sft --workdir=$(WORKDIR)/code_a1 $(TRAIN_FLAGS)
	$(RUN) -m codea1.report $(WORKDIR)/code_a1 --seeds=studies/demo.results.gz
	-$(RUN) -m codea1.explain $(WORKDIR)/code_a1 --duels  # a run without a duel is no failure
	@echo; echo "Two commands to try next, after . $(VENV)/bin/activate:"
	@echo "  python -m codea1.explain $(WORKDIR)/code_a1 --html=story.html  # one question, step by step, for a browser"
	@echo "  python -m codea1.train --config=$(CONFIG):$(GAME),sft=$(WORKDIR)/sft,method=golden --workdir=$(WORKDIR)/golden"
	@echo "                                  # the same without a Test LLM: golden tests pay the Code LLM"

# Every method of the paper on the tiny pair: docs/tables.md.
tables: $(VENV)/.base
	$(RUN) -m codea1.lab study studies/paper.toml --config=$(CONFIG):world=classic,steps=$(TABLES_STEPS) --workdir=$(TABLES) --at_once=$(TABLES_AT_ONCE)

PYTEST = $(VENV)/bin/python -m pytest -q -n 3 --timeout=900 --dist loadfile --no-loadscope-reorder --durations=15

# The quick tests, by the table in tests/conftest.py: five minutes on two cores.
test: $(VENV)/.$(EXTRAS) lint
	$(PYTEST) -m 'quick and not long' tests

# What test-all has besides.
test-rest: $(VENV)/.$(EXTRAS)
	$(PYTEST) -m 'not quick and not long' tests

# Everything but what takes long.
test-all: test test-rest

# What takes long, about an hour and a half: hundreds of kills; all pod configs through the TPU compiler; every hostile
# program at every level of isolation, as this user and as another; adapters on two hosts; the wheel. `make test-all`
# has a part of most.
test-long: $(VENV)/.$(EXTRAS)
	$(VENV)/bin/python -m pytest -q -m long --durations=0 tests
	CODEA1_HOSTILE=all $(VENV)/bin/python -m pytest -q --durations=0 tests/sandbox_hostile_test.py

lint: $(VENV)/.$(EXTRAS)
	$(VENV)/bin/ruff check .
	$(VENV)/bin/ruff format --check .
	$(VENV)/bin/mypy
	$(VENV)/bin/shellcheck --external-sources launch/*.sh
	$(VENV)/bin/hadolint launch/Dockerfile

$(VENV)/bin/python:
	@$(PYTHON) -c 'import sys; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 13))' || \
		{ echo "error: codea1 needs Python 3.11, 3.12 or 3.13; give one, as in make train PYTHON=python3.12." >&2; exit 2; }
	$(PYTHON) -m venv $(VENV)

$(VENV)/.base: pyproject.toml requirements.lock setup.py | $(VENV)/bin/python
	$(INSTALL) -e '.[figures]'
	touch $@

$(VENV)/.$(EXTRAS): pyproject.toml requirements.lock setup.py | $(VENV)/bin/python
	$(INSTALL) -e '.[$(EXTRAS)]'
	touch $@ $(VENV)/.base

# The site, in build/site; CODEA1_REPOSITORY is where its links to source files lead.
docs: pyproject.toml requirements.lock | $(VENV)/bin/python
	$(INSTALL) -e '.[docs]'
	NO_MKDOCS_2_WARNING=1 $(VENV)/bin/mkdocs build --strict --quiet

# Another address of the repository, wherever its own stands: make address REPOSITORY=OWNER/NAME.
address:
	@test "$(REPOSITORY)" || { echo "error: name the repository, as in make address REPOSITORY=OWNER/NAME." >&2; exit 2; }
	old=$$(sed -n 's|^NAMED = "https://github.com/\(.*\)".*|\1|p' docs/site_hooks.py) && \
		sed -i "s|$$old|$(REPOSITORY)|" notebooks/quickstart.ipynb docs/site_hooks.py

# One version of each package for all Pythons. What is locked stays, unless pyproject.toml forbids it or LOCK_FLAGS asks
# for another: LOCK_FLAGS=--upgrade, or LOCK_FLAGS='--upgrade-package jax'. `parity` states its own versions.
lock: | $(VENV)/bin/python
	$(INSTALL) uv
	$(VENV)/bin/uv pip compile --quiet --universal --fork-strategy fewest --no-annotate --custom-compile-command 'make lock' \
		--extra dev --extra docs --extra notebooks --extra tpu --extra wandb $(LOCK_FLAGS) \
		pyproject.toml --output-file requirements.lock

# Runs are kept.
clean:
	rm -rf $(VENV) build
