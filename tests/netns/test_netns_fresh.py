"""A fresh pass: every setting of both families, on NICs that had nothing; and a document from every source."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import pytest
from lab import mac

WHOLE = f"""[interfaces]
{mac(1)} = up:ipv4:172.16.0.1/24
{mac(2)} = up:ipv6:fd00:16::1/64
[interface {mac(1)}]
mtu = 9000
txqueuelen = 10000
sysctl.net.ipv4.conf.{{interface}}.rp_filter = 2
[interface {mac(2)}]
addresses = fd00:16::1/64, 172.17.0.1/31
sysctl.net.ipv6.conf.{{interface}}.hop_limit = 99
sysctl.net.core.somaxconn = 8192
[routes]
10.20.0.0/16 = 172.16.0.254
2001:db8:20::/48 = fd00:16::fe
"""


@pytest.fixture(autouse=True)
def cold(lab):
    """Every program here is started as its user starts it."""
    lab.warm = None


def test_a_fresh_pass_sets_everything_that_is_asked(lab):
    lab.management()
    lab.veth("dp1", 1)
    lab.veth("dp2", 2)
    lab.foreign.may_set("net/core/somaxconn")
    done = lab.once(WHOLE)
    assert done.code == 0, done
    dp1 = lab.link("dp1")
    assert (dp1["mtu"], dp1["txqlen"], "UP" in dp1["flags"]) == (9000, 10000, True)
    assert lab.addresses("dp1") == {"172.16.0.1/24"}
    assert lab.addresses("dp2") == {"fd00:16::1/64", "172.17.0.1/31"}
    settings = ("net/ipv4/conf/dp1/rp_filter", "net/ipv6/conf/dp2/hop_limit", "net/core/somaxconn")
    assert [lab.sysctl(path) for path in settings] == ["2", "99", "8192"]
    assert lab.routes("10.20.0.0/16") == [("172.16.0.254", "dp1", 20, "110")]
    assert lab.routes("2001:db8:20::/48", 6) == [("fd00:16::fe", "dp2", 20, "110")]


def test_an_ipv6_address_can_be_used_at_once(lab):
    lab.veth("dp1", 1)
    for table in ("all", "default", "dp1"):
        lab.sysctl(f"net/ipv6/conf/{table}/accept_dad", 1)
    lab.once(f"[interface {mac(1)}]\naddresses = fd00:16::1/64\nduplicate-address-detection = no\n")
    bound = "import socket; socket.socket(socket.AF_INET6).bind(('fd00:16::1', 0))"
    assert lab.run("python3", "-c", bound).code == 0
    lab.wait(
        "the link-local address is no longer tentative",
        lambda: "tentative" not in lab.run("ip", "address").out,
    )


def test_a_tap_is_configured_like_any_nic(lab):
    lab.tap("tap1", 1)
    assert (
        lab.once(
            f"[interfaces]\n{mac(1)} = up:ipv4:172.16.0.1/24\n[interface {mac(1)}]\nmtu = 9000\n"
        ).code
        == 0
    )
    assert (lab.link("tap1")["mtu"], lab.addresses("tap1")) == (9000, {"172.16.0.1/24"})


def test_what_plan_shows_is_what_a_pass_does_in_the_same_order(lab):
    lab.management()
    lab.veth("dp1", 1)
    lab.veth("dp2", 2)
    lab.foreign.may_set("net/core/somaxconn")
    lab.document(WHOLE)
    planned = lab.plan()
    assert planned[-2:] == [
        "route 10.20.0.0/16 via 172.16.0.254 on dp1",
        "route 2001:db8:20::/48 via fd00:16::fe on dp2",
    ]
    done = lab.neuca("apply")
    assert done.err.splitlines() == planned
    assert done.code == 0


def test_plan_show_and_status_change_nothing(lab):
    lab.management()
    lab.veth("dp1", 1)
    lab.document(WHOLE)
    files = lab.files()
    with lab.monitored() as monitor:
        for words in (("plan",), ("show", "document"), ("show", "desired"), ("show", "observed"), ("status",),
                      ("explain", "dp1")):  # fmt: skip
            assert lab.neuca(*words).err == "", words
        assert monitor.lines() == []
    assert lab.files() == files


def test_explain_does_not_take_an_unread_document_for_one_without_the_nic(lab):
    lab.veth("dp1", 1)
    explained = lab.neuca("explain", "dp1")
    assert "No such file or directory" in explained.err
    assert explained.out.splitlines()[0] == f"{mac(1)}: unlisted, because there is no document"
    lab.document("[interfaces]\n")
    known = lab.neuca("explain", "dp1").out.splitlines()
    assert known[0] == f"{mac(1)}: unlisted, because no document names it"


@pytest.mark.parametrize("tokens", [True, False], ids=["IMDSv2", "version 1"])
def test_a_document_comes_from_the_link_local_metadata_service(lab, tokens):
    lab.management()
    lab.veth("dp1", 1)
    lab.service(f"[interfaces]\n{mac(1)} = up:ipv4:172.16.0.1/24\n").tokens = tokens
    lab.configure(sources="ec2")
    assert lab.once().code == 0
    assert lab.addresses("dp1") == {"172.16.0.1/24"}
    assert lab.metadata.requests == [
        "PUT /latest/api/token",
        "GET /latest/user-data",
        "GET /latest/meta-data/network/interfaces/macs/",
        "GET /latest/meta-data/public-keys/",
        "GET /latest/meta-data/",
        "GET /latest/meta-data/instance-id",
    ]


def test_a_metadata_service_on_the_loopback_makes_no_nic_a_management_nic(lab):
    lab.veth("dp1", 1)
    lab.service(f"[interfaces]\n{mac(1)} = up:ipv4:172.16.0.1/24\n", "127.0.0.1", 8080)
    lab.configure(sources="ec2=http://127.0.0.1:8080")
    assert lab.once().code == 0
    assert lab.role(mac(1)) == "dataplane"
    assert lab.addresses("dp1") == {"172.16.0.1/24"}


def test_only_what_is_asked_is_set(lab):
    lab.veth("dp1", 1)
    lab.ip("link set dp1 mtu 1400 txqueuelen 77")
    assert lab.once(f"[interfaces]\n{mac(1)} = up\n").code == 0
    dp1 = lab.link("dp1")
    assert (dp1["mtu"], dp1["txqlen"], "UP" in dp1["flags"]) == (1400, 77, True)
    assert lab.addresses("dp1") == set()


def test_down_takes_a_nic_down_and_user_leaves_it_as_it_is(lab):
    lab.veth("dp1", 1, up=True)
    lab.veth("dp2", 2, up=True)
    lab.veth("dp3", 3)
    lab.ip("address add 172.16.9.1/24 dev dp2")
    assert lab.once(f"[interfaces]\n{mac(1)} = down\n{mac(2)} = user\n{mac(3)} = user\n").code == 0
    assert ["UP" in lab.link(name)["flags"] for name in ("dp1", "dp2", "dp3")] == [
        False,
        True,
        False,
    ]
    assert lab.addresses("dp2") == {"172.16.9.1/24"}


def test_a_nic_that_is_down_gets_its_addresses(lab):
    lab.veth("dp1", 1, up=True)
    assert lab.once(f"[interfaces]\n{mac(1)} = down:ipv4:172.16.0.1/24\n").code == 0
    assert lab.addresses("dp1") == {"172.16.0.1/24"}
    assert "UP" not in lab.link("dp1")["flags"]


def test_a_nic_that_goes_down_with_an_ipv6_address_converges(lab):
    lab.veth("dp1", 1)
    document = f"[interfaces]\n{mac(1)} = up\n[interface {mac(1)}]\naddresses = 172.16.0.1/24, fd00:16::1/64\n"
    assert lab.once(document).code == 0
    lab.ip("address add fd00:99::1/64 dev dp1 nodad")
    assert lab.once(document.replace("= up", "= down")).code == 0
    assert lab.addresses("dp1") == {"172.16.0.1/24", "fd00:16::1/64", "fd00:99::1/64"}
