# The set-up and the daily commands; `make` alone lists them. Needs GNU make 3.81 or later and Python 3.10 or later.
#
# Each stamp file in .venv says that one part is installed; it is made anew when pyproject.toml is newer. The
# package is installed as editable, so a change of its code needs no installation.

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.NOTPARALLEL:

VENV := .venv
BIN := $(VENV)/bin
RUN := runs/demo-reverse
PYTHON ?=
ARGS ?=

# pip says nothing but errors. The requirement comes last: `$(INSTALL) '.[test]'`.
INSTALL := $(BIN)/python -m pip install --disable-pip-version-check -qq --editable

.PHONY: help demo test lint oracle figures docs clean

help: ## List the commands
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "make %-8s %s\n", $$1, $$2 }' Makefile
	@echo
	@echo "PYTHON=python3.12 chooses the interpreter of a new .venv; ARGS='-k name' goes to pytest."

demo: $(VENV)/installed ## Train the reverse task (under a minute) and show where the model looks
	$(BIN)/tinygrad-attn train reverse --out $(RUN) --seed 0 --overwrite

test: $(VENV)/installed-test ## Run the tests; those that need an extra say so and are left out
	$(BIN)/python -m pytest -n auto --dist worksteal $(ARGS)

lint: $(VENV)/installed-lint ## Check style, types and the import contract
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports

oracle: $(VENV)/installed-test $(VENV)/installed-oracle ## Compare with PyTorch (installs it)
	$(BIN)/python -m pytest tests/oracle $(ARGS)

figures: demo $(VENV)/installed-browser ## Draw the pictures of the README anew, from a fresh demo (needs Chromium)
	cp $(RUN)/alignment.svg docs/images/alignment.svg
	$(BIN)/python docs/screenshot.py $(RUN)/report.html docs/images/report.png

docs: $(VENV)/installed-docs ## Build the site into site/
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet

clean: ## Remove .venv and all that was built or cached; runs/ stays
	rm -rf $(VENV) build dist site .benchmarks .hypothesis .import_linter_cache .mypy_cache .pytest_cache .ruff_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

$(VENV)/installed: $(VENV)/made pyproject.toml
	@echo "Installing tinygrad_attn into $(VENV)"
	@$(INSTALL) .
	@touch $@

$(VENV)/installed-%: $(VENV)/made pyproject.toml
	@echo "Installing tinygrad_attn with the extra '$*' into $(VENV)"
	@$(INSTALL) '.[$*]'
	@touch $@

# Editable installation without a setup.py came with pip 21.3; a newer pip is left as it is.
$(VENV)/made:
	@for python in $(or $(PYTHON),python3 python3.13 python3.12 python3.11 python3.10); do \
	  if "$$python" -c 'import sys; sys.exit(sys.version_info < (3, 10))' 2>/dev/null; then \
	    echo "Making $(VENV) with $$python"; \
	    "$$python" -m venv --clear $(VENV) || exit 1; \
	    $(BIN)/python -m pip install --disable-pip-version-check -qq 'pip>=21.3' || exit 1; \
	    touch $@; \
	    exit 0; \
	  fi; \
	done; \
	echo "make: no Python 3.10 or later found$(if $(PYTHON), as $(PYTHON)); name one with PYTHON=/path/to/python3" >&2; \
	exit 1
