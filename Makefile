# Everything that a contributor runs. `make` alone explains.
SHELL := bash
.DEFAULT_GOAL := help
.NOTPARALLEL:

.PHONY: help
help: ## this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-15s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

.PHONY: demo
demo: ## kill a payment service in mid-work, and charge once all the same
	@go run ./demo/main

.PHONY: test
test: ## what CI runs: format, lint, all tests with the race detector; the time of each layer, and the ten slowest tests
	@scripts/test

.PHONY: test-all
test-all: export EVERONCE_TEST_WHOLE = 1
test-all: test fuzz soak latest newer diagrams ## the whole, in hours: all generated cases, long fuzzing, long runs of kills, the latest dependencies, newer servers (root)

.PHONY: fuzz
fuzz: ## explore with each fuzz test, for half a minute to two; `make test` runs their seeds
	@scripts/test fuzz

.PHONY: lint
lint: ## format and lint (with govet) alone
	@scripts/test format lint

.PHONY: prose
prose: ## the wording of comments, strings and docs (Vale): make prose PATHS='httponce docs/adr'
	@scripts/prose $(PATHS)

.PHONY: fmt
fmt: ## format all code
	@scripts/tools gofumpt && bin/gofumpt -l -w .

.PHONY: bench
bench: ## one table of ratios: bare work, ours, the naive way
	@scripts/bench && scripts/sessionpeer/run

.PHONY: soak
soak: ## 1000 cycles of SIGKILL against SQLite, PostgreSQL and MariaDB; 10 000 messages, 100 kills of workers, broker and store; 100 000 crowds that wait
	@scripts/test soak

.PHONY: newer
newer: ## the tests on a newer Debian in a folder, with newer servers, and on MySQL (root)
	@scripts/newer && scripts/newer --mysql

.PHONY: imitators
imitators: ## the conformance suite on databases that imitate others (npm, Python)
	@scripts/imitators

.PHONY: diagrams
diagrams: ## parse the diagrams of the README and docs with Mermaid (npm)
	@scripts/diagrams
.PHONY: senders
senders: ## how often clients and proxies send one request, as tables (root, npm, Python, Java)
	@scripts/senders

.PHONY: latest
latest: ## the tests with the latest versions of all dependencies, in a copy
	@scripts/latest

.PHONY: services-up
services-up: ## start the servers that the tests talk to, and leave them running
	@scripts/services up && scripts/services status

.PHONY: services-down
services-down: ## stop them
	@scripts/services down

.PHONY: tidy
tidy: ## go mod tidy in every module
	@scripts/tidy

.PHONY: rehearsal
rehearsal: ## build every module from a module proxy, as after a release
	@scripts/release-rehearsal
