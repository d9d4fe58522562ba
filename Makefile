# Two commands do everything on a machine that has Python 3.11 or newer, pip and make:
#   make demo   install, then learn handwritten digits, from images to a report; prints how to open it and the explorer
#   make test   install, then lint, types, import rules, tests and doctests
#   make browser   install Chromium where apt-get can, for the tests of the explorer; without it they are skipped
# While you work: make test-fast. Now and then: make properties, make fuzz, make mutants (see CONTRIBUTING.md).
PYTHON ?= python3
# installed first, so that nothing else chooses a build of it
TORCH ?= torch==2.13.0
VENV := .venv
BIN := $(VENV)/bin
# processes that run tests
JOBS ?= 2

.PHONY: demo browser test test-fast lint types imports check properties fuzz mutants bench format clean clean-cache

demo: $(VENV)/.installed
	$(BIN)/bagwise demo

browser:
	@command -v chromium > /dev/null || (apt-get update -qq && apt-get install -y -qq chromium) > /dev/null \
		|| echo "Chromium could not be installed: tests of the explorer in a browser will be skipped."

test: lint types imports check

lint: $(VENV)/.installed-dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(VENV)/.installed-dev
	$(BIN)/mypy

imports: $(VENV)/.installed-dev
	$(BIN)/lint-imports

# one thread of BLAS for each of the workers; `make check JOBS=8` for more of them
check: $(VENV)/.installed-dev
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n $(JOBS) --dist worksteal

# what can be known in a minute, once everything has been compiled: no commands, experiments, doctests; fewer examples
test-fast: lint
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n $(JOBS) --dist worksteal -m "not slow" --hypothesis-profile=fast tests

# the property tests with fresh examples, and ten times as many
properties: $(VENV)/.installed-dev
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n $(JOBS) --dist worksteal -m hypothesis --hypothesis-profile=fuzz tests

# mutated files, N of them, into every loader; goes on where an earlier run was, see fuzz.json
N ?= 100000
fuzz: $(VENV)/.installed-dev
	OMP_NUM_THREADS=1 PYTHONPATH=tests $(BIN)/python -m fuzz.running --inputs $(N)

# break the library in one place at a time: do the tests notice?
mutants: $(VENV)/.installed-dev
	$(BIN)/python tests/mutants.py

bench: $(VENV)/.installed
	$(BIN)/python benchmarks/merging.py

format: $(VENV)/.installed-dev
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

# numba's cache does not see changes of compiled functions in other files
clean-cache:
	find src -name '*.nb[ci]' -delete

clean: clean-cache
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis dist build

$(BIN)/python:
	$(PYTHON) -c "import sys; sys.exit(sys.version_info < (3, 11) and 'bagwise needs Python 3.11 or newer, this is ' + sys.version.split()[0] + '; set PYTHON=python3.x')"
	$(PYTHON) -m venv $(VENV)

$(VENV)/.installed: pyproject.toml | $(BIN)/python
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e ".[image,cli,report,explore]"
	touch $@

$(VENV)/.installed-dev: pyproject.toml | $(BIN)/python
	$(BIN)/python -m pip install --quiet --disable-pip-version-check "$(TORCH)"
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e ".[dev]"
	touch $@ $(VENV)/.installed
