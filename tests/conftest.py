"""The skip policy: under CI=true a skip is a failure, but for the reasons listed here. And which tests keep together.

A test that silently does not run is the same as no test. To add a reason: it must be about the machine, name what the machine
has not, and say where the test does run instead.
"""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import ctypes
import logging
import os
import re
import signal
import threading
from collections import defaultdict
from pathlib import Path

import pytest

try:
    from hypothesis import settings
except ImportError:  # a tier that draws nothing does not install it
    pass
else:
    # The same examples in every run, so that a change is judged by itself; `--hypothesis-profile random` looks elsewhere.
    settings.register_profile("random", derandomize=False, database=None, print_blob=True)
    settings.register_profile("same", derandomize=True, database=None)
    settings.load_profile("same")

# It hides output that is not flushed, and few users have it.
os.environ.pop("PYTHONUNBUFFERED", None)
# It wraps the lines that `neuca` prints into a pipe; pytest-xdist sets it for its workers.
os.environ.pop("COLUMNS", None)

# Whoever runs the tests in the background may ignore SIGINT, and children inherit that. By the C library: a worker of
# pytest-xdist need not run in the first thread, where alone Python can do it.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    ctypes.CDLL(None).signal(signal.SIGINT, int(signal.SIG_DFL))

# As of a service. A user's may be 0002: Debian 13 has that by default.
os.umask(0o022)

HERE = Path(__file__).parent
# Under pytest-xdist what takes longest begins first: no processor waits for it at the end.
LONGEST_FIRST = (
    "machine",
    "lanes",
    "fleet",
    "package",
    "attack",
    "netns",
    "sequences",
    "world",
    "wild",
    "dbus",
    "unit",
)

# On the kernel, `make test` runs so many variants of each test, spread over all of them; `make test-all` runs each one.
VARIANTS, WITH_VARIANTS = 2, ("netns", "attack")

ALLOWED_SKIPS = (
    # Small CI kernels come without them. The guests of tests/machine have all of them.
    r"this kernel has no (8021q|bond|dummy|macvlan|tun|vlan|vrf)\b",
    # What a kernel does that lacks it is seen on the small ones.
    r"this kernel has (fq_codel|vrf)$",
    # A machine with neither has only its distribution's interpreter; the lane of the newest Python runs there.
    r"no pyenv and no python3\.9 on this machine$",
    # pyenv's lie in root's home. What other users see is tested with the distribution's.
    r"only root can reach this interpreter$",
    # As in a container. Our own reader of events, which does not care, is tested there too.
    r"no udevd runs and /dev is no devtmpfs: libudev listens to nothing here$",
    # A checkout of a user's has not what lies beside ours; the figures of those texts are tested everywhere.
    r"the published texts are not beside this checkout; their figures are in selftest_runs\.py$",
    # The code of the earlier version comes from the history; a shallow clone or an archive has none.
    r"no history in this checkout: ",
    # On most machines every user may open it; root may everywhere.
    r"no tap devices for this user \(/dev/net/tun\)$",
    # Debian 13 is the last release that has it.
    r"this distribution has no dhclient$",
    # The same tests run there as root.
    r"only root can read what version 1\.7 left$",
    r"a user namespace may not (write to queues|make device nodes|be left by iperf3)$",
    r"in a user namespace no ssh server can become anybody$",
    # Their sources come from the mirrors of distributions; what they wrote is recorded in tests/unit/data/iperf.
    r"no mirror has the source of iperf3 [\d.]+$",
    # Ubuntu has it as a snap only, which cannot read a test's files. Debian has a package.
    r"no chromium on this machine$",
    # A program of 100 MiB, for one test.
    r"no packer on this machine$",
    # The newest Ansible runs on every distribution's interpreter; the oldest needs Python 3.11 or older.
    r"no Python that can run the Ansible of requirements-oldest\.txt on this machine$",
    # The kernel permits none in a chroot. The tests run outside of one.
    r"user namespaces are not permitted here$",
    # In user namespaces there is nobody else to become.
    r"these tests do not run as root, and have no other user to become$",
)


def unexpected(reason: str) -> bool:
    """Whether a skip for this reason fails the run."""
    return os.environ.get("CI") == "true" and not any(
        re.match(allowed, reason) for allowed in ALLOWED_SKIPS
    )


def _judge(report) -> None:
    if not report.skipped or hasattr(report, "wasxfail"):
        return
    reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
    reason = reason[len("Skipped: ") :] if reason.startswith("Skipped: ") else reason
    if unexpected(reason):
        report.outcome = "failed"
        report.longrepr = (
            f"skipped under CI for a reason that tests/conftest.py does not list: {reason}"
        )


@pytest.hookimpl(hookwrapper=True, tryfirst=True)
def pytest_runtest_makereport(item, call):  # noqa: ARG001 - pytest's names
    _judge((yield).get_result())


@pytest.hookimpl(hookwrapper=True, tryfirst=True)
def pytest_make_collect_report(collector):  # noqa: ARG001 - a module may skip itself whole
    _judge((yield).get_result())


def pytest_configure(config):
    if hasattr(config, "workerinput") and threading.current_thread() is not threading.main_thread():
        # On a busy machine, execnet 1.9 may run a worker of xdist in another thread, in which signal() is refused. xdist
        # starts another worker in its place.
        os._exit(1)
    config.addinivalue_line("markers", "long: `make test` leaves it to `make test-all`")
    config.addinivalue_line("markers", "matrix: its variants say themselves which are `long`")


def _tier(item):
    return item.path.relative_to(HERE).parts[0]


def _together(item):
    """The name of those tests that share what is costly to make: packages, an installation, or a guest's image and prepared disk."""
    tier = _tier(item)
    if "installed" in item.fixturenames:
        return f"{tier}-installed"
    image = getattr(item, "callspec", None) and item.callspec.params.get("image")
    return {"package": "package", "machine": f"machine-{image or 'A'}"}.get(tier)


def chosen(count):
    """The places of the variants that `make test` runs: from the first to the last one."""
    if count <= VARIANTS:
        return set(range(count))
    return {number * (count - 1) // (VARIANTS - 1) for number in range(VARIANTS)}


def _spare(items):
    """Mark the variants that are left to `make test-all`."""
    variants = defaultdict(list)
    for item in items:
        marked = item.get_closest_marker("long") or item.get_closest_marker("matrix")
        if _tier(item) in WITH_VARIANTS and not marked:
            variants[item.path, item.originalname].append(item)
    for found in variants.values():
        kept = chosen(len(found))
        for place, item in enumerate(found):
            if place not in kept:
                item.add_marker(pytest.mark.long)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config, items):
    """What the linters say comes first. Under pytest-xdist (`make test`), the longest tiers follow."""
    _spare(items)
    if hasattr(config, "workerinput"):
        items.sort(key=lambda item: LONGEST_FIRST.index(_tier(item)))
        for item in items:
            if group := _together(item):
                item.add_marker(pytest.mark.xdist_group(group))
    items.sort(key=lambda item: item.path.name != "test_style.py")


def pytest_terminal_summary(terminalreporter):
    """Why each test that was repeated had failed; pytest-rerunfailures only lists them."""
    for report in terminalreporter.getreports("rerun"):
        terminalreporter.section(f"RERUN {report.nodeid} ({report.when})", "_")
        terminalreporter.line(report.longreprtext)


@pytest.fixture(autouse=True)
def logger():
    """The agent's logger, as it was before the test: a command writes its lines to standard error, as it is then."""
    agent = logging.getLogger("neuca")
    handlers, level, propagate = agent.handlers[:], agent.level, agent.propagate
    yield agent
    agent.handlers[:], agent.propagate = handlers, propagate
    agent.setLevel(level)
