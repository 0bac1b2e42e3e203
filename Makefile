# Everything a developer does, by name. `make` alone lists the targets.
PYTHON  ?= $(shell command -v python3.11 || command -v python3)
WORKERS ?= 2
OUT     ?= out/lab
BIN     := .venv/bin
READY   := .venv/.ready

.DEFAULT_GOAL := help
.PHONY: help setup demo test test-matrix wheel storm bounds mutants faults check soak lab report docs services services-stop browser clean

help: ## list the targets
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## (.*)/  make \1\t\2/' | expand -t 20

setup: $(READY) ## make .venv with Penstock and its tools (again only when pyproject.toml changes)
	@echo "ready: .venv"

$(READY): pyproject.toml
	@echo "setting up .venv with $$($(PYTHON) --version) ..."
	@test -x $(BIN)/python || $(PYTHON) -m venv .venv
	@$(BIN)/python -m pip install -qq --disable-pip-version-check --editable '.[dev]'
	@touch $@

demo: $(READY) ## a short story on local Spark: five streams, a dozen queries; results in out/demo
	@rm -rf out/demo
	@$(BIN)/penstock demo

test: $(READY) ## every test but those of make faults and make soak
	$(BIN)/python -m pytest -n $(WORKERS) -m "not soak and not faults"

test-matrix: ## a selection of the tests on Python 3.11, 3.12 and 3.13, lowest and newest dependencies (ARGS=...)
	$(PYTHON) scripts/run_matrix.py $(ARGS)

wheel: ## build the wheel, install it on Python 3.11, 3.12 and 3.13, measure imports and first results (ARGS=...)
	$(PYTHON) scripts/check_wheel.py $(ARGS)

storm: $(READY) ## random storms from a random first seed until stopped, or for MINUTES=...; failing seeds are listed
	@$(BIN)/python tests/storm/endless.py $(if $(MINUTES),--minutes $(MINUTES)) $(if $(FIRST),--first $(FIRST))

bounds: $(READY) ## the law and the storm with bounds checks in every compiled kernel
	NUMBA_BOUNDSCHECK=1 NUMBA_CACHE_DIR=$(CURDIR)/out/bounds $(BIN)/python -m pytest -n $(WORKERS) \
		tests/law tests/storm tests/state/test_kernels.py tests/state/test_bounds_check.py tests/ops/test_kernels.py

mutants: $(READY) ## break every rule of just-in-time state and of maintenance and see that the tests notice
	$(BIN)/python -m pytest -n $(WORKERS) tests/law/test_mutants.py tests/law/test_maintenance_mutants.py

faults: $(READY) ## fifty seeded faults on Spark: tasks, workers, sinks, Java and commands; results exact each time
	$(BIN)/python -m pytest -n $(WORKERS) tests/spark/test_faults.py

check: $(READY) ## lint, format, types and the imports between rooms
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-logo

soak: $(READY) ## the long tests
	$(BIN)/python -m pytest -n $(WORKERS) -m soak

lab: $(READY) ## measure the engine: tables, JSON and figures in out/lab
	$(BIN)/penstock lab all --out $(OUT) --json $(OUT)/lab.json

report: $(READY) ## make lab, and keep its report as docs/report/DATE.html (ARGS=--quick)
	-$(BIN)/penstock lab all $(ARGS) --out $(OUT)
	@mkdir -p docs/report && rm -f docs/report/*.html
	cp $(OUT)/report.html docs/report/$$(date -u +%Y-%m-%d).html

services: $(READY) ## start Kafka and PostgreSQL on loopback for the tests of connectors; installs what is missing
	@$(BIN)/python scripts/services.py start --install

services-stop: $(READY) ## stop what make services started
	@$(BIN)/python scripts/services.py stop

browser: ## install Chromium for the browser tests (Debian's package, as root), if there is none
	@$(PYTHON) scripts/install_browser.py

docs: $(READY) ## the documentation as a site in out/site; warnings are errors
	@$(BIN)/python -m pip install -qq --disable-pip-version-check --editable '.[docs]'
	@$(BIN)/python scripts/fetch_mermaid.py
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet

clean: ## remove what was built (.venv stays; delete it by hand)
	@test ! -e build/services/state.json || $(PYTHON) scripts/services.py stop
	rm -rf build dist out .pytest_cache .mypy_cache .ruff_cache .hypothesis *.egg-info
	find penstock tests -name __pycache__ -type d -prune -exec rm -rf {} +
