# Every target sets itself up from a bare clone; ARGS= is handed on.
SHELL := /bin/sh
PYTHON_IN_VENV := .venv/bin/python
UV := $(shell command -v uv || echo .venv-uv/bin/uv)
COMPILE := $(UV) pip compile --quiet --universal --generate-hashes --python-version 3.11 \
	--no-emit-index-url --custom-compile-command "make lock"

.DEFAULT_GOAL := help
.PHONY: help setup demo test check bench interop format lock proto wheel-check clean

help: ## say what there is
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-12s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

setup: ## make .venv from the lock (every target below does it by itself)
	@tools/setup.sh

demo: setup ## a small network on this machine, a block going through it
	@.venv/bin/bruit demo $(ARGS)

test: setup ## the tests; ARGS="-k mesh -x" to choose
	@.venv/bin/pytest $(ARGS)

check: setup ## lint, format, types, the rules of the house, and that it is not slow
	@.venv/bin/ruff check .
	@.venv/bin/ruff format --check .
	@.venv/bin/mypy
	@$(PYTHON_IN_VENV) tools/check_house.py
	@$(PYTHON_IN_VENV) tools/conformance.py --check
	@$(PYTHON_IN_VENV) -m bench.smoke

format: setup ## write the format that check asks for
	@.venv/bin/ruff check --fix-only .
	@.venv/bin/ruff format .

bench: setup ## beside py-libp2p, js, go and rust; ARGS="--only ours --cases graph" to choose
	@$(PYTHON_IN_VENV) -m bench.mesh $(ARGS)

interop: setup ## with go, js and rust over loopback; ARGS="--peers go --only signed" to choose
	@$(PYTHON_IN_VENV) -m tests.interop $(ARGS)

wheel-check: setup ## build the wheel, install it in an empty environment, import all of it
	@$(PYTHON_IN_VENV) tools/check_wheel.py

proto: setup ## write the *_pb2 files anew from the .proto files
	@test -x .venv-proto/bin/protoc-gen-mypy || $(PYTHON_IN_VENV) -m venv .venv-proto
	@.venv-proto/bin/pip install --quiet --disable-pip-version-check --require-hashes -r tools/proto.lock
	@.venv-proto/bin/python -m grpc_tools.protoc --proto_path=. --python_out=. \
		--plugin=protoc-gen-mypy=.venv-proto/bin/protoc-gen-mypy --mypy_out=quiet:. \
		$$(find -L bruit -name '*.proto' | sort)

lock: $(UV) ## resolve the dependencies; ARGS=--upgrade for newer versions
	@$(COMPILE) $(ARGS) --extra dev --output-file requirements.lock pyproject.toml
	@$(COMPILE) $(ARGS) --group proto --output-file tools/proto.lock

.venv-uv/bin/uv:
	@python3 -m venv .venv-uv
	@.venv-uv/bin/pip install --quiet --disable-pip-version-check uv

clean: ## remove what these targets made, the environments too
	rm -rf .venv .venv-proto .venv-uv build dist .hypothesis .mypy_cache .pytest_cache .ruff_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
