# make run       a queue manager on this machine, its data in ./data; installs only what it needs, from wheels; BIND=127.0.0.2 and DATA=other change both
# make wheel     dist/lanner-VERSION-py3-none-any.whl, for pip
# make install   the whole environment in .venv, from the hash-locked requirements
# make test      every test but the soak tests and those of the pipeline; OPTIONS="--durations 20" and others as in pytest
# make test-spark  the tests of the data pipeline, most of which run Spark
# make lint      ruff and mypy
# make sync      the blocking client again, after the async one changed
# make demo      two queue managers exchange messages, the data pipeline looks at them; the report is build/demo/report.html
# make bench-against REV=main  the working tree against another commit; OPTIONS="--pairs 15" and others as in bench/against.py
# make test-bare  `make run`, the wheel and the README on a Debian without anything else; needs root and debootstrap
# make package   dist/lanner_VERSION-1_ARCHITECTURE.deb, for the Debian that it is built on
# make test-package  the Debian package is installed, run, upgraded and purged; needs root and debootstrap
# make site      the documentation as a site, in build/site
# make test-cluster  the jobs of the pipeline on a Spark cluster of this machine
# make mutants SEED=1 SAMPLE=100  do the tests of a requirement notice when its code is wrong? ROW=QQB-2.2.7-6 asks for one; JOBS=1 leaves a core free; OPTIONS=--others: what do the tests of other rows say?
# make lock      requirements.lock and requirements-core.lock again, after the dependencies in pyproject.toml changed

PYTHON ?= python3
# Where `make run` has its data, and its address.
DATA ?= ./data
BIND ?= 127.0.0.1
BIN := .venv/bin
STAMP := .venv/.installed
CORE_STAMP := .venv/.core-installed
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check
# What is built here is built with these; pip would fetch them by itself, but without looking at their hashes.
BUILD_TOOLS := cython setuptools wheel
# What lanner._native is built from, if there is a compiler.
NATIVE := hatch_build.py native/lanner_native.c
CODE := src demo tests tools $(wildcard bench)
# The tests make thousands of stores: in memory where there is room for them, because the disk of a busy machine can take
# a tenth of a second for each sync.
SCRATCH := $(shell test "$$(df --output=avail -B 1M /dev/shm 2>/dev/null | tail -n 1)" -ge 8192 2>/dev/null && echo /dev/shm)
PYTEST := $(if $(SCRATCH),TMPDIR=$(SCRATCH) )$(BIN)/python -m pytest
# Two processes share the tests: files, or folders whose files must not run at once (tests/conftest.py).
SHARED := -n 2
# The tests of the data pipeline take as long as half of all others, and share one Spark.
SPARK_TESTS := tests/spark tests/demo
# What `make mutants` takes.
SEED ?= 1
SAMPLE ?= 100
JOBS ?= 2
# The tests start hundreds of Pythons: each would compile Lanner anew.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := install
.PHONY: install run wheel man package test test-spark test-bare test-package test-cluster demo site lint sync bench bench-against conformance mutants soak lock clean

install: $(STAMP)

$(STAMP): requirements.lock pyproject.toml $(NATIVE)
	$(eval MISSING := $(shell PYTHON=$(PYTHON) .ci/missing))
	$(if $(MISSING),$(error Debian packages are missing: $(MISSING). Install them with "sudo apt-get install $(MISSING)" and try again))
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	awk '/^[^ #]/ { split($$0, name, "=="); tool = index(" $(BUILD_TOOLS) ", " " name[1] " ") } tool' requirements.lock >.venv/build-tools.lock
	$(PIP) --require-hashes --no-deps -r .venv/build-tools.lock
	$(PIP) --require-hashes --no-build-isolation --use-pep517 -r requirements.lock
	$(PIP) --no-deps --no-build-isolation -e .
	touch $(STAMP) $(CORE_STAMP)

# What `lanner serve` needs. Nothing must be compiled: lanner._native is left out where it cannot be, and hatchling, which makes the package itself importable, is pure Python.
$(CORE_STAMP): requirements-core.lock pyproject.toml $(NATIVE)
	$(eval MISSING := $(shell PYTHON=$(PYTHON) .ci/missing core))
	$(if $(MISSING),$(error Debian packages are missing: $(MISSING). Install them with "sudo apt-get install $(MISSING)" and try again))
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(PIP) --require-hashes --only-binary :all: -r requirements-core.lock
	$(PIP) --no-deps --no-build-isolation -e .
	touch $(CORE_STAMP)

run: $(CORE_STAMP)
	$(BIN)/lanner serve --data $(DATA) --bind $(BIND)

wheel: $(CORE_STAMP)
	$(BIN)/python -m pip wheel --quiet --disable-pip-version-check --no-deps --no-build-isolation --wheel-dir dist .

man: $(CORE_STAMP)
	$(BIN)/python tools/generate_man.py build/man

# For the Debian that it runs on. Only the build downloads.
package: wheel
	packaging/debian/build

test: install
	$(PYTEST) tests $(SPARK_TESTS:%=--ignore=%) $(SHARED) $(OPTIONS)

test-spark: install
	$(PYTEST) $(SPARK_TESTS) $(OPTIONS)

# Spark needs Java 17 or newer; pip brings the rest of it.
test-cluster: install
	$(PYTEST) tests/spark/test_cluster.py -m cluster --timeout 0

test-bare: install
	$(PYTEST) tests/machines/test_bare.py -m machine --timeout 0 $(OPTIONS)

test-package: install
	$(PYTEST) tests/machines/test_debian_package.py -m machine --timeout 0 $(OPTIONS)

demo: install
	rm -rf build/demo
	$(BIN)/python -m demo build/demo

site: install
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict

lint: install
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy $(CODE)

sync: install
	$(BIN)/python tools/generate_sync.py

bench: install
	$(BIN)/python -m bench

bench-against: install
	$(if $(REV),,$(error which commit? make bench-against REV=main))
	$(BIN)/python -m bench --against $(REV) $(OPTIONS)

# The report is made from a failed run too; the run's exit code is kept.
conformance: install
	@mkdir -p build
	@status=0; $(PYTEST) tests $(SHARED) --spec-results build/spec-results.json || status=$$?; \
	$(BIN)/python tools/spec_report.py build/spec-results.json --write docs/conformance.md || status=$$?; exit $$status

mutants: install
	$(if $(SCRATCH),TMPDIR=$(SCRATCH) )$(BIN)/python tools/mutants.py --seed $(SEED) --sample $(SAMPLE) --jobs $(JOBS) $(addprefix --row ,$(ROW)) $(OPTIONS)

soak: install
	$(PYTEST) tests -m soak --timeout 0

COMPILE := CUSTOM_COMPILE_COMMAND="make lock" .venv-lock/bin/pip-compile --quiet --strip-extras --allow-unsafe \
    --generate-hashes --no-emit-index-url --no-emit-trusted-host --no-emit-find-links --no-emit-options

lock:
	test -x .venv-lock/bin/pip-compile || { $(PYTHON) -m venv .venv-lock && .venv-lock/bin/python -m pip install --quiet pip-tools; }
	$(COMPILE) --all-extras --output-file requirements.lock pyproject.toml
	$(COMPILE) --extra build --constraint requirements.lock --output-file requirements-core.lock pyproject.toml

clean:
	rm -rf .venv .venv-lock build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis
	find src demo tests tools -name __pycache__ -type d -prune -exec rm -rf {} +
