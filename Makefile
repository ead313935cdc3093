# The project's commands; `.ci/run` calls `make test` and nothing else.

CARGO ?= cargo
DEMO := target/demo

.PHONY: help run test check bench clean-demo need-cargo cuda-check cuda-build

help: ## Show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "%-12s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

need-cargo:
	@command -v $(CARGO) >/dev/null 2>&1 || { \
	  echo "cargo is missing: install Rust 1.95 or later (rustup.rs), then run make again" >&2; exit 1; }
	@command -v cc >/dev/null 2>&1 || { \
	  echo "a C compiler is missing (zstd is built from source): install gcc or clang" >&2; exit 1; }

run: need-cargo ## Build the release binary and run the whole job on the bundled sample
	$(CARGO) build --release --locked --bin polysift
	$${CARGO_TARGET_DIR:-target}/release/polysift run --config tests/sample/run.toml --run $(DEMO)

test: check cuda-check ## Format, lints, docs, CUDA kernels and all tests
	$(CARGO) test --workspace --locked

check: need-cargo ## Format, lints and docs
	$(CARGO) fmt --all --check
	$(CARGO) clippy --workspace --all-targets --locked -- -D warnings
	RUSTDOCFLAGS="-D warnings" $(CARGO) doc --workspace --no-deps --locked

cuda-check: ## Compile the CUDA kernels (no GPU needed), report registers and spills, find stale images
	kernels/build.sh --check

cuda-build: ## Compile the CUDA kernels into kernels/prebuilt
	kernels/build.sh

bench: need-cargo ## Run the benchmarks
	$(CARGO) bench --locked

clean-demo: ## Remove the demo's run directory
	rm -rf $(DEMO)
