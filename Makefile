# SPDX-License-Identifier: Apache-2.0
# Front door. The build itself is CMake (CMakePresets.json) with Ninja; tests run under CTest.

SHELL := /bin/bash
.DEFAULT_GOAL := help
JOBS ?= $(shell nproc)
# tests that time out under load or bind to one core are marked so in CMake; two at a time is safe
CTEST := ctest --output-on-failure --no-tests=error -j $(JOBS)

.PHONY: help demo check check-slow programs build asan bench format clean deps-build deps

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## /{printf "  make %-12s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

demo: deps-build programs ## install, build, run the main job (examples/paper-small.yaml) and report
	@scripts/demo.sh

check: deps build asan ## install, build, run the tests (plain and under sanitizers)
	@cd build/release && $(CTEST) -LE slow
	@cd build/asan && $(CTEST) -LE 'slow|noasan'

check-slow: deps build ## the tests that need long
	@cd build/release && $(CTEST) -L slow

# quiet unless it fails
configure = @log=$$(cmake --preset $(1) 2>&1) || { echo "$$log"; exit 1; }

programs: ## build the programs into build/release
	$(call configure,release)
	@cmake --build --preset release --target sdclab sdclab-hdf5 sdclab-train

build: ## build everything, tests too, into build/release
	$(call configure,release)
	@cmake --build --preset release

asan: ## build with address and undefined-behaviour sanitizers into build/asan
	$(call configure,asan)
	@cmake --build --preset asan

bench: deps build ## benchmarks, against peers measured in the same run
	@bench/run.sh

format: ## clang-format over our own sources
	@find bench include src tests -name '*.[ch]' | xargs clang-format -i

clean: ## remove what was built (not .venv, not campaigns)
	rm -rf build

deps-build:
	@scripts/deps.sh build

deps:
	@scripts/deps.sh all
