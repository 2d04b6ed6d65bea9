# One command each, the same here and in CI. Every target sets up its own environment in .venv.
#
#   make demo     the story of the runtime, offline, in under a minute
#   make test     the tests, on two cores        (TESTS="tests/pure -k fold" runs a part)
#   make check    format, lint, types
#   make bench    the benchmarks                 (BENCH=name runs one)
#   make clean    remove the environment, caches and what was built
#
# Another interpreter: make test PYTHON=python3.13 (the environment is made anew for another version).

PYTHON ?= python3
VENV   ?= .venv
TESTS  ?=
BENCH  ?=

BIN    := $(VENV)/bin
PIP    := $(BIN)/python -m pip -qq --disable-pip-version-check
PINS   := pyproject.toml constraints.txt

.DEFAULT_GOAL := test
.PHONY: demo test check bench clean

ifneq ($(MAKECMDGOALS),clean)
VERSION := $(shell $(PYTHON) -c 'import sys; v = sys.version_info; print(("" if v >= (3, 11) else "old-") + "%d.%d" % v[:2])' 2>/dev/null)
ifeq ($(filter 3.%,$(VERSION)),)
$(error callboard needs Python 3.11 or newer, and "$(PYTHON)" is $(or $(VERSION:old-%=%),not there); name another: make $(MAKECMDGOALS) PYTHON=python3.12)
endif
endif
BASE := $(VENV)/python$(VERSION).stamp

demo: $(VENV)/core.stamp
	@$(BIN)/callboard demo

test: $(VENV)/dev.stamp
	@$(BIN)/python -m tests.together $(TESTS)

check: $(VENV)/dev.stamp
	@echo "format"; $(BIN)/ruff format --check .
	@echo "lint";   $(BIN)/ruff check .
	@echo "types";  $(BIN)/mypy

bench: $(VENV)/dev.stamp
	@$(BIN)/callboard bench $(BENCH)

clean:
	@rm -rf $(VENV) build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis
	@find . -name __pycache__ -type d -prune -exec rm -rf {} +

# The demo needs the core alone; everything else needs the dev extra, which brings the core with it.
$(VENV)/core.stamp: $(PINS) | $(BASE)
	@echo "callboard: installing the core into $(VENV) (once; some seconds) ..."
	@$(PIP) install -c constraints.txt -e .
	@touch $@

$(VENV)/dev.stamp: $(PINS) | $(BASE)
	@echo "callboard: installing the core and the dev extra into $(VENV) (once; about a minute) ..."
	@$(PIP) install -c constraints.txt -e ".[dev]"
	@touch $@ $(VENV)/core.stamp

$(BASE):
	@rm -rf $(VENV)
	@$(PYTHON) -m venv $(VENV)
	@touch $@
