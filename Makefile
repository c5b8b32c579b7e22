# Everything a user or a developer of runahead needs, on a fresh Debian machine.
#
#   make demo             sets up and shows the main job
#   make test             sets up and runs all tests
#   make test-full        sets up and runs all tests at length, and part of other projects' suites
#                         (BUDGET)
#   make bench [ROW=name] measures, and writes BENCHMARKS.md
#   make install          puts runahead into PREFIX/bin, and the C libraries for programs beside it

PREFIX ?= /usr/local
PAIRS ?= 5
CARGO ?= cargo
BIN := target/release
# C libraries for programs, runahead_NAME: each is crate runahead-client with one feature.
BINDINGS := disclose speculate
# runahead itself is linked statically where Rust's musl target is installed: it starts in half the
# time, and runs on any distribution.
STATIC := $(shell uname -m)-unknown-linux-musl
RUNAHEAD = $(if $(or $(wildcard $(shell rustc --print target-libdir --target $(STATIC) 2>/dev/null)),$\
	$(and $(BUILT),$(wildcard target/$(STATIC)/release/runahead))),$\
	target/$(STATIC)/release/runahead,$(BIN)/runahead)

.PHONY: all build runahead tools bindings demo test test-full bench lint install install-bindings setup clean \
	$(BINDINGS:%=bindings-%) $(BINDINGS:%=install-bindings-%)

all: build

build: runahead bindings

# Builds runahead, and PROGRAMS, for one target.
runahead:
	$(CARGO) build --release --locked --package runahead-cli $(PROGRAMS) \
	    $(if $(findstring $(STATIC),$(RUNAHEAD)),--target $(STATIC))

# Builds the benches, and the harness for other projects' test suites.
tools:
	$(CARGO) build --release --locked --package runahead-bench --package runahead-suites --package runahead-testbed \
	    --package runahead-tests

# C libraries by which programs disclose what they will read (docs/guide/disclosure.md) and predict
# answers (docs/guide/speculation.md). They have no runtime, so each is built by itself.
VERSION = $(shell sed -n 's/^version = "\(.*\)"/\1/p' Cargo.toml)
SONAME = librunahead_$*.so.0
LIBRARY = $(CARGO) rustc --release --locked --package runahead-client --features c-$* --target-dir target/bindings/$*
BUILT_LIBRARY = target/bindings/$*/release/librunahead_client

bindings: $(BINDINGS:%=bindings-%)

$(BINDINGS:%=bindings-%): bindings-%:
	$(LIBRARY) --crate-type staticlib
	$(LIBRARY) --crate-type cdylib -- -C link-arg=-Wl,-soname,$(SONAME)
	install -d $(BIN)
	install -m 644 $(BUILT_LIBRARY).a $(BIN)/librunahead_$*.a
	install -m 755 $(BUILT_LIBRARY).so $(BIN)/librunahead_$*.so

# Installs what the demo (SETUP=demo), the tests (test), the benches (bench, the default) or
# everything (full) needs beyond Rust. Without root nothing is installed, and each program that
# misses a package names it.
setup:
	@scripts/setup $(SETUP)

demo: SETUP := demo
demo: PROGRAMS := --package runahead-testbed
demo: setup runahead
	@scripts/demo $(RUNAHEAD) $(dir $(RUNAHEAD))runahead-testbed

test: SETUP := test
test: setup runahead
	RUNAHEAD_BIN=$(abspath $(RUNAHEAD)) $(CARGO) test --workspace --locked

# Runs all cases of our own, and the test suites of other projects; a failure does not stop the
# rest. From each of those suites it runs units in a random order for BUDGET. BUDGET=whole runs
# all units, which takes a day. The order is printed, and repeated by SEED. The first time, the
# suites are also downloaded and built, which takes another hour: `runahead-suites prepare`. Then
# PLANTED, some of the suites, run with predictions planted in all their processes, right and
# wrong ones (docs/design/speculation.md).
BUDGET ?= 2m
PLANTED := bash coreutils git scripts
CHOSEN = $(if $(filter whole,$(BUDGET)),,--budget $(BUDGET)) $(if $(SEED),--seed $(SEED))
test-full: SETUP := full
test-full: PROGRAMS := --package runahead-testbed
test-full: setup build tools
	status=0; \
	RUNAHEAD_BIN=$(abspath $(RUNAHEAD)) RUNAHEAD_FULL=1 $(CARGO) test --workspace --locked \
	    --features runahead-suites/full --no-fail-fast || status=$$?; \
	scripts/keys-in-a-vm $(RUNAHEAD) || status=$$?; \
	scripts/older-kernel $(RUNAHEAD) || status=$$?; \
	$(BIN)/runahead-suites run --all $(CHOSEN) --runahead $(abspath $(RUNAHEAD)) --write-md target/suites.md || status=$$?; \
	$(BIN)/runahead-suites run --all --speculate $(PLANTED:%=--suite %) $(CHOSEN) || status=$$?; \
	exit $$status

# ROW=everyday runs everyday commands with real packages, and writes a table for each of seven
# kinds of storage (STORAGE=name: for one of them). It makes a Debian system of 8 GB once, in
# EVERYDAY.
EVERYDAY ?= /var/tmp/runahead-everyday
ifeq ($(ROW),everyday)
bench: setup build tools
	scripts/everyday-root $(EVERYDAY)
	$(BIN)/runahead-bench run --root $(EVERYDAY) --runahead $(RUNAHEAD) --pairs $(PAIRS) \
	    --row everyday$(if $(STORAGE),-$(STORAGE)) --write-md docs/figures/everyday.md
else ifeq ($(ROW),speculate)
bench: setup build tools
	$(BIN)/runahead-bench speculate --runahead $(RUNAHEAD) --write-md docs/figures/speculation.md
# ROW=syncs writes a line of figures for each run, for plots.
else ifeq ($(ROW),syncs)
bench: setup build tools
	$(BIN)/runahead-bench syncs --runahead $(RUNAHEAD) --write-csv target/syncs.csv
else
bench: setup build tools
	$(BIN)/runahead-bench run --runahead $(RUNAHEAD) --pairs $(PAIRS) $(if $(ROW),--row $(ROW)) --write-md BENCHMARKS.md
endif

lint:
	$(CARGO) fmt --all --check
	$(CARGO) clippy --workspace --all-targets --locked -- -D warnings
	$(CARGO) clippy --package runahead-agent --features fault-injection --locked -- -D warnings
	$(CARGO) clippy --package runahead-client --features c-disclose,c-speculate --locked -- -D warnings
	scripts/deny

# "yes" if root (sudo) can install what a user has built, rather than build it again without the
# user's Rust.
BUILT = $(shell [ "$$(id -u)" = 0 ] && [ -x $(BIN)/runahead -o -x target/$(STATIC)/release/runahead ] \
	$(BINDINGS:%=&& [ -e $(BIN)/librunahead_%.so ]) && [ "$$(stat -c %u target)" != 0 ] && echo yes)

install: $(if $(BUILT),,build) install-bindings
	install -D -m 755 $(RUNAHEAD) $(DESTDIR)$(PREFIX)/bin/runahead

install-bindings: $(BINDINGS:%=install-bindings-%)

LIB = $(DESTDIR)$(PREFIX)/lib
$(BINDINGS:%=install-bindings-%): install-bindings-%: $(if $(BUILT),,bindings-%)
	install -D -m 644 bindings/c/runahead_$*.h $(DESTDIR)$(PREFIX)/include/runahead_$*.h
	install -D -m 644 $(BIN)/librunahead_$*.a $(LIB)/librunahead_$*.a
	install -D -m 755 $(BIN)/librunahead_$*.so $(LIB)/$(SONAME)
	ln -sf $(SONAME) $(LIB)/librunahead_$*.so
	install -d $(LIB)/pkgconfig
	sed -e 's|@PREFIX@|$(PREFIX)|' -e 's|@VERSION@|$(VERSION)|' bindings/c/runahead_$*.pc.in \
	    >$(LIB)/pkgconfig/runahead_$*.pc

clean:
	$(CARGO) clean
