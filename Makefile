# Everything a person types. `make` alone prints the list.
PYTHON ?= python3
VENV   ?= .venv
BIN    := $(VENV)/bin
PIP    := $(BIN)/python -m pip --quiet --disable-pip-version-check
OUT    ?= out
# Which RabbitMQ `make containers-test` runs: 4.0 or 4.3.
RABBITMQ ?= 4.0
export PYTHONUNBUFFERED = 1

.DEFAULT_GOAL := help
.PHONY: help run test chaos check format services bench clean
.PHONY: help run test check format services secrets containers-test bench clean
.PHONY: help run test check format services bench dashboards clean

help: ## Print this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-16s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

$(VENV)/.made:
	$(PYTHON) -m venv $(VENV)
	$(PIP) install --constraint constraints.txt pip
	@touch $@

$(VENV)/.run: $(VENV)/.made pyproject.toml constraints.txt
	$(PIP) install --constraint constraints.txt --editable '.[plot]'
	@touch $@

$(VENV)/.dev: $(VENV)/.run
	$(PIP) install --constraint constraints.txt --group dev --editable '.[plot,torch]'
	@touch $@

run: $(VENV)/.run ## Explain 1,797 digits with the embedded broker on all cores, and draw a dozen of them
	@mkdir -p $(OUT)
	$(BIN)/overnight run shapley --data data/digits/digits.npy --output $(OUT)/attributions.npy
	$(BIN)/python -m overnight_consumer.methods.shapley.picture --data data/digits/digits.npy \
		--results $(OUT)/attributions.npy --output $(OUT)/digits.png
	@echo "The picture is in $(OUT)/digits.png"

test: $(VENV)/.dev services ## Run all tests, RabbitMQ's included
	$(BIN)/python -m pytest

chaos: $(VENV)/.dev services ## Kill and cut everything for a minute a seed: SEED= SEEDS= SECONDS= BROKER=embedded|rabbitmq
	PYTHONPATH=tests $(BIN)/python -m chaos.run $(if $(SEED),--seed $(SEED)) --seeds $(or $(SEEDS),1) \
		--seconds $(or $(SECONDS),60) --broker $(or $(BROKER),embedded)

check: $(VENV)/.dev ## Check format, style, types and who imports whom
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-logo

format: $(VENV)/.dev ## Put the code into its format
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

services: ## Get RabbitMQ and Prometheus from Debian's packages if they are missing
	@sh tests/support/get_services.sh

secrets: ## Make the passwords of the farm, once, in deploy/secrets
	@$(PYTHON) deploy/make_secrets.py

containers-test: $(VENV)/.dev ## Build the images and disturb a whole farm on a private Docker engine; RABBITMQ=4.3 for that version
	PYTHONPATH=tests $(BIN)/python tests/deploy/containers.py --rabbitmq $(RABBITMQ)

bench: $(VENV)/.dev services ## Measure speed, beside Celery, Dramatiq and taskiq
	$(PIP) install --constraint constraints.txt --group bench
	$(BIN)/python -m pytest -m benchmarks -s tests/benchmarks

dashboards: $(VENV)/.dev ## Write the Grafana dashboards anew from their source
	$(BIN)/python deploy/grafana/build.py

clean: ## Remove the virtual environment, caches and results
	rm -rf $(VENV) $(OUT) .overnight .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
