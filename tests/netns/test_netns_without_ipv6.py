"""IPv6 is disabled, or the kernel has none: IPv4 is set, the rest is reported, and set once it can be."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import time

import pytest
from lab import mac

IPV4, IPV6 = "172.16.0.1/24", "2001:db8:16::1/64"
DOCUMENT = f"[interface {mac(1)}]\naddresses = {IPV4}, {IPV6}\n"
ROUTES = f"[routes]\n10.1.0.0/16 = 172.16.0.254\n2001:db8:99::/48 = 2001:db8:16::ff\n2001:db8:98::/48 = interface {mac(1)}\n"
OWN = "net/ipv6/conf/{}/disable_ipv6"
REASON = f"address {IPV6}: IPv6 is disabled on this interface (disable_ipv6)"


@pytest.fixture
def disabled(lab):
    lab.management()
    lab.veth("dp1", 1)
    lab.sysctl(OWN.format("dp1"), 1)
    return lab


def test_ipv4_is_set_and_ipv6_once_it_is_enabled(disabled):
    done = disabled.once(DOCUMENT + ROUTES)
    assert done.code == 4, done
    assert disabled.addresses("dp1") == {IPV4}
    assert disabled.routes("10.1.0.0/16")
    assert disabled.problems("dp1") == [("refused", REASON)]
    assert "rolled back" not in done.err
    assert disabled.plan() == []
    disabled.sysctl(OWN.format("dp1"), 0)
    assert disabled.once().code == 0
    assert disabled.addresses("dp1") == {IPV4, IPV6}
    assert disabled.routes("2001:db8:99::/48", 6)
    assert disabled.routes("2001:db8:98::/48", 6)


def test_the_daemon_does_not_touch_the_nic_until_ipv6_is_enabled(disabled):
    disabled.configure(poll=1)
    disabled.document(DOCUMENT)
    disabled.start()
    disabled.wait("the state", lambda: disabled.status()[0] == 4)
    with disabled.monitored() as monitor:
        end = time.monotonic() + 6.0  # five polls
        while time.monotonic() < end:
            monitor.stir(0.5)
        assert [line for line in monitor.lines() if "dp1" in line] == []
    disabled.sysctl(OWN.format("dp1"), 0)
    disabled.wait("the address", lambda: IPV6 in disabled.addresses("dp1"))
    disabled.wait("the state", lambda: disabled.status()[0] == 0)


def test_ipv6_that_is_disabled_afterwards_takes_nothing_else(disabled):
    disabled.sysctl(OWN.format("dp1"), 0)
    assert disabled.once(DOCUMENT + ROUTES).code == 0
    disabled.sysctl(OWN.format("dp1"), 1)
    assert disabled.once().code == 4
    assert disabled.addresses("dp1") == {IPV4}
    assert disabled.problems("dp1") == [("refused", REASON)]


def test_a_document_that_enables_ipv6_gets_its_addresses(disabled):
    text = DOCUMENT + "sysctl.net.ipv6.conf.{interface}.disable_ipv6 = 0\n"
    assert disabled.once(text).code == 0
    assert disabled.addresses("dp1") == {IPV4, IPV6}


def test_new_links_on_a_host_without_ipv6(disabled):
    disabled.sysctl(OWN.format("all"), 1)
    disabled.foreign.may_make("br0")
    text = f"[bridge br0]\nmembers = {mac(1)}\naddresses = {IPV4}, {IPV6}\n"
    assert disabled.once(text).code == 4
    assert disabled.addresses("br0") == {IPV4}
    assert disabled.problems("br0") == [("refused", REASON)]


def test_a_kernel_without_ipv6(disabled):
    """Its directory of sysctls is missing (ipv6.disable=1)."""
    disabled.run("mount", "-t", "tmpfs", "tmpfs", "/proc/sys/net/ipv6")
    assert disabled.once(DOCUMENT + ROUTES).code == 4
    assert disabled.addresses("dp1") == {IPV4}
    assert disabled.problems("dp1") == [("refused", f"address {IPV6}: this kernel has no IPv6")]
