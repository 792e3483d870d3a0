# make          build bin/3proxyd and bin/3proxyctl
# make test     vet, unit tests, end-to-end tests (installs what they need)
# make lint     gofmt, vet, staticcheck
# make install  below PREFIX (/usr/local) and SYSCONFDIR (/etc), in DESTDIR:
#               binaries, units, documents, manual pages, and a configuration if
#               there is none
# make fuzz     every fuzz target for FUZZTIME
# make torture  the tests under load, with UPGRADES upgrades and moves in a row
# make bench    measure against other proxies (bench/README.md); needs root
# make bench-deps bench-quick bench-gate   its programs, its quick set, and this
#               tree against the revision BASE: fails on a loss

GO       ?= go
FUZZTIME ?= 10s
UPGRADES ?= 200
BENCH    ?= run
BASE     ?= HEAD

STATICCHECK := honnef.co/go/tools/cmd/staticcheck@v0.8.2

# Between releases the binary names the revision, which the toolchain records.
VERSION := $(shell git describe --tags --dirty 2>/dev/null)
# git refuses to look at another user's clone, as under sudo.
VCS     := $(if $(shell git rev-parse HEAD 2>/dev/null),auto,false)
LDFLAGS := -s -w $(if $(VERSION),-X 3proxyd/internal/version.Release=$(VERSION))

# The race detector needs a C compiler.
RACE := $(if $(shell command -v $${CC:-gcc} 2>/dev/null),-race)

# The end-to-end tests run by themselves, after the others: they measure.
UNIT = $(shell $(GO) list ./... | grep -v '/e2e$$')

PREFIX     ?= /usr/local
SYSCONFDIR ?= /etc
MANDIR     ?= $(PREFIX)/share/man
BIN        ?= bin
INSTALL    ?= install

.PHONY: install install-files
.PHONY: torture all build tools test lint fuzz bench bench-deps bench-quick bench-gate clean

all: build

build:
	CGO_ENABLED=0 $(GO) build -buildvcs=$(VCS) -trimpath -ldflags '$(LDFLAGS)' -o bin/ ./cmd/3proxyd ./cmd/3proxyctl
	$(GO) run ./docs/man docs/configuration.md > bin/3proxyd.cfg.5

install: build install-files

# The manual page of the configuration is made of the document.
$(BIN)/3proxyd.cfg.5: docs/configuration.md $(wildcard docs/man/*.go)
	$(GO) run ./docs/man docs/configuration.md > $@

install-files: $(BIN)/3proxyd.cfg.5
	$(INSTALL) -d $(addprefix $(DESTDIR),$(PREFIX)/bin $(PREFIX)/lib/systemd/system $(PREFIX)/lib/sysusers.d \
		$(PREFIX)/lib/tmpfiles.d $(PREFIX)/share/doc/3proxyd $(MANDIR)/man1 $(MANDIR)/man5 $(MANDIR)/man8 $(SYSCONFDIR)/3proxy)
	$(INSTALL) -m 755 $(BIN)/3proxyd $(BIN)/3proxyctl $(DESTDIR)$(PREFIX)/bin/
	for unit in 3proxyd.service 3proxyd.socket; do \
		sed 's|/usr/local/|$(PREFIX)/|; s|/etc/|$(SYSCONFDIR)/|' systemd/$$unit > $(DESTDIR)$(PREFIX)/lib/systemd/system/$$unit; done
	$(INSTALL) -m 644 systemd/3proxyd.sysusers $(DESTDIR)$(PREFIX)/lib/sysusers.d/3proxyd.conf
	$(INSTALL) -m 644 systemd/3proxyd.tmpfiles $(DESTDIR)$(PREFIX)/lib/tmpfiles.d/3proxyd.conf
	$(INSTALL) -m 644 README.md CHANGELOG.md docs/*.md $(DESTDIR)$(PREFIX)/share/doc/3proxyd/
	for page in docs/man/3proxyctl.1 $(BIN)/3proxyd.cfg.5 docs/man/3proxyd.8; do \
		sed 's|/usr/local/|$(PREFIX)/|; s|/etc/3proxy|$(SYSCONFDIR)/3proxy|' $$page > $(DESTDIR)$(MANDIR)/man$${page##*.}/$${page##*/}; done
	test -e $(DESTDIR)$(SYSCONFDIR)/3proxy/3proxy.cfg || \
		$(INSTALL) -m 644 systemd/3proxy.cfg $(DESTDIR)$(SYSCONFDIR)/3proxy/3proxy.cfg

# Programs the tests drive; without root, tests whose program is missing are
# skipped and counted.
tools:
	./.ci/install-tools

test: tools
	@mkdir -p bin
	$(GO) vet ./...
	@test -n '$(RACE)' || echo 'no C compiler: the tests run without the race detector'
	$(GO) test -json $(RACE) $(UNIT) > bin/unit.json || { ./.ci/unit-results bin/unit.json; exit 1; }
	./.ci/unit-results bin/unit.json
	@# The tests of relay run with both engines, those of workers with the one
	@# that auto finds, and again with epoll.
	$(GO) test -count=1 ./worker -engine epoll
	@# What must not allocate cannot be seen under the race detector.
	$(GO) test -count=1 -run "Alloc" -v ./relay ./worker
	$(GO) test -v -count=1 -timeout 10m $(E2EFLAGS) ./e2e

lint:
	@test -z "$$(gofmt -l .)" || { echo 'gofmt these files:'; gofmt -l .; exit 1; }
	$(GO) vet ./...
	$(GO) run $(STATICCHECK) ./...

# A fuzz run takes one target of one package. Inputs are minimized by few
# executions: by default that takes up to a minute for each, and longest where
# coverage depends on what goroutines do at the time.
fuzz:
	@set -e; for pkg in $$($(GO) list ./...); do \
		for target in $$($(GO) test -list '^Fuzz' $$pkg | grep '^Fuzz' || true); do \
			echo "== $$pkg $$target"; \
			$(GO) test -run '^$$' -fuzz "^$$target\$$" -fuzztime $(FUZZTIME) -fuzzminimizetime 20x $$pkg; \
		done; \
	done

# UPGRADES upgrades and moves in a row, five times as many reloads, and the other
# tests under load.
torture: tools
	E2E_UPGRADES=$(UPGRADES) E2E_MOVES=$(UPGRADES) E2E_RELOADS=$$((5 * $(UPGRADES))) $(GO) test -v -count=1 -timeout 60m -run 'UnderLoad|Move' ./e2e

bench: build
	$(GO) run ./bench $(BENCH)

bench-deps:
	$(GO) run ./bench deps --install

bench-quick:
	$(GO) run ./bench run

bench-gate:
	rm -rf bin/base bin/gate.csv && mkdir -p bin/base
	git archive $(BASE) | tar -x -C bin/base
	cd bin/base && $(GO) build -o ../3proxyd-base ./cmd/3proxyd
	rm -rf bin/base
	$(GO) run ./bench run --proxy 3proxyd-base,3proxyd --bin 3proxyd-base=bin/3proxyd-base \
		--scenario gate --ref 3proxyd-base --secs 3 --within 2m --out bin/gate.csv --no-plots
	$(GO) run ./bench compare --a 3proxyd-base --b 3proxyd bin/gate.csv

clean:
	rm -rf bin
