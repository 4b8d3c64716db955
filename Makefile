# make test runs every check there is, nested modules included. Each part is
# a target of its own; CONTRIBUTING.md says what they do.

SHELL       := bash
.SHELLFLAGS := -euo pipefail -c
.NOTPARALLEL:

# What each fuzz target runs: a number of inputs, not a time. When a time runs
# out, an input that hangs goes unnoticed, and Go before 1.27 can report a failure
# that is none (go.dev/issue/75804).
FUZZTIME ?= 10000x

# Every folder with a go.mod, those of them with Go code, and those below the root.
MODULES := $(patsubst %/go.mod,%,$(sort $(shell find . -name go.mod -not -path '*/testdata/*')))
CODE    := $(foreach m,$(MODULES),$(if $(shell find $(m) -name '*.go' -print -quit),$(m)))
NESTED  := $(filter-out .,$(CODE))

# $(call each,MODULES,COMMAND) runs COMMAND in the folder of every module.
each = @for module in $(1); do (cd $$module; echo "== $@ $$module"; $(2)); done

# Benchmarks and fuzz targets do not obey go test's own -timeout, so timeout(1)
# runs them, where there is one.
TEST    := go test -count=1 -timeout 20m
TIMEOUT := $(if $(shell command -v timeout),timeout 10m)

# What this machine cannot run is left out here and named at the end.
TAGS    := yieldhook
CROSS   :=
RACE    := race
NOT_RUN :=

ifeq ($(shell command -v "$$(go env CC)"),)
RACE    :=
NOT_RUN += "the race detector (no C compiler)"
endif
ifeq ($(shell go env GOHOSTOS GOHOSTARCH | xargs),linux amd64)
CROSS   += cross-386
else
NOT_RUN += "the tests on a 32-bit target (not on linux/amd64)"
endif
ifneq ($(shell command -v qemu-s390x-static),)
CROSS   += cross-s390x
else
NOT_RUN += "the tests on a big-endian target (no qemu-s390x-static; Debian package qemu-user-static)"
endif
ifneq ($(shell command -v spin),)
TAGS    := yieldhook,spin
else ifneq ($(wildcard verify/go.mod),)
NOT_RUN += "the model checks (no spin; Debian package spin)"
endif

.PHONY: test complete fmt vet lint tidy unit race cross cross-386 cross-s390x fuzz bench checks docs

test: complete fmt vet lint tidy unit $(RACE) cross fuzz bench
	@echo "make test: passed"
	@for part in $(NOT_RUN); do echo "make test: NOT RUN: $$part"; done

complete: # in CI nothing may be left out
	@for part in $(NOT_RUN); do [ "$${CI:-}" != true ] || { echo "cannot run $$part"; exit 1; }; done

fmt:
	@unformatted=$$(gofmt -l .); [ -z "$$unformatted" ] || { echo "gofmt these:"; echo "$$unformatted"; exit 1; }

vet:
	$(call each,$(CODE),go vet ./... && go vet -tags $(TAGS) ./...)

lint:
	$(call each,$(CODE),$(staticcheck) ./... && $(staticcheck) -tags $(TAGS) ./...)
staticcheck = go tool -modfile $(CURDIR)/tools/go.mod staticcheck

tidy:
	$(call each,$(MODULES),go mod tidy -diff)

unit:
	$(call each,$(CODE),$(TEST) ./...)
	$(call each,./atomicring $(NESTED),$(TEST) -tags $(TAGS) ./...)

race:
	$(call each,$(CODE),$(TEST) -race ./...)

# Where ints have 32 bits, and where the first byte is the highest (emulated,
# hence fewer rounds). A kernel that runs no 32-bit programs has them emulated,
# too; the signals by which Go preempts goroutines do not get through there.
cross: $(CROSS)
cross-386:
	GOARCH=386 CGO_ENABLED=0 go vet ./...
	export GOARCH=386 CGO_ENABLED=0; \
	go run ./cmd/ringfence contract > /dev/null 2>&1 || \
		{ emulate="-short -exec qemu-i386-static"; export GODEBUG=asyncpreemptoff=1; }; \
	$(TEST) $${emulate:-} ./atomicring ./sharded
cross-s390x:
	GOARCH=s390x CGO_ENABLED=0 $(TEST) -short -exec qemu-s390x-static ./atomicring ./sharded

fuzz:
	$(call each,$(CODE),$(list_fuzz) | while read -r package name; do echo "$$package $$name"; $(run_fuzz); done)
list_fuzz = go test -list '^Fuzz' ./... | awk '/^Fuzz/ {name[n++] = $$1} /^ok/ {while (n > 0) print $$2, name[--n]}'
run_fuzz = $(TIMEOUT) go test -run '^$$' -fuzz "^$$name\$$" -fuzztime $(FUZZTIME) -fuzzminimizetime 100x $$package < /dev/null

bench:
	$(call each,$(CODE),$(TIMEOUT) go test -run '^$$' -short -bench . -benchtime 1x ./...)

# Parts of unit: the repository's tests of itself, and those of its documents.
checks:
	$(TEST) ./internal/checks
docs:
	$(TEST) -run TestDocs ./internal/checks
