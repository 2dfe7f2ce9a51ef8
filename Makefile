# Everything a newcomer needs: `make demo`, `make test`. Each target installs the Debian packages
# that it misses (as root; otherwise it says which).

RUST_MIN := 1.95
CARGO ?= cargo
FUZZ_SECONDS ?= 60

# make simulate SEEDS=100000: so many seeds against two gateways; SEED=n: that one, steps printed.
simulate: toolchain
	SEEDS=$(SEEDS) SEED=$(SEED) $(CARGO) test --release --locked -p weir-engine --test keying \
	    simulation -- --nocapture

.PHONY: demo demo-rdma test bench simulate fuzz fmt clean toolchain install

demo: toolchain
	@$(CARGO) xtask packages demo
	$(CARGO) build --release --locked --bin weir --bin weir-lab
	target/release/weir lab demo $(if $(KEEP),--keep)

demo-rdma: toolchain
	@$(CARGO) xtask packages demo-rdma
	$(CARGO) build --release --locked --bin weir --bin weir-lab
	target/release/weir lab demo --rdma $(if $(KEEP),--keep)

# A build from nothing does not write down what a next one could go on from.
test: export CARGO_INCREMENTAL ?= $(if $(wildcard target/debug/incremental),1,0)
test: toolchain
	@$(CARGO) xtask packages test
	@$(CARGO) xtask check

# make bench ONLY=seal_memory: figures whose name begins so. QUICK=1: one short round of each, which
# shows that it runs and measures nothing.
bench: toolchain
	@$(CARGO) xtask packages bench
	$(CARGO) build --release --locked --bin weir --bin weir-lab
	target/release/weir lab bench $(ONLY) $(if $(QUICK),--quick)

# make install DESTDIR=/tmp/root PREFIX=/usr: programs, units, manual pages, completions, rules and
# deploy/. BUILT: where the programs were built; what is not there is built.
PREFIX ?= /usr
BUILT ?= target/release

$(BUILT)/weir $(BUILT)/weir-lab:
	$(CARGO) build --release --locked --bin weir --bin weir-lab

install: $(BUILT)/weir $(BUILT)/weir-lab
	install -D -m 0755 -t $(DESTDIR)$(PREFIX)/bin $(BUILT)/weir $(BUILT)/weir-lab
	install -d -m 0700 $(DESTDIR)/etc/weir
	manual=$$(mktemp -d) && $(BUILT)/weir manual $$manual && \
	    install -D -m 0644 -t $(DESTDIR)$(PREFIX)/share/man/man1 $$manual/man1/*.1 && \
	    install -D -m 0644 $$manual/completions/weir.bash \
	        $(DESTDIR)$(PREFIX)/share/bash-completion/completions/weir && \
	    install -D -m 0644 -t $(DESTDIR)$(PREFIX)/share/zsh/site-functions $$manual/completions/_weir && \
	    install -D -m 0644 -t $(DESTDIR)$(PREFIX)/share/fish/vendor_completions.d \
	        $$manual/completions/weir.fish && rm -r $$manual
	for unit in deploy/systemd/*.service; do \
	    install -d $(DESTDIR)$(PREFIX)/lib/systemd/system && \
	    sed 's|/usr/bin/weir|$(PREFIX)/bin/weir|' $$unit \
	        >$(DESTDIR)$(PREFIX)/lib/systemd/system/$$(basename $$unit) || exit 1; done
	for folder in rules deploy/examples deploy/graylog deploy/elastic deploy/prometheus \
	    deploy/grafana; do \
	    install -D -m 0644 -t $(DESTDIR)$(PREFIX)/share/weir/$$(basename $$folder) \
	        $$(find $$folder -maxdepth 1 -type f) || exit 1; done

# make fuzz FUZZ_SECONDS=600: every target for that long.
fuzz: toolchain
	@$(CARGO) fuzz --version >/dev/null 2>&1 || \
	    { echo "make fuzz needs a nightly compiler and cargo-fuzz (cargo install cargo-fuzz)"; exit 1; }
	@for target in $$($(CARGO) fuzz list); do \
	    echo "== $$target"; \
	    CARGO_PROFILE_RELEASE_LTO=off $(CARGO) +nightly fuzz run $$target -- -max_total_time=$(FUZZ_SECONDS) || exit 1; \
	done

fmt: toolchain
	$(CARGO) fmt --all

clean:
	$(CARGO) clean

# A C compiler links Rust programs, so it must be there before the first of them can be built.
toolchain:
	@command -v $(CARGO) >/dev/null || { \
	    echo "Rust $(RUST_MIN) or later is needed, and cargo is not in PATH: see https://rustup.rs"; \
	    exit 1; }
	@version=$$($(CARGO) --version | cut -d' ' -f2); \
	lowest=$$(printf '%s\n' $(RUST_MIN).0 "$$version" | sort -V | head -n 1); \
	[ "$$lowest" = "$(RUST_MIN).0" ] || { \
	    echo "Rust $(RUST_MIN) or later is needed, this is $$version: run 'rustup update stable'"; \
	    exit 1; }
	@command -v cc >/dev/null || { \
	    echo "installing a C compiler"; \
	    apt-get update -q >/dev/null; \
	    DEBIAN_FRONTEND=noninteractive apt-get install -y -q gcc libc6-dev >/dev/null; }
