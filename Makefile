# make demo    Andrews' squeezer: reference, 1,000 variants, gradient, picture
# make test    style, layers, types and tests
# make versions    a quarter of the tests with the lowest and with the newest versions of all dependencies that pyproject.toml allows
# make dist    wheel and source distribution in dist/, tried out without the checkout
# make site    the documentation as pages that need no network, in build/site
# make hard    random mechanisms, batches and events against independent solutions: docs/scoreboard.md
# make notebooks    the lessons of notebooks/ executed: build/notebooks, and their pages in docs/notebooks
# make examples, make slow, make benchmarks, make clean
#
# Everything is set up in $(VENV) at the first call. Needed: make and Python 3.11 or later.

PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
BENCHMARKS := first_call work_precision throughput native gradients growth formulations stepping environments gpu
EXAMPLES := pendulum particle_on_circle chaplygin_sleigh slider_crank parallelogram coordinates nfourbar bricard andrews andrews_joints bricard_joints nfourbar_joints many_bodies mobile_robot reactions knife_edge rolling_disk puma stewart excavator jansen peaucellier delta wishbone design_fourbar design_press design_path design_dwell design_wishbone design_sarrus chain governor locking emergency_stop balance export_balance slider_crank_control fivebar_control wall_control lock_control policy stepper_policy swing_up hopper_policy ppo identify_fourbar identify_andrews identify_brake best_input tune_force_control sweep_fourbar

# The lowest versions run on the oldest Python, the newest ones on the newest that is there.
LOWEST ?= python3.11
NEWEST ?= $(shell for minor in 14 13 12 11; do python3.$$minor -c 'import sys; print(sys.executable)' 2>/dev/null && break; done)
QUARTER := $(patsubst %,tests/test_%.py,assemble batch data devices events float32 functions gradients kernels linalg loops program simulate system)

.PHONY: demo test versions examples notebooks slow hard dist site benchmarks clean

demo: $(VENV)/.plots
	$(BIN)/python examples/andrews.py

test: $(VENV)/.test
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/lint-imports
	$(BIN)/basedpyright
	$(BIN)/pytest

versions: $(BIN)/uv
	set -e; for set in lowest-direct:$(LOWEST) highest:$(NEWEST); do \
	    venv=build/$${set%:*}; \
	    $(BIN)/uv venv --quiet --clear --python $${set#*:} $$venv; \
	    $(BIN)/uv pip install --quiet --python $$venv --resolution $${set%:*} -e '.[test]'; \
	    $$venv/bin/python -c 'import jaxmb; jaxmb.show_config()'; \
	    JAXMB_TEST_CACHE=$$venv/cache $$venv/bin/pytest $(QUARTER); \
	done

slow: $(VENV)/.test
	XLA_FLAGS= $(BIN)/pytest -m slow

# HARD="--share 0.1 --rows mechanisms,formulations --seed 1"
hard: $(VENV)/.test
	PYTHONPATH=tests:examples $(BIN)/python -m hard $(HARD)

dist: $(VENV)/.test
	rm -rf dist
	$(BIN)/python -m build
	tar tzf dist/*.tar.gz | cut -d/ -f2 | sort | uniq -c
	ls -l dist
	$(BIN)/pytest -n 0 -m 'slow or not slow' tests/test_distribution.py

# Warnings, such as of a link that leads nowhere, are errors.
site: $(VENV)/.docs
	$(BIN)/python docs/make_site.py

examples: $(VENV)/.plots
	set -e; for name in $(EXAMPLES); do $(BIN)/python examples/$$name.py; done

# An error in a cell is one of the command. LESSONS="four_bar locks"
notebooks: $(VENV)/.notebooks
	$(BIN)/python notebooks/make.py $(LESSONS)

# SIZE=--small or SIZE=--full; a benchmark that fails does not keep the others from running.
benchmarks: $(VENV)/.benchmarks
	failed=; for name in $(BENCHMARKS); do $(BIN)/python benchmarks/$$name.py $(SIZE) || failed="$$failed $$name"; done; \
	    $(BIN)/python benchmarks/draw.py; $(BIN)/python benchmarks/tables.py; test -z "$$failed" || { echo "failed:$$failed"; exit 1; }

clean:
	rm -rf $(VENV) output build dist .jax_cache .pytest_cache .ruff_cache .import_linter_cache
	find . -name __pycache__ -prune -exec rm -rf {} +

# Stamps: a set of dependencies is installed once for each state of pyproject.toml.
$(VENV)/.plots: pyproject.toml | $(BIN)/python
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[plots,data]'
	touch $@

$(VENV)/.test: pyproject.toml | $(BIN)/python
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[plots,test]'
	touch $@ $(VENV)/.plots

$(VENV)/.docs: pyproject.toml | $(BIN)/python
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[docs]'
	touch $@

$(VENV)/.notebooks: pyproject.toml | $(BIN)/python
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[notebooks]'
	touch $@

$(VENV)/.benchmarks: pyproject.toml | $(BIN)/python
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[benchmarks]'
	touch $@

$(BIN)/uv: | $(BIN)/python
	$(BIN)/python -m pip install --quiet --disable-pip-version-check uv

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
	    echo "jaxmb needs Python 3.11 or later, but '$(PYTHON)' is $$($(PYTHON) --version 2>&1);" \
	         "name another one: make PYTHON=python3.12"; exit 1; }
	$(PYTHON) -m venv $(VENV)
