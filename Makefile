# `make run` runs the main job and `make test` the tests. Both do all the set-up. `make help` lists the other targets.

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
HOURS ?= 8
WORK_DIR ?= data/run

# SECURITY=sasl_ssl (ssl, sasl_plaintext): the long runs on a secured cluster.
SECURED := $(if $(SECURITY),--security $(SECURITY))

# Without a C compiler, `make unit` runs on uncompiled packages.
COMPILER := $(if $(BARNABAS_PURE),,$(shell command -v gcc cc))

# The directory of the tests' temporary files.
export TMPDIR := $(shell ./tools/scratch)

# Without .pyc files, each of hundreds of processes compiles a thousand modules again. Git ignores them.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help setup java test-tools run up test lint types unit docs compiled clients crash fuzz-short fuzz stress-short stress \
	churn-short churn eos-short eos proofs simulate simulate-short simulate-night mutants raft pipeline-test free-threaded test-free-threaded \
	compose-test dashboards bench bench-installed kafka-suites golden format clean packaging wheel

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "%-18s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

setup: $(VENV)/installed $(VENV)/connector ## the virtual environment with every dependency, and Spark's Kafka connector

# The packages are installed, not linked. The installed ones are compiled (setup.py); most tests import the uncompiled
# checkout. BARNABAS_PURE=1 needs no compiler.
$(VENV)/installed: $(VENV)/dependencies setup.py $(shell find barnabas broker controller metrics -name '*.py' -o -name '*.c')
	@[ -n "$$BARNABAS_PURE" ] || ./tools/ensure gcc:gcc
	rm -rf build/lib* build/bdist*
	$(BIN)/pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation --force-reinstall .
	$(BIN)/barnabas --version
	rm -f $(VENV)/installed-pure
	touch $@

# For `make unit` on a machine without a compiler.
$(VENV)/installed-pure: $(VENV)/dependencies setup.py $(shell find barnabas broker controller metrics -name '*.py')
	rm -rf build/lib* build/bdist*
	BARNABAS_PURE=1 $(BIN)/pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation --force-reinstall .
	$(BIN)/barnabas --version
	rm -f $(VENV)/installed
	touch $@

$(VENV)/dependencies: setup.cfg pyproject.toml
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Barnabas needs Python 3.11 or newer; set PYTHON=...")'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --disable-pip-version-check --upgrade pip setuptools wheel
	BARNABAS_PURE=1 $(BIN)/pip install --quiet --disable-pip-version-check '.[test,simulation,dev,docs,pipeline]'
	touch $@

# Resolved once, before any job: two jobs that resolve at the same time would race for one cache.
$(VENV)/connector: pipeline/spark.py | $(VENV)/installed java
	$(BIN)/python -m pipeline.spark
	touch $@

java:
	@./tools/ensure java:openjdk-17-jre-headless

test-tools: ## install the other programs that tests use (listed in tests/support/programs.py)
	@./tools/ensure javac:openjdk-17-jdk-headless mvn:maven kcat:kcat gcc:gcc promtool:prometheus ip:iproute2 \
		go:golang node:nodejs npm:npm chromium:chromium chromedriver:chromium-driver \
		krb5kdc:krb5-kdc kadmin.local:krb5-admin-server kinit:krb5-user krb5-config:libkrb5-dev \
		libgssapiv2.so:libsasl2-modules-gssapi-mit

run: setup ## cluster, ingest, delays, audit (KEEP=1 leaves the cluster up, CHAOS=1 kills a broker, SECURITY=sasl_ssl secures it; BROKERS, MONTHS, …)
	$(BIN)/python -m pipeline.run --brokers $(BROKERS) --port $(PORT) --months $(MONTHS) --work-dir $(WORK_DIR) \
		$(if $(KEEP),--keep) $(if $(CHAOS),--chaos) $(SECURED)

up: $(VENV)/installed ## a cluster in the foreground (BROKERS, PORT)
	$(BIN)/barnabas up --brokers $(BROKERS) --port $(PORT)

# With REQUIRE_TOOLS, a test without its program fails. Otherwise it is skipped, with a message that names the package.
test: test-tools ## the tests (25 minutes)
	$(MAKE) REQUIRE_TOOLS=1 lint types unit compiled clients crash

# Two at a time: each waits for half of its time, and four at once pass on a busy machine, too.
proofs: test-tools ## short runs of fuzz, stress, churn, eos and the simulation, and the Spark pipeline (12 minutes)
	$(MAKE) REQUIRE_TOOLS=1 -j 2 --output-sync=target fuzz-short stress-short churn-short eos-short
	$(MAKE) REQUIRE_TOOLS=1 simulate-short pipeline-test

lint: $(VENV)/installed ## style, imports between packages, bans
	$(BIN)/ruff check --no-cache .
	$(BIN)/ruff format --no-cache --check .

types: $(VENV)/installed ## strict static types
	$(BIN)/mypy

# Needs only Python; `make test-tools` installs the programs of its other tests. Three tests run at a time, since many of
# them wait for a process or a JVM. With worksteal, tests of a file run in one process, most of the time: their clusters
# are started once.
unit: $(if $(COMPILER),$(VENV)/installed,$(VENV)/installed-pure) ## the tests that mirror the packages
	$(BIN)/pytest -q -n 3 --dist worksteal tests --ignore tests/clients --ignore tests/crash --ignore tests/pipeline \
		--ignore tests/stress/test_stress.py --ignore tests/churn/test_churn.py \
		--ignore tests/eos/test_eos.py --ignore tests/fuzz --ignore tests/compose --ignore tests/packaging

docs: $(VENV)/dependencies ## the documentation as a site in build/docs/html, with the generated reference
	$(BIN)/python -m tools.docs

# Runs in a directory without sources, so that the installed packages are imported.
compiled: $(VENV)/installed ## the unit tests of the compiled packages, on the compiled code; a simulated life of it, and of the quorum
	mkdir -p build/compiled && ln -sfn ../../tests build/compiled/tests && cp setup.cfg build/compiled/
	$(BIN)/barnabas --version | grep ', compiled'
	cd build/compiled && ../../$(BIN)/python -P -m pytest -q -n 2 --dist worksteal tests/broker tests/metrics tests/barnabas/protocol \
		tests/barnabas/common tests/barnabas/client tests/barnabas/security tests/barnabas/cli/records \
		tests/barnabas/cli/security tests/barnabas/cli/test_main.py
	$(MAKE) raft STEPS=1000000
	compiled=$$(cd build/compiled && ../../$(BIN)/python -m tests.simulation --seed 6 | tail -n 1); \
		sources=$$($(BIN)/python -m tests.simulation --seed 6 | tail -n 1); echo "$$compiled"; \
		[ "$$compiled" = "$$sources" ] || { echo "the sources have another history: $$sources"; exit 1; }

# In one process, since building the packages takes a minute of all cores.
packaging: $(VENV)/installed ## sdist and wheel, built in isolation and installed into empty environments, where the example runs
	$(BIN)/pytest -q tests/packaging

wheel: $(VENV)/installed ## the same; keeps the sdist and this machine's wheel in dist/
	$(BIN)/pytest -q tests/packaging --packages build/packages
	mkdir -p dist && cp build/packages/dist/* dist/ && ls -l dist

# Not a part of `dev`, since it is compiled against libkrb5, which test-tools installs.
$(VENV)/gssapi: $(VENV)/dependencies | $(VENV)/installed test-tools
	$(BIN)/pip install --quiet --disable-pip-version-check 'barnabas[gssapi]'
	touch $@

clients: $(VENV)/installed test-tools $(VENV)/gssapi ## real clients and Apache Kafka's own tools against a real cluster
	$(BIN)/pytest -q -n 3 --dist loadfile tests/clients

crash: $(VENV)/installed ## processes killed under load; no acknowledged record may be lost
	$(BIN)/pytest -q -n 3 tests/crash

stress-short: $(VENV)/installed test-tools ## a few faults of every kind in a three-broker cluster under load
	$(BIN)/pytest -q tests/stress/test_stress.py

stress: $(VENV)/installed test-tools ## many faults (FAULTS, SEED, CONTROLLERS=3 or COMBINED=1, SECURITY), then the check that no acknowledged record was lost
	$(BIN)/python -m tests.stress --faults $(FAULTS) $(if $(SEED),--seed $(SEED)) \
		$(if $(CONTROLLERS),--controllers $(CONTROLLERS)) $(if $(COMBINED),--combined) $(SECURED)

fuzz-short: $(VENV)/installed ## hostile frames to every listener for a short time, then the check that nothing is lost, or handled before a login
	$(BIN)/pytest -q tests/fuzz

fuzz: $(VENV)/installed ## the same for a long time (MINUTES, SEED)
	$(BIN)/python -m tests.fuzz --minutes $(MINUTES) $(if $(SEED),--seed $(SEED))

churn-short: $(VENV)/installed ## groups of real clients join, leave, die and lose their coordinators, a few times
	$(BIN)/pytest -q tests/churn/test_churn.py

churn: $(VENV)/installed ## many such events (DEEDS, SEED, SECURITY), then the check: one owner in each generation, no offset went back
	$(BIN)/python -m tests.churn --deeds $(DEEDS) $(if $(SEED),--seed $(SEED)) $(SECURED)

eos-short: $(VENV)/installed test-tools ## exactly-once by librdkafka, the Java client and Kafka Streams, under a few kill -9
	$(BIN)/pytest -q tests/eos/test_eos.py

eos: $(VENV)/installed test-tools ## the same under many kills (KILLS, SEED, SECURITY)
	$(BIN)/python -m tests.eos --kills $(KILLS) $(if $(SEED),--seed $(SEED)) $(SECURED)

simulate: $(VENV)/dependencies ## a simulated life of a cluster (SEED, SIMULATE=options); its last line is the history's digest
	@$(BIN)/python -m tests.simulation $(if $(SEED),--seed $(SEED)) $(SIMULATE)

# Hours: up to 2,000 lives for each mistake. What was done before is kept in build/mutants.json.
mutants: $(VENV)/dependencies ## mistakes made on purpose, each of which a simulated life must notice; writes tests/simulation/MUTANTS.md (MUTANTS=options)
	$(BIN)/python -m tests.simulation.mutants $(MUTANTS)

# Fixed seeds, since a fresh one may find what nobody has explained yet: simulate-night looks for that. Not the third,
# in which kafka-python's producer spins for minutes.
simulate-short: $(VENV)/dependencies ## a few simulated lives, about a minute of two cores
	$(BIN)/python -m tests.simulation --seed 4 --runs 5 & first=$$!; \
		$(BIN)/python -m tests.simulation --seed 9 --runs 5; second=$$?; wait $$first && exit $$second

# With a C compiler, of the compiled packages, which are faster and have the same histories (`make compiled` checks it).
simulate-night: $(if $(COMPILER),$(VENV)/installed,$(VENV)/dependencies) ## simulated lives of fresh seeds on all cores (HOURS); failures in build/simulation
	$(if $(COMPILER),mkdir -p build/compiled && ln -sfn ../../tests build/compiled/tests)
	$(if $(COMPILER),cd build/compiled && )$(CURDIR)/$(BIN)/python -m tests.simulation.campaign \
		--seconds $$(($(HOURS) * 3600)) --jobs 0 --output $(CURDIR)/build/simulation $(if $(SEED),--seed $(SEED))

# Compiled, it needs 40% of the time. What was done before with the same code and seed is kept, and not done again.
raft: $(if $(COMPILER),build/raft/compiled/.done,$(VENV)/dependencies) ## the metadata quorum in simulated worlds for a long time (STEPS, SEED, JOBS); it can be stopped, and goes on
	@$(if $(COMPILER),cd build/raft/compiled && )$(CURDIR)/$(BIN)/python -m tests.controller.raft --keep $(CURDIR)/build/raft \
		$(if $(SEED),--seed $(SEED)) $(if $(STEPS),--steps $(STEPS)) $(if $(JOBS),--jobs $(JOBS))

build/raft/compiled/.done: $(VENV)/dependencies setup.py $(shell find barnabas/protocol barnabas/common controller/raft tests/controller/raft -name '*.py')
	$(BIN)/python -m tests.controller.raft.compiled build/raft/compiled
	touch $@

pipeline-test: setup ## the Spark pipeline, killed half-way and restarted
	$(BIN)/pytest -q tests/pipeline

# A second environment, with a Python without the GIL and the packages that Barnabas needs there.
free-threaded: $(FREE_THREADED)/installed ## Barnabas on a free-threaded Python, which is built if none is installed

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

# Tests that need real clients in the same process are left out. The second half runs clients against free-threaded
# brokers.
WITH_CLIENTS := tests/metrics/test_values.py tests/metrics/test_request_log.py tests/metrics/test_alike.py \
	tests/barnabas/protocol/test_headers.py tests/barnabas/protocol/test_kio.py

test-free-threaded: $(VENV)/installed free-threaded test-tools ## the tests on it: first within one process, then with clusters
	mkdir -p build/free-threaded && ln -sfn ../../tests build/free-threaded/tests && cp setup.cfg build/free-threaded/
	cd build/free-threaded && PYTHON_GIL=0 ../../$(FREE_THREADED)/bin/python -P -m pytest -q -n 2 $(addprefix --ignore ,$(WITH_CLIENTS)) \
		tests/broker tests/metrics tests/controller tests/barnabas/protocol tests/barnabas/common tests/barnabas/client
	BARNABAS_PYTHON='$(abspath $(FREE_THREADED))/bin/python -X gil=0' \
		$(MAKE) clients crash stress-short churn-short eos-short

compose-test: $(VENV)/installed ## docker-compose.yml on a real engine (the running one; else it starts one as root)
	$(BIN)/pytest -q tests/compose

dashboards: $(VENV)/installed ## the Grafana dashboards, from dashboards/build.py
	$(BIN)/python -m dashboards.build

kafka-suites: $(VENV)/installed test-tools ## Apache Kafka's own integration tests against Barnabas: hours (SUITES='--only *PlaintextConsumer*')
	$(BIN)/python -m tests.kafka_suites $(SUITES)

golden: $(VENV)/installed test-tools ## record Apache Kafka's responses again, for tests/compare
	$(BIN)/python -m tests.compare.record
	$(BIN)/python -m tests.compare.authorization.record
	$(BIN)/python -m tests.compare.share.delivery_stories
	$(BIN)/python -m tests.compare.streams.decisions

# After `make free-threaded`, with a column for it.
bench: $(VENV)/installed test-tools ## compare with Apache Kafka on this machine: a table of ratios, a picture, a line of history (BENCH=options)
	$(BIN)/python -m benchmarks $(if $(wildcard $(FREE_THREADED)/installed),--also free-threaded=$(FREE_THREADED)/bin/barnabas) $(BENCH)

# As users install it: the wheel, the sdist and the uncompiled sources, each in a separate environment.
bench-installed: $(VENV)/installed test-tools ## the small requests of `bench`, on the packages as pip installs them (BENCH=options)
	$(BIN)/python -m tools.packages --into build/packages
	$(BIN)/python -m benchmarks --only small-32x2 --no-peers --history build/packages/history.jsonl \
		$(foreach name,wheel sdist pure,--also $(name)=build/packages/$(name)/bin/barnabas) $(BENCH)

format: $(VENV)/installed ## format the source
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

clean: ## remove the targets' output
	rm -rf $(VENV) $(FREE_THREADED) build dist data *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis spark-warehouse
