"""`neuca export`: the document that it prints requests what the host has."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

from lab import mac

PREFIXES = (("10.9.0.0/16", 4), ("10.8.0.0/16", 4), ("fd00:9::/64", 6))


def network(lab):
    """What `ip` says of the dataplane NICs: their links, addresses and routes."""
    links = [lab.link(name) for name in ("dp1", "dp2")]
    return (
        [(link["mtu"], "UP" in link["flags"]) for link in links],
        [lab.addresses(name) for name in ("dp1", "dp2")],
        [lab.routes(prefix, family) for prefix, family in PREFIXES],
    )


def test_a_document_that_was_exported_changes_nothing_on_the_same_host(host):
    for words in (
        "link set dp1 mtu 1400 up",
        "address add 172.16.0.1/24 dev dp1",
        "address add fd00:1::1/64 dev dp1",
        "route add 10.9.0.0/16 via 172.16.0.7",
        "route add fd00:9::/64 via fd00:1::7",
    ):
        host.ip(words)
    before = network(host)
    done = host.neuca("export")
    assert (done.code, done.err) == (0, "")
    assert f"[interface {mac(1)}]" in done.out.splitlines()
    assert mac(0x99) not in done.out, "the management NIC is not of the dataplane"
    assert "# not exported: 10.9.0.0/16 via 172.16.0.7 metric 0" in done.out.splitlines()
    assert host.once(done.out).code == 0
    assert network(host) == before
    assert host.neuca("export").out == done.out


def test_the_configuration_of_a_document_is_exported_as_one_that_requests_the_same(host):
    text = f"[interfaces]\n{mac(1)} = up:ipv4:172.16.0.1/24\n{mac(2)} = down\n"
    assert host.once(f"{text}[routes]\n10.8.0.0/16 = 172.16.0.9\n").code == 0
    before = network(host)
    exported = host.neuca("export").out
    assert "10.8.0.0/16 = 172.16.0.9 metric 20" in exported.splitlines()
    assert host.once(exported).code == 0
    assert network(host) == before
    assert host.plan() == []


def test_what_no_document_can_request_is_a_comment(host):
    host.ip("link set dp2 name x;y")
    host.ip("address add 127.7.7.7/24 dev dp1")
    document = host.neuca("export").out
    for reason in (
        '"x;y" is not an interface name: letters, digits, ".", "_" and "-" only',
        '"127.7.7.7" cannot be the address of a NIC',
    ):
        assert f"# not exported: {reason}" in document.splitlines()
    host.document(document)
    assert host.neuca("check", host.document_file).code == 0
    assert host.once().code == 0
    assert host.link("x;y")
