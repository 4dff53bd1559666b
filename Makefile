# `make run` runs the main job, `make test` passes the tests; both do all the set-up. `make help` lists the rest.

PYTHON ?= $(shell ./tools/interpreter)
VENV := .venv
BIN := $(VENV)/bin
FREE_THREADED := .venv-free-threaded
BROKERS ?= 3
PORT ?= 9092
MONTHS ?= 12
FAULTS ?= 200
DEEDS ?= 200
KILLS ?= 60
MINUTES ?= 10
WORK_DIR ?= data/run

# Where the tests keep their logs of a moment.
export TMPDIR := $(shell ./tools/scratch)

.DEFAULT_GOAL := help
.PHONY: help setup java test-tools run up test lint types unit compiled clients crash fuzz-short fuzz stress-short stress \
	churn-short churn eos-short eos pipeline-test free-threaded test-free-threaded \
	compose-test dashboards bench bench-installed golden format clean packaging wheel

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "%-18s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

setup: $(VENV)/installed $(VENV)/connector ## the virtual environment with every dependency, and Spark's Kafka connector

# The packages are installed, not linked to: what runs is compiled (setup.py), and the tests import the checkout, which
# is not. BARNABAS_PURE=1 does without a compiler.
$(VENV)/installed: $(VENV)/dependencies setup.py $(shell find barnabas broker controller metrics -name '*.py' -o -name '*.c')
	@[ -n "$$BARNABAS_PURE" ] || ./tools/ensure gcc:gcc
	rm -rf build/lib* build/bdist*
	$(BIN)/pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation --force-reinstall .
	$(BIN)/barnabas --version
	touch $@

$(VENV)/dependencies: setup.cfg pyproject.toml
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Barnabas needs Python 3.11 or newer; set PYTHON=...")'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --disable-pip-version-check --upgrade pip setuptools wheel
	BARNABAS_PURE=1 $(BIN)/pip install --quiet --disable-pip-version-check '.[test,dev,pipeline]'
	touch $@

# Resolved once and before any job: two jobs that resolve at the same time would race for the same cache.
$(VENV)/connector: pipeline/spark.py | $(VENV)/installed java
	$(BIN)/python -m pipeline.spark
	touch $@

java:
	@./tools/ensure java:openjdk-17-jre-headless

test-tools: # what the tests use beside Python's packages
	@./tools/ensure javac:openjdk-17-jdk-headless mvn:maven kcat:kcat gcc:gcc promtool:prometheus ip:iproute2 \
		go:golang node:nodejs npm:npm chromium:chromium chromedriver:chromium-driver

run: setup ## cluster, ingest, delays, audit (KEEP=1 leaves the cluster up, CHAOS=1 kills a broker; BROKERS, MONTHS, …)
	$(BIN)/python -m pipeline.run --brokers $(BROKERS) --port $(PORT) --months $(MONTHS) --work-dir $(WORK_DIR) \
		$(if $(KEEP),--keep) $(if $(CHAOS),--chaos)

up: $(VENV)/installed ## a cluster in the foreground (BROKERS, PORT)
	$(BIN)/barnabas up --brokers $(BROKERS) --port $(PORT)

test: ## everything that must pass
test: lint types unit compiled clients crash fuzz-short stress-short churn-short eos-short pipeline-test

lint: $(VENV)/installed ## style, imports between packages, bans
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(VENV)/installed ## strict static types
	$(BIN)/mypy

# Two or three tests at a time: many of them wait, for a process or for a JVM.
unit: $(VENV)/installed test-tools ## the tests that mirror the packages
	$(BIN)/pytest -q -n 2 tests --ignore tests/clients --ignore tests/crash --ignore tests/pipeline \
		--ignore tests/stress/test_stress.py --ignore tests/churn/test_churn.py \
		--ignore tests/eos/test_eos.py --ignore tests/fuzz --ignore tests/compose --ignore tests/packaging

# From a directory without sources, `broker` and the others are those that were installed.
compiled: $(VENV)/installed ## the same of what is compiled, run compiled
	mkdir -p build/compiled && ln -sfn ../../tests build/compiled/tests && cp setup.cfg build/compiled/
	$(BIN)/barnabas --version | grep ', compiled'
	cd build/compiled && ../../$(BIN)/python -P -m pytest -q -n 2 tests/broker tests/metrics tests/barnabas/protocol tests/barnabas/common \
		tests/barnabas/client

# In one process: the packages are made once, which takes three minutes of one core.
packaging: $(VENV)/installed ## sdist and wheel, made in isolation, into empty environments; there the example runs
	$(BIN)/pytest -q tests/packaging

wheel: $(VENV)/installed ## the same, keeping the sdist and the wheel of this machine in dist/
	$(BIN)/pytest -q tests/packaging --packages build/packages
	mkdir -p dist && cp build/packages/dist/* dist/ && ls -l dist

clients: $(VENV)/installed test-tools ## real clients and Apache Kafka's own tools against a real cluster
	$(BIN)/pytest -q -n 3 --dist loadfile tests/clients

crash: $(VENV)/installed ## processes killed under load; nothing acknowledged may be lost
	$(BIN)/pytest -q -n 3 tests/crash

stress-short: $(VENV)/installed test-tools ## a few faults of every kind in a three-broker cluster under load
	$(BIN)/pytest -q tests/stress/test_stress.py

stress: $(VENV)/installed test-tools ## many faults (FAULTS, SEED), then the proof that nothing acknowledged was lost
	$(BIN)/python -m tests.stress --faults $(FAULTS) $(if $(SEED),--seed $(SEED))

fuzz-short: $(VENV)/installed ## hostile frames to every listener for a moment, then the proof that nothing protected is gone
	$(BIN)/pytest -q tests/fuzz

fuzz: $(VENV)/installed ## the same for long (MINUTES, SEED)
	$(BIN)/python -m tests.fuzz --minutes $(MINUTES) $(if $(SEED),--seed $(SEED))

churn-short: $(VENV)/installed ## groups of real clients join, leave, die and lose their coordinators, a few times
	$(BIN)/pytest -q tests/churn/test_churn.py

churn: $(VENV)/installed ## many such deeds (DEEDS, SEED), then the proof: one owner a generation, no offset went back
	$(BIN)/python -m tests.churn --deeds $(DEEDS) $(if $(SEED),--seed $(SEED))

eos-short: $(VENV)/installed test-tools ## exactly-once by librdkafka, the Java client and Kafka Streams, under a few kill -9
	$(BIN)/pytest -q tests/eos/test_eos.py

eos: $(VENV)/installed test-tools ## the same under many (KILLS, SEED)
	$(BIN)/python -m tests.eos --kills $(KILLS) $(if $(SEED),--seed $(SEED))

pipeline-test: setup ## the Spark pipeline, killed half-way and started again
	$(BIN)/pytest -q tests/pipeline

# Beside the ordinary environment: a Python without a global lock, and what Barnabas needs of packages there.
free-threaded: $(FREE_THREADED)/installed ## Barnabas on a free-threaded Python, which is built if there is none

$(FREE_THREADED)/installed: $(FREE_THREADED)/dependencies setup.py $(shell find barnabas broker controller metrics -name '*.py' -o -name '*.c')
	rm -rf build/lib* build/bdist*
	$(FREE_THREADED)/bin/pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation --force-reinstall .
	$(FREE_THREADED)/bin/barnabas --version | grep ', free-threaded'
	touch $@

$(FREE_THREADED)/dependencies: tools/free-threaded tools/free-threaded.txt
	@./tools/ensure gcc:gcc cargo:cargo
	python=$$(./tools/free-threaded) && "$$python" -m venv --clear $(FREE_THREADED)
	$(FREE_THREADED)/bin/pip install --quiet --disable-pip-version-check --upgrade pip setuptools wheel
	$(FREE_THREADED)/bin/pip install --quiet --disable-pip-version-check --requirement tools/free-threaded.txt
	touch $@

# What needs real clients in the same process is left out; they meet free-threaded brokers in the second half.
WITH_CLIENTS := tests/metrics/test_values.py tests/metrics/test_request_log.py tests/metrics/test_alike.py \
	tests/barnabas/protocol/test_headers.py tests/barnabas/protocol/test_kio.py

test-free-threaded: $(VENV)/installed free-threaded test-tools ## the suite on it, within one process and with clusters
	mkdir -p build/free-threaded && ln -sfn ../../tests build/free-threaded/tests && cp setup.cfg build/free-threaded/
	cd build/free-threaded && PYTHON_GIL=0 ../../$(FREE_THREADED)/bin/python -P -m pytest -q -n 2 $(addprefix --ignore ,$(WITH_CLIENTS)) \
		tests/broker tests/metrics tests/controller tests/barnabas/protocol tests/barnabas/common tests/barnabas/client
	BARNABAS_PYTHON='$(abspath $(FREE_THREADED))/bin/python -X gil=0' \
		$(MAKE) clients crash stress-short churn-short eos-short

compose-test: $(VENV)/installed ## docker-compose.yml on a real engine (the one that runs, else one of its own, as root)
	$(BIN)/pytest -q tests/compose

dashboards: $(VENV)/installed ## the Grafana dashboards, from dashboards/build.py
	$(BIN)/python -m dashboards.build

golden: $(VENV)/installed test-tools ## ask Apache Kafka again what tests/compare compares with
	$(BIN)/python -m tests.compare.record

# A column more after `make free-threaded`.
bench: $(VENV)/installed test-tools ## beside Apache Kafka on this machine: a table of ratios, a picture, a line of history (BENCH=options)
	$(BIN)/python -m benchmarks $(if $(wildcard $(FREE_THREADED)/installed),--also free-threaded=$(FREE_THREADED)/bin/barnabas) $(BENCH)

# What a stranger has: the wheel, the sdist, and the sources uncompiled, each in an environment of its own.
bench-installed: $(VENV)/installed test-tools ## small requests as `bench` has them, of what pip installs (BENCH=options)
	$(BIN)/python -m tools.packages --into build/packages
	$(BIN)/python -m benchmarks --only small-32x2 --history build/packages/history.jsonl \
		$(foreach name,wheel sdist pure,--also $(name)=build/packages/$(name)/bin/barnabas) $(BENCH)

format: $(VENV)/installed ## lay the source out
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

clean: ## remove what the targets made
	rm -rf $(VENV) $(FREE_THREADED) build dist data *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis spark-warehouse
