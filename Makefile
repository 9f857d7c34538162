SHELL := /bin/bash
GO    ?= go

# The race detector needs cgo and a C compiler.
CC_FOUND := $(shell command -v $${CC:-cc} 2>/dev/null)

.DEFAULT_GOAL := help
.PHONY: help build demo test unit race smoke e2e-kill e2e-measure bench-worker lint fuzz bench fmt clean

help: ## list the targets
	@grep -hE '^[a-z0-9-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 14

build: ## build the binaries into bin/
	@mkdir -p bin
	$(GO) build -trimpath -o bin/ ./cmd/...

demo: build ## the main job end to end on embedded emulators: claim checks in, results out
	bin/millrace dev

test: unit race smoke ## everything that must pass

unit: ## unit, bubble and golden tests
	$(GO) build ./...
	$(GO) test ./...

race: ## the same under the race detector
ifeq ($(CC_FOUND),)
	@echo "SKIP race: the race detector needs a C compiler (cc or \$$CC)"
else
	CGO_ENABLED=1 $(GO) test -race ./...
endif

smoke: ## short runs of what has a longer target of its own: the demo, each benchmark once
	$(GO) run ./cmd/millrace dev --json >/dev/null
	$(GO) test -run '^$$' -bench . -benchtime 1x ./...
	$(GO) run ./test/bench/worker -smoke >/dev/null

e2e-kill: ## worker processes killed with SIGKILL at random moments, 50 times over 2,000 messages
	MILLRACE_KILLS=50 MILLRACE_MESSAGES=2000 $(GO) test ./test/e2e -run 'TestWorkerProcess/SurvivesSIGKILL' -v -count=1 -timeout 20m

e2e-measure: ## size, memory and start of the worker as it is shipped
	MILLRACE_MEASURE=1 $(GO) test ./test/e2e -run 'TestWorkerProcess/Measured' -v -count=1 -timeout 20m

bench-worker: ## the worker against two loops over the same SDKs, up to 6 minutes
	$(GO) run ./test/bench/worker

lint: ## gofmt, go vet, staticcheck
	@unformatted=$$(gofmt -l $$(git ls-files '*.go')); if [ -n "$$unformatted" ]; then echo "not gofmt-ed: $$unformatted"; exit 1; fi
	$(GO) vet ./...
	$(GO) tool staticcheck ./...

FUZZTIME ?= 2m
fuzz: ## every fuzz target in turn, FUZZTIME each (2m)
	@set -e; for pkg in $$($(GO) list ./...); do \
	  for target in $$($(GO) test -list '^Fuzz' $$pkg | grep '^Fuzz' || true); do \
	    echo "== $$pkg $$target"; $(GO) test -run '^$$' -fuzz "^$$target$$" -fuzztime $(FUZZTIME) $$pkg; \
	  done; done

bench: ## benchmarks, with their baselines in the same run
	$(GO) test -run '^$$' -bench . -benchmem ./...

fmt: ## gofmt everything
	gofmt -w $$(git ls-files '*.go')

clean: ## remove what was built
	rm -rf bin out
