# Needs only Python 3.11 or newer and make: `make dev` runs Signoff, `make test` tests it; `make demo STORY=edit` plays another story.

PYTHON ?= python3
PY := .venv/bin/python
DOCS := NO_MKDOCS_2_WARNING=1 $(PY) -m mkdocs
PIP := $(PY) -m pip install --quiet --disable-pip-version-check
# Each file is checked against its hash in tools/locks/. What builds a package from source is locked, too: pip fetches none.
LOCKED := $(PIP) --require-hashes --no-build-isolation
# A checkout without links is installed as a copy, since its src/signoff lacks what the links lead to.
EDITABLE := $(if $(shell test -L src/signoff/worker.py && echo links),-e)
# What running the examples needs, and what working on Signoff needs besides.
READY := .venv/.installed
TESTS := .venv/.installed-tests
OPENID := tests/openid_server/node_modules/.package-lock.json
CERBOS := tests/cerbos/node_modules/.package-lock.json
MCP := tests/mcp_packages/node_modules/.package-lock.json
VERCEL := tests/vercel_packages/node_modules/.package-lock.json

.PHONY: dev docs demo demo-channels demo-deciding demo-external test test-all rehearsal ready-all lint bench bench-peers kills histories mutants release lock clean

dev: $(READY)
	@.venv/bin/signoff dev examples/travel_desk/signoff.yaml

demo: $(READY)
	@cd examples && ../$(PY) -m demo $(STORY)

demo-channels: $(TESTS)
	@cd examples && ../$(PY) -m demo channels

demo-deciding: $(TESTS)
	@cd examples && ../$(PY) -m demo deciding

demo-external: $(TESTS)
	@cd examples && ../$(PY) -m demo external

# Compiled once, not by each of the hundreds of processes that the tests start.
# With SIGNOFF_THOROUGH=1 the costliest properties are tried on all of their examples, not on half of them.
test: export PYTHONDONTWRITEBYTECODE =
test: $(TESTS)
	$(PY) -m pytest -n auto --dist loadfile --no-loadscope-reorder

# With the attacks, the browser, the demos and what else takes seconds or processes of its own; nothing is left out.
test-all: export SIGNOFF_REQUIRE_ALL = 1
test-all: $(OPENID) $(CERBOS) $(MCP) $(VERCEL) test

# Plays what takes minutes and seldom breaks, see docs/internal/rehearsal.md. `make release` starts with it.
rehearsal: export SIGNOFF_REQUIRE_ALL = 1
rehearsal: export PYTHONDONTWRITEBYTECODE =
rehearsal: $(OPENID) $(TESTS)
	$(PY) -m pytest -m rehearsal -n auto

# What `make test-all` needs, and its files compiled: each of its processes would compile all of them. What cannot be
# imported is told by the tests.
ready-all: export PYTHONDONTWRITEBYTECODE =
ready-all: $(OPENID) $(CERBOS) $(MCP) $(VERCEL) $(TESTS)
	@$(PY) -m pytest --collect-only -q >/dev/null || true

lint: $(TESTS)
	.venv/bin/ruff check .
	.venv/bin/ruff format --check .
	.venv/bin/mypy
	.venv/bin/lint-imports
	$(PY) -m tools.prose
	$(DOCS) build

# Serves the documents as a site on port 8000.
docs: $(TESTS)
	$(DOCS) serve

bench: $(TESTS)
	$(PY) -m tools.bench

# Beside Pydantic AI and LangGraph, which it installs. It needs Debian's postgresql.
bench-peers: $(TESTS)
	$(LOCKED) -r tools/locks/build.txt -r tools/locks/dev.txt -r tools/locks/test.txt -r tools/locks/bench.txt
	$(PY) -m tools.bench.peers

# Kills worker, gateway and Temporal server under load at moments that SEED determines, then checks the journals of the run.
kills: $(TESTS)
	@$(PY) -m tools.bench.kills --minutes $(or $(MINUTES),12) $(if $(SEED),--seed $(SEED)) $(if $(STORE),--store $(STORE))

# Records what later versions have to replay: all scenarios, or those of SCENARIOS.
histories: $(TESTS)
	@PYTHONPATH=tests $(PY) tests/histories/record.py $(SCENARIOS)

mutants: $(TESTS)
	$(LOCKED) -r tools/locks/build.txt -r tools/locks/dev.txt -r tools/locks/test.txt -r tools/locks/mutants.txt
	$(PY) -m tools.mutants $(AREAS)

# REHEARSE=1 goes on where the version is not ready to be released, UNAUDITED=1 where advisories cannot be looked up.
release: $(TESTS) rehearsal
	@$(LOCKED) -r tools/locks/build.txt -r tools/locks/dev.txt -r tools/locks/test.txt -r tools/locks/release.txt
	@$(PY) -m tools.release $(if $(REHEARSE),--rehearse) $(if $(UNAUDITED),--unaudited)

# Writes tools/locks/ anew, after a change of pyproject.toml or of a version in constraints.txt.
lock: $(TESTS)
	@$(LOCKED) -r tools/locks/build.txt -r tools/locks/dev.txt -r tools/locks/test.txt -r tools/locks/release.txt
	@PATH=$(CURDIR)/.venv/bin:$$PATH $(PY) -m tools.release.locks

clean:
	rm -rf .venv build dist mutants .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis

$(READY): pyproject.toml tools/locks/build.txt tools/locks/dev.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || \
		{ echo "Signoff needs Python 3.11 or newer: run make PYTHON=/path/to/python3.11" >&2; exit 1; }
	@echo "Setting up .venv (once, about a minute)"
	@$(PYTHON) -m venv .venv || \
		{ echo "python3 could not make a virtual environment: on Debian, apt-get install python3-venv" >&2; exit 1; }
	@$(LOCKED) -r tools/locks/build.txt
	@$(LOCKED) -r tools/locks/build.txt -r tools/locks/dev.txt
	@$(PIP) --no-deps --no-build-isolation $(EDITABLE) .
	@touch $(READY)

$(TESTS): $(READY) tools/locks/test.txt
	@echo "Adding what the tests need (once)"
	@$(LOCKED) -r tools/locks/build.txt -r tools/locks/dev.txt -r tools/locks/test.txt
	@touch $(TESTS)

$(OPENID): tests/openid_server/package-lock.json
	@npm ci --silent --no-audit --no-fund --prefix tests/openid_server
	@touch $(OPENID)

$(CERBOS): tests/cerbos/package-lock.json
	@npm ci --silent --no-audit --no-fund --prefix tests/cerbos
	@touch $(CERBOS)

$(MCP): tests/mcp_packages/package-lock.json
	@npm ci --silent --no-audit --no-fund --prefix tests/mcp_packages
	@touch $(MCP)

$(VERCEL): tests/vercel_packages/package-lock.json
	@npm ci --silent --no-audit --no-fund --prefix tests/vercel_packages
	@touch $(VERCEL)
