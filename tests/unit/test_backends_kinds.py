"""The options of virtual links as attributes of rtnetlink, through pyroute2's own encoder and decoder."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import pytest
from pyroute2.netlink.rtnl.ifinfmsg import ifinfmsg

from neuca_tools.backends import kinds
from neuca_tools.documents.neuca import link_kinds

BOND = {
    "mode": "active-backup",
    "arp-interval": "1000",
    "arp-ip-target": "10.0.0.1,10.0.0.2",
    "arp-validate": "all",
    "arp-all-targets": "all",
    "primary-reselect": "better",
    "num-grat-arp": "3",
    "resend-igmp": "2",
    "all-slaves-active": "yes",
    "packets-per-slave": "4",
    "lp-interval": "5",
}
BRIDGE = {
    "stp": "no",
    "forward-delay": "0",
    "hello-time": "3",
    "max-age": "12",
    "ageing-time": "100",
    "priority": "5",
}


def encoded(kind, options):
    """The options as the kernel gets them, read back as the kernel sends them."""
    data = [(f"IFLA_{name.upper()}", value) for name, value in kinds.words(kind, options).items()]
    message = ifinfmsg()
    info = {"attrs": [("IFLA_INFO_KIND", kind), ("IFLA_INFO_DATA", {"attrs": data})]}
    message["attrs"] = [("IFLA_LINKINFO", info)]
    message.encode()
    found = ifinfmsg(bytes(message.data))
    found.decode()
    return found.get_attr("IFLA_LINKINFO").get_attr("IFLA_INFO_DATA")


@pytest.mark.parametrize(("kind", "options"), [("bond", BOND), ("bridge", BRIDGE)])
def test_every_option_is_read_back_as_it_was_set(kind, options):
    data = encoded(kind, options)
    found = dict(kinds.options(kind, "02:00:00:00:00:01", data.get_attr))
    assert {name: found.get(name) for name in options} == options


@pytest.mark.parametrize(("kind", "options"), [("bond", BOND), ("bridge", BRIDGE)])
def test_the_readers_of_documents_accept_these_values(kind, options):
    for name, value in options.items():
        assert link_kinds.setting(kind, name, value).option(name) == value
