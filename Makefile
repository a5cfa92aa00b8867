# The two commands of the README, and what they need.
#   make demo   set up and analyse the sample that comes with htk
#   make test   set up and pass the tests
# Beside them: make lint, make docs, make menu, make mutation, make fuzz, make nightly, make wheels;
# CONTRIBUTING.md says what each does.

PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
CONSTRAINTS := .ci/constraints.txt
MEASURE := PYTHONPATH=. $(BIN)/python bench
MUTANTS ?= 40
SECONDS_OF_FUZZING ?= 30

NIGHTLY := tests properties truth whatifs communication links fuzz mutation kills counts options soak licences pyright oldest newest

.PHONY: demo test nightly quality $(NIGHTLY:%=nightly-%) lint style mypy types menu mutation fuzz bench docs wheels clean

demo:
	@begun=$$(date +%s); \
	echo "Setting up htk in $(VENV) (some 400 MB, once)"; \
	$(MAKE) --silent $(VENV)/.base || exit 1; ready=$$(date +%s); \
	echo "Analysing the sample: two ranks of a small training run ($(BIN)/htk summary sample)"; echo; \
	$(BIN)/htk summary sample || exit 1; \
	echo; \
	echo "Your own traces:  $(BIN)/htk summary PATH    a file, or the folder with all ranks"; \
	echo "In a browser:     $(BIN)/htk dashboard PATH; all questions: $(BIN)/htk --help"; \
	echo "It took $$((ready - begun)) s to set up and $$(($$(date +%s) - ready)) s to analyse."

# One worker more than processors: tests wait for servers and browsers two fifths of the time. A
# module's fixtures are made once.
test: $(VENV)/.dev
	env -u PYTHONDONTWRITEBYTECODE $(BIN)/pytest --dist loadfile \
		-n $$($(BIN)/python -c 'import os; print((os.cpu_count() or 1) + 1)')

# What takes too long for each change; `make -k nightly` goes on after a failure.
nightly: $(NIGHTLY:%=nightly-%)

nightly-tests: $(VENV)/.dev  # those that are marked so
	$(BIN)/pytest -n auto -m nightly

nightly-properties: $(VENV)/.dev  # other and more examples of the properties
	$(BIN)/pytest -n auto -m 'hypothesis and not nightly' --hypothesis-profile=nightly

nightly-truth: $(VENV)/.dev  # other random recordings each time, each answer held to their truth
	PYTHONPATH=. $(BIN)/python -m bench.truth --seeds 10000 --first $$(date +%s)

nightly-communication: $(VENV)/.dev  # other random jobs each time, each call held to a plain reading
	PYTHONPATH=. $(BIN)/python -m bench.communication --seed $$(date +%s)

nightly-whatifs: $(VENV)/.dev  # other random jobs and edits each time, held to the simulated twins
	PYTHONPATH=. $(BIN)/python -m bench.whatif_properties --runs 5000 --seed $$(date +%s)

nightly-links: $(VENV)/.dev  # other random networks, healthy and with a slow link, of 8 to 1,024 ranks
	PYTHONPATH=. $(BIN)/python -m bench.links --jobs 30 --seed $$(date +%s)

# The figures of docs/quality.md are noted as they are measured; `make quality` writes the page.
nightly-fuzz: $(VENV)/.base  # the compiled parts, for an hour
	native/fuzz/run 3600 $(BIN)/python bench/quality/fuzz.json

nightly-mutation: $(VENV)/.dev  # other small mistakes each time
	$(MEASURE)/mutation.py --mutants 150 -o bench/quality/mutation.json

nightly-kills: $(VENV)/.dev  # readers killed while they write into one cache
	$(MEASURE)/kills.py -o bench/quality/kills.json

nightly-counts: $(VENV)/.dev  # every integer of every sample, absurd
	PYTHONPATH=. $(BIN)/python -m bench.hostile_counts --all

nightly-options: $(VENV)/.dev  # random options of every command
	PYTHONPATH=. $(BIN)/python -m bench.option_fuzz --runs 5000

nightly-soak: $(VENV)/.dev  # both servers under twenty clients for half an hour
	$(MEASURE)/soak.py -o bench/quality/soak.json

nightly-pyright: $(VENV)/.dev  # types once more, as editors read them
	$(BIN)/pyright --pythonpath $(BIN)/python

nightly-licences: $(VENV)/.dev  # of all that an installation brings
	$(MEASURE)/licences.py

quality: nightly-fuzz nightly-mutation nightly-kills nightly-soak
	$(MEASURE)/damage.py -o bench/quality/damage.json
	$(MEASURE)/quality.py

bench: $(VENV)/.dev  # every benchmark of speed, as docs/benchmarks.md; TRACELENS=CHECKOUT beside it
	PYTHONPATH=. $(BIN)/python -m bench $(if $(TRACELENS),--tracelens $(TRACELENS))

nightly-oldest nightly-newest: nightly-%:  # packages, in an environment of their own
	.ci/dependencies $* $(PYTHON)

lint: style mypy types  # `make -j2 lint` runs two at a time

style: $(VENV)/.dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports

mypy: $(VENV)/.dev
	$(BIN)/mypy

types:  # of the pages' scripts, where node is installed
	@if command -v npx >/dev/null; then npx --yes --package typescript@5.9.3 tsc -p .; \
	else echo "node is not installed: the types of the scripts are not checked"; fi

fuzz: $(VENV)/.base  # the compiled parts, with sanitizers
	native/fuzz/run $(SECONDS_OF_FUZZING) $(BIN)/python

mutation: $(VENV)/.dev  # how many small mistakes in the code that makes numbers the tests notice
	$(MEASURE)/mutation.py --mutants $(MUTANTS)

docs: $(VENV)/.dev
	PYTHONPATH=. $(BIN)/mkdocs build
	@echo "Open build/site/index.html"

# The source and the wheels of every platform into dist/, cross-compiled; tried where this machine can.
wheels: build/wheels/.tools
	build/wheels/bin/python .ci/wheels.py
	.ci/try-wheels

build/wheels/.tools: .ci/wheels.txt
	@$(PYTHON) -m venv build/wheels
	@build/wheels/bin/pip install -qq --disable-pip-version-check -r .ci/wheels.txt
	@touch $@

menu: $(VENV)/.dev
	$(BIN)/python -m htk.analyses.menu
	$(BIN)/python docs/site/pages.py

clean:
	rm -rf $(VENV) build dist *.egg-info htk/base/native/*.so

ALL_EXTRAS := .[all,dev,hta,torch,trainers]  # by name: commas would part the arguments of call

# What pip says, its warnings too, is shown where it fails.
define install
$(BIN)/pip install --quiet --disable-pip-version-check -c $(CONSTRAINTS) $(1) >$(VENV)/install.log 2>&1 \
	|| { cat $(VENV)/install.log; exit 1; }
endef

SOURCES := pyproject.toml setup.py MANIFEST.in $(CONSTRAINTS) $(wildcard native/*.cpp native/*.h native/*/*.cpp native/*/*.h)

$(VENV)/.base: $(SOURCES)
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(call install,-e '.[all]')
	touch $@

# torch records the sample traces and stands beside the tests that read its files; the CPU build
# that the constraints name is enough. All that `.base` installs is in it: built once. Of its 28,000
# modules most are never imported: the others are compiled as they are.
$(VENV)/.dev: $(SOURCES)
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(call install,--no-compile -e '$(strip $(ALL_EXTRAS))')
	touch $(VENV)/.base $@
