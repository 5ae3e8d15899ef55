# Every target does its own set-up on a fresh Debian or Ubuntu machine, as root or with sudo. `make` alone lists them.

# Of a user's programs: tc, mkfs and others are not on Debian's path of ordinary users.
export PATH := $(PATH):/usr/sbin:/sbin

# The product runs on the distribution's interpreter with the distribution's libraries; so do its tests.
PYTHON ?= /usr/bin/python3
PYTEST  = $(PYTHON) -m pytest
# Arguments for pytest: make test-unit ARGS='-k plan -x'
ARGS   ?=

# Each tier is a directory with its own packages (tests/setup.sh).
TIERS = tests/unit tests/wild tests/dbus tests/netns tests/sequences tests/world tests/attack tests/package tests/machine tests/lanes tests/fleet
# Twice the processors: most tests wait for the kernel, a peer or a timeout, and leave their processor to others.
WORKERS ?= $(shell expr 2 '*' $$(nproc))
# A test that fails is run once more: of 8,500 on a busy machine, one that fails by chance must not hide what the others say. Each
# such rerun is counted in the closing line, and is a defect of the test.
ALL = $(PYTEST) $(ARGS) --reruns 1 -r R -n $(WORKERS) --maxprocesses 4 --dist loadgroup

.PHONY: help demo test test-all test-unit test-wild test-dbus test-netns test-sequences test-attack test-world test-package test-machine test-machine-all test-lanes test-fleet image bench bench-boot \
        bench-count bench-peers bench-tuning bench-diagnosis fuzz mutate install uninstall docs lint clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-17s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

demo: ## the main job for real, in private network namespaces, in under a minute
	@tests/setup.sh demo
	@demo/run

# One pytest run, so that its closing line speaks for all of it. What takes longest comes first, and what shares a guest or a
# package stays with one worker (tests/conftest.py).
test: ## every tier, without what takes long: 20 minutes on two processors
	@tests/setup.sh $(notdir $(TIERS)) parallel
	@tiers=$$(tests/able $(TIERS)) && NEUCA_EXAMPLES=25 $(ALL) -m "not long" $$tiers

test-all: ## everything: hours
	@echo "make test-all takes about six hours on two processors without KVM, 4 GiB of memory, 15 GiB of disk in"
	@echo "~/.cache and /tmp, and the network (Debian's mirrors and PyPI). \`make test\` takes 20 minutes."
	@tests/setup.sh $(notdir $(TIERS)) parallel browser
	@tiers=$$(tests/able $(TIERS)) && $(ALL) --hypothesis-profile random $$tiers

test-unit: ## pure code, style, layering, packaging: two minutes
	@tests/setup.sh unit
	@$(PYTEST) -m "not long" $(ARGS) tests/unit

test-wild: ## documents of platforms, compared with cloud-init and netplan
	@tests/setup.sh wild
	@$(PYTEST) $(ARGS) -m "not long" tests/wild

test-dbus: ## against a private bus with mock services
	@tests/setup.sh dbus
	@$(PYTEST) $(ARGS) tests/dbus

test-netns: ## against the real kernel, in private network namespaces
	@tests/setup.sh netns
	@$(PYTEST) $(ARGS) tests/netns

SEEDS ?= 1-1000

test-sequences: ## random sequences of documents on this kernel; with UML=yes SEEDS=1-1000 in user-mode Linux
	@tests/setup.sh sequences $(if $(UML),uml)
	@$(if $(UML),$(PYTHON) tests/sequences/run.py --uml --seeds $(SEEDS) $(ARGS),$(PYTEST) $(ARGS) tests/sequences)

test-world: ## verdicts of the self-test on 60 set-ups drawn by seed (NEUCA_SEED, NEUCA_SETUPS): an hour
	@tests/setup.sh world
	@$(PYTEST) $(ARGS) tests/world

test-attack: ## hostile hosts, volumes, peers, users and documents, in private network namespaces
	@tests/setup.sh attack
	@$(PYTEST) $(ARGS) tests/attack

test-package: ## both packages: built, linted, installed, upgraded and purged in a root of their own
	@tests/setup.sh package
	@$(PYTEST) $(ARGS) tests/package

test-machine: ## the package in real guests (QEMU): the chosen set
	@tests/setup.sh machine
	@$(PYTEST) $(ARGS) -m "not long" tests/machine

test-machine-all: ## every test in real guests: hours
	@tests/setup.sh machine
	@$(PYTEST) $(ARGS) tests/machine

test-lanes: ## the tiers above again, with other interpreters and PyPI's libraries: half an hour
	@tests/setup.sh lanes
	@$(PYTEST) $(ARGS) tests/lanes

test-fleet: ## the Ansible collection: linters, the oldest and the newest Ansible, three hosts that are namespaces
	@tests/setup.sh fleet
	@$(PYTEST) $(ARGS) tests/fleet

IMAGE ?= build/image

image: ## a Debian image with the agent in build/image (IMAGE), booted once in QEMU; needs root
	@tests/setup.sh machine
	@packaging/images/build $(IMAGE)
	@packaging/images/boot $(IMAGE)

bench: ## time and memory, as ratios to `ip -batch`
	@tests/setup.sh bench
	@tests/bench/run

bench-boot: ## what a boot costs with us, as a ratio to cloud-init doing the same network (QEMU)
	@tests/setup.sh machine
	@tests/bench/boot

bench-count: ## instructions of passes over many links and addresses, as ratios to `ip -batch` (QEMU)
	@tests/setup.sh machine
	@tests/bench/count $(ARGS)

bench-peers: ## time and processor time of networks with up to 256 VLANs, compared with other network managers (QEMU)
	@tests/setup.sh machine
	@tests/bench/peers $(ARGS)

bench-tuning: ## what tuning does for throughput, loss and neighbours, in an emulated guest
	@tests/setup.sh machine
	@tests/bench/tuning/run

bench-diagnosis: ## the verdicts of neuca-selftest on sixty set-ups with a known cause, or none, in an emulated guest
	@tests/setup.sh machine
	@tests/machine/faults/run

DOCUMENTS ?= 1000000
SEED      ?= 1
PROCESSES ?= 1

fuzz: ## a fuzz campaign over every reader of untrusted input; not part of `make test` (DOCUMENTS, SEED, PROCESSES)
	@tests/setup.sh unit
	@nice -n 19 $(PYTHON) tests/fuzz/campaign.py --documents $(DOCUMENTS) --seed $(SEED) --processes $(PROCESSES) $(ARGS)

mutate: ## mutations of the product that no unit or namespace test notices (ARGS='--changed origin/main')
	@tests/setup.sh unit netns parallel
	@nice -n 8 $(PYTHON) tests/mutate.py $(ARGS)

# The Python package is installed where Python looks for packages below PREFIX, or in PREFIX/lib/neuca-guest-tools.
PREFIX    ?= /usr/local
DESTDIR   ?=
PURGE     ?=
PYTHONDIR ?= $(shell packaging/python-directory $(PYTHON) $(PREFIX))

install: ## programs, units, rules, completion, manual pages and /etc/neuca (PREFIX, DESTDIR, PYTHONDIR)
	@packaging/install-all "$(DESTDIR)" "$(PREFIX)" "$(PYTHONDIR)" "$(PYTHON)"

uninstall: ## stop the agent and remove what `make install` installed (PREFIX, DESTDIR); PURGE=yes: and all that it has written
	@packaging/uninstall-all "$(DESTDIR)" "$(PREFIX)" "$(PURGE)"

docs: ## the documentation as a site, in build/site
	@tests/setup.sh docs
	@docs/build

lint: ## ruff and mypy --strict alone
	@tests/setup.sh unit
	@$(PYTEST) $(ARGS) -q tests/unit/test_style.py

clean: ## remove what the targets above left behind, the cached venvs too
	rm -rf build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
	@$(PYTHON) tests/venvs.py --remove
