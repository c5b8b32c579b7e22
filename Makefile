# Everything a user or a developer of runahead needs, on a fresh Debian machine.
#
#   make demo             sets up and shows the main job
#   make test             sets up and runs all tests
#   make test-full        the same at length, and other projects' test suites
#   make bench [ROW=name] measures, and writes BENCHMARKS.md
#   make install          puts runahead into PREFIX/bin

PREFIX ?= /usr/local
PAIRS ?= 5
CARGO ?= cargo
BIN := target/release

.PHONY: all build demo test test-full bench lint install setup clean

all: build

build:
	$(CARGO) build --release --locked

# What the demo, the tests and the benches need beyond Rust. Without root it is left as it is, and
# whatever is missing is said by what misses it.
setup:
	@scripts/setup $(SETUP)

demo: SETUP := demo
demo: setup build
	@$(BIN)/runahead-bench demo --runahead $(BIN)/runahead

test: setup build
	RUNAHEAD_BIN=$(abspath $(BIN))/runahead $(CARGO) test --workspace --locked

# Everything: all cases of our own, and the test suites of other projects. Takes hours.
test-full: setup build
	scripts/setup full
	RUNAHEAD_BIN=$(abspath $(BIN))/runahead RUNAHEAD_FULL=1 $(CARGO) test --workspace --locked --features runahead-suites/full
	$(BIN)/runahead-suites run --all --runahead $(abspath $(BIN))/runahead --write-md target/suites.md

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
