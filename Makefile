# Everything a user or a developer of runahead needs, on a fresh Debian machine.
#
#   make demo             sets up and shows the main job
#   make test             sets up and runs all tests
#   make bench [ROW=name] measures, and writes BENCHMARKS.md
#   make install          puts runahead into PREFIX/bin

PREFIX ?= /usr/local
PAIRS ?= 5
CARGO ?= cargo
BIN := target/release

.PHONY: all build demo test bench lint install setup clean

all: build

build:
	$(CARGO) build --release --locked

# What the demo, the tests and the benches need beyond Rust. Without root it is left as it is, and
# whatever is missing is said by what misses it.
setup:
	@scripts/setup

demo: setup build
	@$(BIN)/runahead-bench demo --runahead $(BIN)/runahead

test: setup build
	RUNAHEAD_BIN=$(abspath $(BIN))/runahead $(CARGO) test --workspace --locked

bench: setup build
	$(BIN)/runahead-bench run --runahead $(BIN)/runahead --pairs $(PAIRS) $(if $(ROW),--row $(ROW)) --write-md BENCHMARKS.md

lint:
	$(CARGO) fmt --all --check
	$(CARGO) clippy --workspace --all-targets --locked -- -D warnings
	scripts/deny

install: build
	install -D -m 755 $(BIN)/runahead $(DESTDIR)$(PREFIX)/bin/runahead

clean:
	$(CARGO) clean
