# fastpath: see README.md. `make help` lists the targets.
GO   ?= go
# The DPDK driver is built where libdpdk is found; looked up when a recipe runs, since `deps` may install it.
ALONE = /(cmd/fastpath|plugins/host|pmd/(afpacket|dpdk|tap)|test/(bench|chaos|e2e|packetdrill|versus))(/|$$)
TAGS  = $$(pkg-config --exists libdpdk 2>/dev/null && echo '-tags=dpdk')
BIN   = bin/fastpath

.DEFAULT_GOAL := help
.PHONY: help deps build demo test test-script test-e2e test-virtio test-vm reference test-swaps test-scale test-cong versus chaos test-race bench bench-virtio bench-pace profile lint fuzz clean vagrant-program vagrant-test

help: ## list the targets
	@awk -F':.*## ' '/^[a-z0-9-]+:.*## / {printf "  %-15s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

deps: ## install what is missing (Debian packages; needs root)
	@test/deps

build: deps ## build bin/fastpath and the example module
	@mkdir -p bin
	$(GO) build $(TAGS) -o $(BIN) ./cmd/fastpath
	cd plugins/example && $(GO) build -o ../../bin/fastpath-cong-example .

demo: build ## the main job: downloads and uploads by the kernel's TCP while modules are swapped and killed
	@$(BIN) demo $(DEMO_FLAGS)

# Tests build without the profile, which would compile everything once more: a minute.
test: export GOFLAGS := $(strip $(shell $(GO) env GOFLAGS) -pgo=off)
test: build ## all tests (under 15 minutes)
	$(GO) vet $(TAGS) ./...
	@test/skipped
	cd plugins/example && $(GO) vet . && $(GO) test .
	@# Those that start daemons, processes and drivers, and measure times, have the machine for themselves, one at a time.
	$(GO) test $(TAGS) -timeout 14m $$($(GO) list $(TAGS) ./... | grep -vE '$(ALONE)')
	$(GO) test $(TAGS) -p 1 -timeout 14m $$($(GO) list $(TAGS) ./... | grep -E '$(ALONE)')

test-e2e: build ## the daemon against the kernel's TCP, in every combination (needs root)
	$(GO) test -timeout 30m -skip TestVirtio ./test/e2e -full

test-virtio: build ## fastpath on virtio rings against DPDK's testpmd, in every combination (needs root)
	$(GO) test -timeout 40m -run TestVirtio ./test/e2e -full

test-vm: build ## virtual machines whose network cards the program drives, under QEMU without KVM (needs root)
	@test/deps vm
	$(GO) test -timeout 40m -count 1 -v -skip Reference ./test/vm -vm

reference: ## fastpath and the kernel of a virtual machine, with cubic, cdg and bbr over fq, over the same emulated path, in a table (needs root)
	@test/deps vm
	$(GO) test -timeout 40m -count 1 -v -run Reference ./test/vm -vm

vagrant-program: deps ## bin/fastpath-static, the program of the machines in vagrant/
	@mkdir -p bin
	GO=$(GO) vagrant/build-program bin/fastpath-static

vagrant-test: vagrant-program ## the two machines of vagrant/, from nothing, under emulation or KVM (needs root; up to 40 minutes)
	@test/vagrant/deps
	$(GO) test -c -o bin/vagrant.test ./test/vagrant
	box=$$(vagrant/box/build) && cd test/vagrant && ./world ../../bin/vagrant.test -test.v -test.timeout 40m -test.run TestMachines -box "$$box" $(VAGRANT_FLAGS)

test-script: ## the packet scripts of test/script/testdata; SCRIPTS="FILE..." runs others
	$(GO) run ./test/script $(if $(SCRIPTS),$(SCRIPTS),--exact $$(find test/script/testdata -name '*.pkt' | sort))

test-cong: ## congestion control against published and closed-form values, the long cases as well
	$(GO) test -timeout 30m -v -run TestCong ./test/sim -full

versus: ## fastpath and the kernel's TCP, cubic and bbr, over the same emulated path: goodput, what is sent again, how ten flows share (needs root)
	$(GO) test -timeout 40m -v ./test/versus -full

test-swaps: build ## 1000 swaps between module processes under transfers to the kernel: silence that they add, what is sent again (needs root)
	$(GO) test -timeout 14m -v -run TestSilenceOfSwaps ./test/e2e -swaps 1000

test-scale: ## 100 000 connections, opened, idle and closed
	$(GO) test -timeout 14m -v -run TestScale ./test/attack -full

chaos: ## modules crash 1000 times; are swapped, killed, stopped, hung, corrupted under traffic, for CHAOS_TIME (default 1h)
	$(GO) test -timeout 0 -v ./plugins/host -run TestCrashesLeaveNothing -crashes $${CRASHES:-1000}
	$(GO) test -timeout 0 -v ./test/chaos -duration $${CHAOS_TIME:-1h}

test-race: build ## unit tests under the race detector
	$(GO) test -race -timeout 30m ./plugins/... ./cong/... ./pmd/... ./stack/... ./conf/... ./cmd/...

bench: build ## the speed floor; BENCH_FLAGS="--gvisor PATH" measures the baseline in the same run
	$(BIN) bench all $(BENCH_FLAGS)

bench-pace: build ## pacing and the send path, beside the founding documents' figures; BENCH_FLAGS="--only precision,fairness --json"
	$(BIN) bench pace $(BENCH_FLAGS)

profile: ## measure what the compiler optimises bin/fastpath by (profile-guided), from the work of the speed floor
	$(GO) test -trimpath -run '^$$' -bench Floor -benchtime 10x -timeout 14m -cpuprofile $(CURDIR)/cmd/fastpath/default.pgo \
		./test/bench && rm -f bench.test

bench-virtio: build ## the driver against DPDK's testpmd on each kind of virtio ring (needs root); bin/virtio.json
	$(GO) test -tags=dpdk -count 1 -v -timeout 40m -run TestBenchVirtio ./pmd/dpdk -virtio $(CURDIR)/bin/virtio.json

lint: ## golangci-lint, if it is installed
	golangci-lint run

fuzz: ## each fuzz target for FUZZTIME (default 30s)
	@FUZZTIME=$${FUZZTIME:-30s} test/fuzz

clean: ## remove what was built
	rm -rf bin demo-out
