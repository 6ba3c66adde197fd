# Everything runs in a virtual environment of its own, .venv, made by the first target that needs it.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# torch is for the tests that record. Set TORCH to nothing to leave it out; they are then skipped, loudly.
TORCH ?= torch==2.13.0
comma := ,
# The tests start hundreds of processes. Compiled files take a third off each start, so an environment may not forbid them.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help setup demo test test-slow coverage oldest wheel check bench calibration reports clean

help: ## say what each target does
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  make %-12s %s\n", $$1, $$2}'

setup: $(VENV)/ready-test ## make the virtual environment with all that the tests need

$(VENV)/ready: pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --editable .
	@touch $@

$(VENV)/ready-test: $(VENV)/ready
	$(if $(TORCH),$(BIN)/python -m pip install --quiet "$(TORCH)")
	$(BIN)/python -m pip install --quiet --editable '.[dev$(if $(TORCH),$(comma)integrations)]'
	bash .ci/browser
	@touch $@

demo: $(VENV)/ready ## analyse a bundled recording of a GPT training step and leave its report, demo.html
	$(BIN)/profkit analyze tests/data/nsys/gpt_bf16.sqlite.gz --plain-step 38.3ms -o demo.html
	$(BIN)/profkit analyze tests/data/nsys/gpt_bf16.sqlite.gz --plain-step 38.3ms --format text -o -

test: check ## check style, types and layers, and run the tests but for the slow ones
	$(BIN)/python -m pytest --numprocesses 2 --dist loadgroup -m "not slow"

test-slow: $(VENV)/ready-test ## run the slow tests: each takes seconds, since it runs whole programs or many files
	$(BIN)/python -m pytest --numprocesses 2 --dist loadgroup -m slow

coverage: $(VENV)/ready-test ## run all tests and print which lines of profkit they reach
	$(BIN)/python -m pytest --numprocesses 2 --dist loadgroup --cov profkit --cov-branch --cov-report term:skip-covered

oldest: ## run the tests with each dependency at its lower bound in pyproject.toml; without torch and browser
	$(PYTHON) -m venv --clear $(VENV)-oldest
	$(VENV)-oldest/bin/python -m pip install --quiet uv
	$(VENV)-oldest/bin/uv pip install --quiet --python $(VENV)-oldest/bin/python --resolution lowest-direct --editable '.[test]'
	$(VENV)-oldest/bin/python -m pytest --numprocesses 2 --dist loadgroup -m 'not torch and not browser'

wheel: $(VENV)/ready-test ## build dist/, install the wheel in an empty environment, and try it there
	$(BIN)/python -m pip install --quiet build
	rm -rf dist
	$(BIN)/python -m build --outdir dist
	$(PYTHON) -m venv --clear $(VENV)-wheel
	$(VENV)-wheel/bin/python -m pip install --quiet dist/*.whl
	PROFKIT_INSTALLED=$(VENV)-wheel/bin/python $(BIN)/python -m pytest tests/packaging/test_wheel.py

check: $(VENV)/ready-test ## style, types and layers only
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

reports: $(VENV)/ready ## make the sample reports in reports/samples again
	$(BIN)/python reports/samples/make.py

bench: $(VENV)/ready ## measure speed and memory; BENCH="--big --peers" adds 1 GB and other tools
	$(BIN)/python reports/bench/bench.py $(BENCH)

calibration: $(VENV)/ready ## compare the model with the hardware counters in reports/calibration/data again
	$(BIN)/python reports/calibration/analyse.py

clean: ## remove what the other targets made
	rm -rf $(VENV) $(VENV)-oldest $(VENV)-wheel dist demo.html .mypy_cache .ruff_cache .pytest_cache .hypothesis
