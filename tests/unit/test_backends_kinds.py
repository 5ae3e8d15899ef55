"""The options of virtual links as attributes of rtnetlink, through pyroute2's own encoder and decoder."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import pytest
from pyroute2.netlink.rtnl.ifinfmsg import ifinfmsg

from neuca_tools.backends import kinds, wire
from neuca_tools.documents.neuca import link_kinds

# struct nlmsghdr and struct ifinfomsg, in bytes; linux/if_link.h.
IFINFOMSG, IFLA_LINKINFO, IFLA_INFO_DATA = 32, 18, 2
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


@pytest.mark.parametrize("kind", link_kinds.OPTIONS)
def test_every_option_but_the_mac_has_an_attribute(kind):
    """Without one, it would be read from a document and never reach the kernel."""
    assert link_kinds.OPTIONS[kind].keys() - {"mac"} <= kinds._ATTRIBUTES.get(kind, {}).keys()


def encoded(kind, options):
    """The options as pyroute2 encodes them for the kernel, which sends them in the same form."""
    data = [
        (f"IFLA_{name.upper()}", value)
        for name, value in kinds.creation_arguments(kind, options).items()
    ]
    info = {"attrs": [("IFLA_INFO_KIND", kind), ("IFLA_INFO_DATA", {"attrs": data})]}
    message = ifinfmsg()
    message["attrs"] = [("IFLA_LINKINFO", info)]
    message.encode()
    attributes = wire.Attributes(bytes(message.data)[IFINFOMSG:])
    return attributes.nest(IFLA_LINKINFO).nest(IFLA_INFO_DATA)


KINDS = [
    ("bond", BOND),
    ("bridge", BRIDGE),
    ("vrf", {"table": "70000"}),
    ("vxlan", {"id": "7", "local": "10.0.0.1", "remote": "10.0.0.2", "port": "4790"}),
    ("vxlan", {"id": "7", "local": "fd00::1", "remote": "fd00::2"}),
    ("macvlan", {"mode": "vepa"}),
]


@pytest.mark.parametrize(("kind", "options"), [*KINDS, ("vlan", {"id": "5"})])
def test_every_option_is_read_back_as_it_was_set(kind, options):
    found = dict(kinds.link_options(kind, "02:00:00:00:00:01", encoded(kind, options)))
    assert {name: found.get(name) for name in options} == options


@pytest.mark.parametrize(("kind", "options"), KINDS)
def test_the_readers_of_documents_accept_these_values(kind, options):
    for name, value in options.items():
        assert link_kinds.read_setting(kind, name, value).option(name) == value
