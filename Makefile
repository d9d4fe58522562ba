# Two commands do everything on a machine that has Python 3.11 or newer, pip and make:
#   make demo   install, then learn handwritten digits, from images to a report; prints how to open it and the explorer
#   make test   install, then lint, types, import rules, tests and doctests
#   make docs   install, then build the documentation site; prints where it is
#   make browser   install Chromium where apt-get can, for the tests of the explorer; without it they are skipped
#   make web    run exported graphs in ONNX Runtime Web, by Node.js; without it that test is skipped
# While you work: make test-fast. Now and then: make properties, make fuzz, make mutants (see CONTRIBUTING.md).
# Whether the suite passes every time: make check-often TIMES=5, and again with BUSY=1, which keeps all cores busy.
# Before a release: make stress, make check-minimum, make dist.
PYTHON ?= python3
# installed first, so that nothing else chooses a build of it
TORCH ?= torch==2.13.0
VENV := .venv
BIN := $(VENV)/bin
# processes that run tests
JOBS ?= 2
# for `make dist`
PYTHONS ?= python3.11 python3.12 python3.13 python3.14
comma := ,

.PHONY: demo docs browser web test test-fast lint types imports check check-often stress properties fuzz mutants lines bench \
	check-minimum dist format clean clean-cache golden golden-record options paths

demo: $(VENV)/.installed
	$(BIN)/bagwise demo

# warnings are errors, examples of the gallery are run, links are checked; `make test` has a quick form of it
docs: $(VENV)/.installed-docs
	OMP_NUM_THREADS=1 $(BIN)/python -m sphinx --fail-on-warning --keep-going --quiet -b html -d build/docs-trees docs build/docs
	$(BIN)/python docs/_ext/check_links.py build/docs
	@echo "Open build/docs/index.html"

browser:
	@command -v chromium > /dev/null || (apt-get update -qq && apt-get install -y -qq chromium) > /dev/null \
		|| echo "Chromium could not be installed: tests of the explorer in a browser will be skipped."

web: $(VENV)/.installed-dev
	npm install --silent --no-audit --no-fund --prefix build/web onnxruntime-web
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest tests/app/model/test_onnx_web.py

test: lint types imports check

lint: $(VENV)/.installed-dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(VENV)/.installed-dev
	$(BIN)/mypy

imports: $(VENV)/.installed-dev
	$(BIN)/lint-imports

# Tests start hundreds of processes, each of which would compile the library to bytecode again.
check check-often stress test-fast properties: export PYTHONDONTWRITEBYTECODE :=

# one thread of BLAS for each of the workers; `make check JOBS=8` for more of them
check: $(VENV)/.installed-dev
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n $(JOBS) --dist worksteal

# `check` TIMES times, until one fails; with BUSY=1 while each core has another process to run
TIMES ?= 5
BUSY ?=
check-often: $(VENV)/.installed-dev
	@set -e; for core in $(if $(BUSY),$$(seq $$(nproc))); do while kill -0 $$$$ 2> /dev/null; do :; done & done; \
	for time in $$(seq $(TIMES)); do start=$$(date +%s); $(MAKE) check; \
		echo "check $$time of $(TIMES)$(if $(BUSY), with all cores busy,): passed in $$(($$(date +%s) - start)) s"; done

# kills and races at moments that differ from run to run, which no other target runs
stress: $(VENV)/.installed-dev
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -m stress tests

# what can be known in a minute, once everything has been compiled: no commands, experiments, doctests; fewer examples
test-fast: lint
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n $(JOBS) --dist worksteal -m "not slow and not stress" --hypothesis-profile=fast tests

# the property tests with fresh examples, and ten times as many
properties: $(VENV)/.installed-dev
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n $(JOBS) --dist worksteal -m "hypothesis and not stress" --hypothesis-profile=fuzz tests

# mutated files, N of them, into every loader; goes on where an earlier run was, see fuzz.json
N ?= 100000
fuzz: $(VENV)/.installed-dev
	OMP_NUM_THREADS=1 PYTHONPATH=tests $(BIN)/python -m fuzz.running --inputs $(N)

# break the library in one place at a time: do the tests notice?
mutants: $(VENV)/.installed-dev
	$(BIN)/python benchmarks/mutants

# lines and files of each package, and of tests
lines:
	@$(PYTHON) benchmarks/lines.py

# what one fit goes through: modules, calls between packages, the files of one image
paths: $(VENV)/.installed-dev
	$(BIN)/python benchmarks/paths.py --write

# the signature for editors, tables of options and a part of the schema, from src/bagwise/app/options.py
options: $(VENV)/.installed-dev
	$(BIN)/python docs/_ext/option_tables.py

# does small data give what it gave before? About a minute; changes that are meant stand in benchmarks/golden/changes.txt
golden: $(VENV)/.installed-dev
	$(BIN)/python benchmarks/golden

golden-record: $(VENV)/.installed-dev
	$(BIN)/python benchmarks/golden --record

bench: $(VENV)/.installed
	$(BIN)/python benchmarks/merging.py

# the tests of merging, sources, models, reports and commands with the oldest versions that pyproject.toml admits;
# packages that only tests need are new ones
MINIMUM := app,network,video,excel,anndata,ann,dask
MINIMUM_TESTS := tests/merging tests/kernels tests/descriptors tests/codebooks tests/app/model tests/sources tests/app/report tests/app/cli \
	tests/retrieval tests/test_estimators.py
check-minimum:
	$(PYTHON) -m venv --clear .venv-minimum
	$(PYTHON) tests/minimum.py $(subst $(comma), ,$(MINIMUM)) > .venv-minimum/constraints.txt
	.venv-minimum/bin/python -m pip install --quiet --disable-pip-version-check -c .venv-minimum/constraints.txt \
		-e ".[$(MINIMUM)]" pytest pytest-xdist hypothesis jsonschema pandas datasets
	.venv-minimum/bin/python -m pip list --disable-pip-version-check
	OMP_NUM_THREADS=1 .venv-minimum/bin/python -m pytest -n $(JOBS) --dist worksteal -W default $(MINIMUM_TESTS)

# source distribution and wheel, checked, and tried in an empty environment of every Python that is there
dist: $(BIN)/python
	rm -rf dist
	$(BIN)/python -m pip install --quiet --disable-pip-version-check build twine
	$(BIN)/python -m build
	$(BIN)/python -m twine check --strict dist/*
	for python in $(PYTHONS); do \
		$$python -c "import sys" 2> /dev/null || { echo "$$python is not there: not tried"; continue; }; \
		for file in dist/*.whl dist/*.tar.gz; do \
			rm -rf dist/empty && $$python -m venv dist/empty || exit 1; \
			dist/empty/bin/python -m pip install --quiet --disable-pip-version-check "$$file[app]" || exit 1; \
			(cd dist/empty && bin/python ../../tests/smoke.py) || exit 1; \
		done; \
	done; rm -rf dist/empty

format: $(VENV)/.installed-dev
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

# numba's cache does not see changes of compiled functions in other files; tests remove what is stale (tests/compiled.py)
clean-cache:
	find src -name '*.nb[ci]' -delete

clean: clean-cache
	rm -rf $(VENV) .venv-minimum .mypy_cache .ruff_cache .pytest_cache .hypothesis dist build

$(BIN)/python:
	$(PYTHON) -c "import sys; sys.exit(sys.version_info < (3, 11) and 'bagwise needs Python 3.11 or newer, this is ' + sys.version.split()[0] + '; set PYTHON=python3.x')"
	$(PYTHON) -m venv $(VENV)

$(VENV)/.installed: pyproject.toml | $(BIN)/python
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e ".[app]"
	touch $@

$(VENV)/.installed-dev: pyproject.toml | $(BIN)/python
	$(BIN)/python -m pip install --quiet --disable-pip-version-check "$(TORCH)"
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e ".[dev]"
	touch $@ $(VENV)/.installed

$(VENV)/.installed-docs: $(VENV)/.installed-dev
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e ".[docs]"
	touch $@
