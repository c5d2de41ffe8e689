# The single door for people and for CI. `make` lists the targets.
#
# CARGO_TARGET_DIR is respected. On an apt system, as root, `setup` installs what is missing; otherwise it says
# in one line what that is.

TARGET_DIR := $(or $(CARGO_TARGET_DIR),target)
OVERDRIVE := $(TARGET_DIR)/release/overdrive
CARGO := cargo
# An optional tool: named here once, so that `check` and its message agree.
DENY_CHECKS := licenses bans sources

# Where the demo leaves its report, and what else it is told.
OUT ?= out/demo
DEMO_FLAGS ?=

PREFIX ?= /usr/local
DESTDIR ?=

# Where the side-by-side bench puts its scratch file, and what else it is told.
BENCH_DIR ?= .
BENCH_FLAGS ?=

# What the virtual machines are told: names of scenarios, --list, --verbose, --kernel 6.12, --once.
VM_FLAGS ?=

.DEFAULT_GOAL := help
.PHONY: help setup setup-build setup-vm build demo check deny test torture test-vm bench-audit bench-io bench-memory \
	bench-page bench-density bench-vm install clean

help: ## list the targets
	@sed -n 's/^\([a-z-]*\):[^#]*## \(.*\)/  \1|\2/p' $(MAKEFILE_LIST) | awk -F'|' '{ printf "%-14s %s\n", $$1, $$2 }'

setup: ## install what building and testing need, or say what is missing
	@sh xtask/setup.sh test

setup-build: ## the same for building alone: a C linker and cargo
	@sh xtask/setup.sh build

setup-vm: ## the same for test-vm: QEMU
	@sh xtask/setup.sh vm

build: setup-build ## build the release binary and the preload library
	$(CARGO) build --release --locked --package overdrive --package overdrive-preload

demo: build ## evaluate a scratch file for about a minute and write a report
	$(OVERDRIVE) evaluate --quick --out $(OUT) $(DEMO_FLAGS)

check: setup-build ## formatting, lints, tidy, documentation, licenses
	$(CARGO) fmt --all --check
	$(CARGO) clippy --workspace --all-targets --locked -- --deny warnings
	$(CARGO) xtask tidy
	CARGO_TARGET_DIR=$(abspath $(TARGET_DIR)) $(CARGO) check --manifest-path fuzz/Cargo.toml --no-default-features --locked --quiet
	RUSTDOCFLAGS="--deny warnings" $(CARGO) doc --workspace --no-deps --document-private-items --locked --quiet
	@$(MAKE) --no-print-directory deny

deny:
	@if $(CARGO) deny --version >/dev/null 2>&1; then \
		$(CARGO) deny --locked check $(DENY_CHECKS); \
	else \
		echo "cargo-deny is not installed: licenses were not checked (cargo install cargo-deny)"; \
	fi

test: setup ## run every test, then list what was skipped and why
	$(CARGO) build --locked --package overdrive-preload # the tests of extend run programs under it
	$(CARGO) xtask kernel 6.1
	$(CARGO) xtask test

torture: setup-build ## memory under the pager, ten seeds of a minute each (OVERDRIVE_TORTURE_SECONDS, _SEED, _FAIL)
	for seed in $${OVERDRIVE_TORTURE_SEED:-1 2 3 4 5 6 7 8 9 10}; do \
		OVERDRIVE_TORTURE_SEED=$$seed OVERDRIVE_TORTURE_SECONDS=$${OVERDRIVE_TORTURE_SECONDS:-60} \
		$(CARGO) test --release --locked -p overdrive-preload --test torture nothing_is_lost -- --nocapture || exit 1; \
	done

test-vm: setup-vm build ## scenarios on real NVMe drivers, each in a virtual machine
	$(CARGO) xtask vm --overdrive $(OVERDRIVE) $(VM_FLAGS)

bench-io: build ## Overdrive and fio side by side on a scratch file in BENCH_DIR
	$(CARGO) xtask bench-io --overdrive $(OVERDRIVE) --dir $(BENCH_DIR) $(BENCH_FLAGS)

bench-page: build ## swap against DRAM under a budget, in BENCH_DIR (root)
	$(CARGO) xtask bench-page --overdrive $(OVERDRIVE) --dir $(BENCH_DIR) $(BENCH_FLAGS)

bench-memory: build ## extended memory against swap, same disk and budget, in BENCH_DIR (root)
	$(CARGO) xtask bench-memory --overdrive $(OVERDRIVE) --dir $(BENCH_DIR) $(BENCH_FLAGS)

bench-vm: setup-vm build ## instructions per I/O against fio's, counted in a virtual machine
	$(CARGO) xtask vm --bench --overdrive $(OVERDRIVE) $(VM_FLAGS)

bench-density: setup build ## Redis servers on DRAM, on swap and on extended memory inside an objective (root)
	$(CARGO) xtask bench-density --overdrive $(OVERDRIVE) --dir $(BENCH_DIR) $(BENCH_FLAGS)

bench-audit: build ## how long a full audit of this host takes
	$(CARGO) xtask bench-audit --overdrive $(OVERDRIVE) $(BENCH_FLAGS)

install: build ## install binary, library, header, man page and completions into bin, lib, include and share below PREFIX
	install -D -m 755 $(OVERDRIVE) $(DESTDIR)$(PREFIX)/bin/overdrive
	install -D -m 644 $(TARGET_DIR)/release/libovermem.so $(DESTDIR)$(PREFIX)/lib/overdrive/libovermem.so
	install -D -m 644 crates/preload/include/overmem.h $(DESTDIR)$(PREFIX)/include/overmem.h
	$(OVERDRIVE) man | install -D -m 644 /dev/stdin $(DESTDIR)$(PREFIX)/share/man/man1/overdrive.1
	$(OVERDRIVE) completions bash | \
		install -D -m 644 /dev/stdin $(DESTDIR)$(PREFIX)/share/bash-completion/completions/overdrive

clean: ## remove what was built and the demo's output
	$(CARGO) clean
	rm -rf out
