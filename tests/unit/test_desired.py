"""What a document comes to on a host: what is wanted of each link, and each refusal with its exact reason."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

from ipaddress import ip_interface, ip_network

import pytest
from worlds import Agent, document, key, mac, machine, nic, route, vlan, world

from neuca_tools.desired.resolve import Settings, resolve_state
from neuca_tools.desired.roles import Policy
from neuca_tools.documents.stacking import merge_layers
from neuca_tools.model import (
    Device,
    Fault,
    LinkKey,
    LinkRequest,
    NicRecord,
    OriginalValues,
    OwnedObjects,
    Problem,
    Record,
)

NIC2, NIC3 = f"[interface {mac(2)}]\n", f"[interface {mac(3)}]\n"
VLAN7 = f"[vlan {mac(2)}.7]\n"


def asked(text, *devices, settings=None, record=None, **more):
    """A resolution; management NIC 1 has 192.0.2.10/24 and the default route, NICs 2 and 3 are there."""
    devices = {one.index: one for one in (nic(1, up=True), nic(2), nic(3), *devices)}.values()
    addresses = {1: "192.0.2.10/24", **more.pop("addresses", {})}
    routes = [route("0.0.0.0/0", 1, "192.0.2.1"), *more.pop("routes", ())]
    seen = world(*devices, addresses=addresses, routes=routes, **more)
    return resolve_state(
        document(text) if text else None, settings or Settings(), seen, record or Record()
    )


def problems(text, *devices, **more):
    return [
        (str(one.link) if one.link else None, one.code, one.text)
        for one in asked(text, *devices, **more).problems
    ]


# --- what is asked --------------------------------------------------------------------------------------------------


def test_every_setting_of_a_nic_gets_into_what_is_wanted():
    text = (
        NIC2
        + "addresses = 10.0.0.1/24, fd00::1/64\nmtu = 9000\ntxqueuelen = 5000\nsysctl.net.ipv4.conf.{interface}.rp_filter = 2\n"
    )
    link = asked(text).desired.links[key(2)]
    assert (link.kind, link.role, link.name, link.index, link.state) == (
        "physical",
        "dataplane",
        "eth2",
        2,
        "up",
    )
    assert (link.mtu, link.txqueuelen) == (9000, 5000)
    assert list(map(str, link.addresses)) == ["10.0.0.1/24", "fd00::1/64"]
    assert link.sysctls == {"net/ipv4/conf/{interface}/rp_filter": "2"}
    assert link.managers == {"networkmanager": "unmanaged"}


def test_a_nic_in_state_user_is_wanted_with_its_name_and_nothing_else():
    link = asked(
        f"[interfaces]\n{mac(2)} = user\n{NIC2}mtu = 9000\naddresses = 10.0.0.1/24\n"
    ).desired.links[key(2)]
    assert (
        link.name,
        link.state,
        link.mtu,
        link.txqueuelen,
        link.addresses,
        dict(link.sysctls),
    ) == (
        "eth2",
        "user",
        None,
        None,
        (),
        {},
    )


def test_no_document_asks_for_nothing():
    resolution = asked("")
    assert (
        resolution.desired.links,
        resolution.requests,
        resolution.is_complete,
        resolution.hostname,
    ) == ({}, {}, False, None)
    assert resolution.removable == OwnedObjects()


def test_what_belongs_to_the_whole_host_is_told():
    resolution = asked(
        "[global]\nhost_name = Node0\nrouter = true\n[routes]\n10.1.0.0/16 = user\n10.2.0.0/16 = down\n"
    )
    assert (resolution.hostname, resolution.router, resolution.is_complete) == (
        "Node0",
        "true",
        True,
    )
    assert resolution.left_alone == (ip_network("10.1.0.0/16"),)
    assert resolution.desired.banned == (ip_network("10.2.0.0/16"),)


def test_a_vlan_alone_wants_its_nic_up():
    links = asked(VLAN7).desired.links
    assert {one: link.state for one, link in links.items()} == {key(2): "up", key(2, 7): "up"}
    assert (links[key(2, 7)].name, links[key(2, 7)].index) == ("eth2.7", 0)


def test_a_vlan_that_should_be_down_does_not_want_its_nic_up():
    assert asked(VLAN7 + "state = down\n").desired.links[key(2)].state is None


def test_the_local_configuration_wins_setting_by_setting():
    local = LinkRequest(key(2), mtu=9000, addresses=(ip_interface("10.9.0.1/24"),))
    link = asked(
        NIC2 + "addresses = 10.0.0.1/24\nmtu = 1400\ntxqueuelen = 77\n",
        settings=Settings(links=(local,)),
    ).desired.links[key(2)]
    assert (link.mtu, link.txqueuelen, list(map(str, link.addresses))) == (
        9000,
        77,
        ["10.9.0.1/24"],
    )


def test_a_nic_that_the_configuration_alone_names_is_dataplane():
    assert (
        asked("", settings=Settings(links=(LinkRequest(key(2), state="up"),))).roles.role(mac(2))
        == "dataplane"
    )


def test_a_vlan_of_the_configuration_on_a_nic_of_the_document():
    requests = merge_layers(
        document(NIC2 + "state = down\n").links, [LinkRequest(key(2, 7), state="up")]
    )
    assert {one: request.state for one, request in requests.items()} == {
        key(2): "down",
        key(2, 7): "up",
    }


# --- what is refused ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "code", "reason"),
    [
        (NIC2 + "mtu = 9001\n", "mtu", 'MTU 9001 requested, but "eth2" supports at most 9000'),
        (NIC2 + "mtu = 99\n", "mtu", 'MTU 99 requested, but "eth2" requires at least 100'),
        (
            NIC2 + "addresses = 192.0.2.5/24\n",
            "refused",
            "address 192.0.2.5/24: it is inside the management network 192.0.2.0/24",
        ),
        (
            NIC2 + "addresses = 169.254.169.254/32\n",
            "refused",
            "address 169.254.169.254/32: it would take over 169.254.169.254, which is reached through the management NIC",
        ),
        (
            NIC2 + "name = eth1\n",
            "name",
            '"eth2" should be "eth1", but another interface has that name',
        ),
        (
            NIC2 + "sysctl.net.ipv4.conf.all.rp_filter = 1\n",
            "refused",
            'sysctl net.ipv4.conf.all.rp_filter: it would change "all", not this interface alone',
        ),
        (
            NIC2 + "sysctl.net.ipv4.ip_forward = 1\n",
            "refused",
            "sysctl net.ipv4.ip_forward: it changes every interface; use router in [global]",
        ),
    ],
)
def test_a_setting_that_is_refused_costs_only_itself(text, code, reason):
    resolution = asked(f"{text}txqueuelen = 5000\n", nic(2, min_mtu=100, max_mtu=9000))
    assert resolution.problems == (Problem(code, reason, key(2)),)
    link = resolution.desired.links[key(2)]
    assert (link.state, link.txqueuelen, link.mtu, link.addresses, dict(link.sysctls)) == (
        "up",
        5000,
        None,
        (),
        {},
    )


def test_a_device_that_names_no_maximum_takes_any_mtu():
    assert asked(NIC2 + "mtu = 65535\n", nic(2, max_mtu=0)).desired.links[key(2)].mtu == 65535


def test_two_links_that_ask_for_different_values_of_one_global_sysctl():
    text = f"{NIC2}sysctl.net.core.rmem_max = 70000\n{NIC3}sysctl.net.core.rmem_max = 80000\n"
    resolution = asked(text)
    assert resolution.problems == (
        Problem("refused", 'sysctl net.core.rmem_max: another link requests "70000"', key(3)),
    )
    assert resolution.desired.sysctls == {"net/core/rmem_max": "70000"}


@pytest.mark.parametrize(
    ("foreign", "reason"),
    [
        (
            vlan(9, 2, 5, mtu=1500),
            'MTU 1400 requested, but "eth2.5" on "eth2" was not created by neucad and has MTU 1500',
        ),
        (
            Device(9, "macv0", "macvlan", mac(2), lower=2, mtu=1500),
            'MTU 1400 requested, but "macv0" on "eth2" was not created by neucad and has MTU 1500',
        ),
    ],
)
def test_a_nic_is_not_lowered_below_a_link_on_it_that_is_not_ours(foreign, reason):
    assert problems(NIC2 + "mtu = 1400\n", foreign) == [(mac(2), "refused", reason)]


def test_a_nic_may_be_lowered_with_a_vlan_of_ours_on_it():
    text = NIC2 + "mtu = 1400\n" + VLAN7 + "mtu = 1300\n"
    assert problems(text, vlan(9, 2, 7, mtu=1500)) == []
    assert (
        problems(
            NIC2 + "mtu = 1400\n",
            vlan(9, 2, 7, mtu=1500),
            record=Record(owned=OwnedObjects(vlans=frozenset({key(2, 7)}))),
        )
        == []
    )


def test_a_vlan_above_the_mtu_that_its_nic_will_have_is_refused():
    assert problems(NIC2 + "mtu = 1400\n" + VLAN7 + "mtu = 1500\n") == [
        (f"{mac(2)}.7", "mtu", 'MTU 1500 requested, but its NIC "eth2" has 1400')
    ]
    assert problems(VLAN7 + "mtu = 1501\n") == [
        (f"{mac(2)}.7", "mtu", 'MTU 1501 requested, but its NIC "eth2" has 1500')
    ]
    assert problems(NIC2 + "mtu = 9000\n" + VLAN7 + "mtu = 9000\n") == []


def test_a_vlan_whose_nic_was_refused_its_mtu_is_held_against_what_the_nic_has():
    assert problems(NIC2 + "mtu = 9000\n" + VLAN7 + "mtu = 9000\n", nic(2, max_mtu=2000)) == [
        (mac(2), "mtu", 'MTU 9000 requested, but "eth2" supports at most 2000'),
        (f"{mac(2)}.7", "mtu", 'MTU 9000 requested, but its NIC "eth2" has 1500'),
    ]


@pytest.mark.parametrize(
    ("state", "up", "refused"),
    [("down", False, True), ("down", True, True), ("user", False, True), ("user", True, False)],
)
def test_a_vlan_cannot_be_up_on_a_nic_that_is_asked_to_be_down(state, up, refused):
    text = f"[interfaces]\n{mac(2)} = {state}\n{VLAN7}"
    wanted = (
        [(f"{mac(2)}.7", "refused", f"VLAN 7 cannot be up: its NIC is requested to be {state}")]
        if refused
        else []
    )
    resolution = asked(text, nic(2, up=up))
    assert problems(text, nic(2, up=up)) == wanted
    assert resolution.desired.links[key(2, 7)].state == (None if refused else "up")


@pytest.mark.parametrize("text", [NIC2, VLAN7])
def test_ipv6_on_a_link_whose_mtu_is_too_small_for_it_is_refused(text):
    """The kernel answers EINVAL, which would cost the NIC all its other settings."""
    resolution = asked(text + "addresses = fd00::1/64, 10.0.0.1/24\n", nic(2, mtu=1000))
    assert [one.text for one in resolution.problems] == [
        "address fd00::1/64: IPv6 needs an MTU of at least 1280"
    ]


@pytest.mark.parametrize(("mtu", "most"), [("mtu = 1400\n", 1400), ("", 1500)])
def test_an_ipv6_mtu_above_that_of_the_link_is_refused(mtu, most):
    """The kernel answers EINVAL (addrconf_sysctl_mtu), in every pass."""
    text = f"{NIC2}{mtu}sysctl.net.ipv6.conf.{{interface}}.mtu = "
    agent = Agent(machine(nic(1), nic(2), mgmt=1), f"{text}{most + 1}\n")
    _, result, _ = agent.run()
    reason = (
        f"sysctl net.ipv6.conf.{{interface}}.mtu: {most + 1} is above the MTU of the link, {most}"
    )
    assert [problem.text for problem in agent.survey().resolution.problems] == [reason]
    assert (result.failures, agent.plan()) == ((), ())
    assert asked(f"{text}{most}\n").problems == ()


def test_ipv6_sysctls_of_a_link_whose_mtu_is_too_small_for_them_are_refused():
    text = NIC2 + "mtu = 1000\nsysctl.net.ipv6.conf.{interface}.accept_ra = 0\n"
    assert [one.text for one in asked(text).problems] == [
        "sysctl net.ipv6.conf.{interface}.accept_ra: IPv6 needs an MTU of at least 1280"
    ]


def test_the_mtu_that_is_asked_makes_room_for_ipv6():
    assert problems(NIC2 + "mtu = 1280\naddresses = fd00::1/64\n", nic(2, mtu=1000)) == []


@pytest.mark.parametrize(
    ("policy", "texts"),
    [
        (
            Policy(management=frozenset({mac(2)})),
            [
                "it is on the management NIC: [network] management-macs names it",
                "VLAN 7 is on the management NIC: [network] management-macs names it",
            ],
        ),
        (Policy(ignored=frozenset({mac(2)})), ["it is on the list of NICs to ignore"]),
    ],
)
def test_a_document_that_names_a_nic_which_is_not_to_be_touched(policy, texts):
    resolution = asked(NIC2 + VLAN7, settings=Settings(policy))
    assert [one.text for one in resolution.problems] == texts
    assert resolution.desired.links == {}


def test_a_nic_below_something_protected_is_tied_to_it():
    """A bond of an ignored NIC: the other member is held by the master, a VLAN with an ignored MAC ties the NIC below."""
    resolution = asked(
        NIC2, nic(2, lower=3), settings=Settings(Policy(ignored=frozenset({mac(3)})))
    )
    assert resolution.problems == (
        Problem("refused", "it depends on a management or ignored NIC", key(2)),
    )


def test_an_absent_nic_costs_its_vlans_and_nobody_else():
    resolution = asked(f"[interfaces]\n{mac(9)} = up\n[vlan {mac(9)}.5]\n" + NIC2)
    assert [(one.code, one.text) for one in resolution.problems] == [
        ("absent", 'no NIC has the MAC "02:00:00:00:00:09"')
    ]
    assert set(resolution.desired.links) == {key(2)}


# --- names of VLANs -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text",
    [
        f"{VLAN7}name = data\n[vlan {mac(2)}.8]\n[interface {mac(3)}]\nname = data\n",
        f"[vlan {mac(2)}.8]\nname = eth2.7\n{VLAN7}",
        f"{VLAN7}name = eth3.7\n[vlan {mac(3)}.7]\n",
        f"{VLAN7}\n[interface {mac(3)}]\nname = eth2.7\n",
    ],
)
def test_one_name_is_given_to_one_link_alone(text):
    names = [link.name for link in asked(text).desired.links.values()]
    assert len(set(names)) == len(names)


def test_a_vlan_whose_name_somebody_has_is_not_made():
    resolution = asked(VLAN7 + "name = br0\n", nic(9, "br0", kind="bridge", hardware=False))
    assert resolution.problems == (
        Problem("name", 'VLAN 7 should be "br0", but another interface has that name', key(2, 7)),
    )
    assert key(2, 7) not in resolution.desired.links


def test_a_vlan_that_is_there_already_keeps_the_name_that_somebody_gave_it():
    assert asked(VLAN7, vlan(9, 2, 7, "mine")).desired.links[key(2, 7)].name == "mine"
    assert (
        asked(VLAN7 + "name = yours\n", vlan(9, 2, 7, "mine")).desired.links[key(2, 7)].name
        == "yours"
    )


def test_somebody_elses_vlan_keeps_its_mac():
    text, theirs = VLAN7 + "mac = 02:00:00:00:00:07\n", vlan(9, 2, 7, mac="02:00:00:00:00:08")
    reason = 'the MAC 02:00:00:00:00:07 for "eth2.7": neucad did not create it'
    assert problems(text, theirs) == [(f"{mac(2)}.7", "refused", reason)]
    assert (
        problems(text, theirs, record=Record(owned=OwnedObjects(vlans=frozenset({key(2, 7)}))))
        == []
    )
    assert problems(VLAN7 + "state = user\nmac = 02:00:00:00:00:07\n", theirs) == []
    assert (
        asked(VLAN7 + "state = user\nmac = 02:00:00:00:00:07\n", theirs)
        .desired.links[key(2, 7)]
        .virtual
        is None
    )


def test_a_vlan_of_ours_follows_the_name_of_its_nic():
    record = Record(owned=OwnedObjects(vlans=frozenset({key(2, 7)})))
    assert (
        asked(NIC2 + "name = data\n" + VLAN7, vlan(9, 2, 7), record=record)
        .desired.links[key(2, 7)]
        .name
        == "data.7"
    )


def test_a_vlan_in_state_user_is_never_made():
    assert key(2, 7) not in asked(VLAN7 + "state = user\n").desired.links
    assert asked(VLAN7 + "state = user\n", vlan(9, 2, 7)).desired.links[key(2, 7)].state == "user"


# --- what goes back, and what may be taken away ---------------------------------------------------------------------

BEFORE = {key(2): OriginalValues(1400, 500, {"net/ipv4/conf/{interface}/rp_filter": "1"})}


@pytest.mark.parametrize(
    "text",
    [
        NIC2,
        f"[interfaces]\n{mac(2)} = user\n",
        f"[interfaces]\n{mac(2)} = down\n",
        "[interfaces]\n",
    ],
)
def test_what_is_no_longer_asked_for_goes_back(text):
    link = asked(text, record=Record(originals=BEFORE)).desired.links[key(2)]
    assert (link.mtu, link.txqueuelen, dict(link.sysctls)) == (
        1400,
        500,
        {"net/ipv4/conf/{interface}/rp_filter": "1"},
    )


def test_what_is_still_asked_for_does_not_go_back():
    text = NIC2 + "mtu = 9000\ntxqueuelen = 77\nsysctl.net.ipv4.conf.{interface}.rp_filter = 2\n"
    link = asked(text, record=Record(originals=BEFORE)).desired.links[key(2)]
    assert (link.mtu, link.txqueuelen, dict(link.sysctls)) == (
        9000,
        77,
        {"net/ipv4/conf/{interface}/rp_filter": "2"},
    )


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[interfaces]\nnonsense = 1\n",
        NIC2 + "mtu = much\n",
        NIC2 + "[vlan bogus]\n" + f"[interface {mac(2)}]\nmtu = 12\n",
    ],
)
def test_without_a_document_that_is_sure_nothing_goes_back(text):
    resolution = asked(
        text, record=Record(originals=BEFORE, original_sysctls={"net/core/rmem_max": "1"})
    )
    link = resolution.desired.links.get(key(2))
    assert link is None or (link.mtu, link.txqueuelen, dict(link.sysctls)) == (None, None, {})
    assert resolution.desired.sysctls == {}


def test_a_nic_that_is_management_or_ignored_by_now_does_not_go_back():
    for policy in (Policy(ignored=frozenset({mac(2)})), Policy(management=frozenset({mac(2)}))):
        assert (
            asked(
                "[interfaces]\n", settings=Settings(policy), record=Record(originals=BEFORE)
            ).desired.links
            == {}
        )


def test_a_nic_does_not_go_back_below_a_foreign_vlan():
    resolution = asked("[interfaces]\n", vlan(9, 2, 5, mtu=1500), record=Record(originals=BEFORE))
    assert resolution.desired.links[key(2)].mtu is None
    assert [one.text for one in resolution.problems] == [
        'MTU 1400 requested, but "eth2.5" on "eth2" was not created by neucad and has MTU 1500'
    ]


OWNED = OwnedObjects(
    frozenset({(key(2), ip_interface("10.0.0.1/24")), (key(3), ip_interface("10.0.1.1/24"))}),
    frozenset({key(2, 7)}),
)


@pytest.mark.parametrize(("text", "macs", "vlans", "routes"), [
    ("[interfaces]\n", {mac(2), mac(3)}, {key(2, 7)}, True),
    ("", set(), set(), False),
    ("[interfaces]\nnonsense = 1\n", set(), set(), False),
    (NIC2 + NIC3 + "mtu = 12\n", {mac(2)}, set(), False),
    (NIC2 + f"[interface {mac(3)}]\nbogus = 1\n", {mac(2)}, set(), False),
    (f"[interfaces]\n{mac(2)} = up\n{mac(3)} = bogus\n", {mac(2)}, set(), False),
    (NIC2 + NIC3 + f"[vlan {mac(3)}.5]\nmtu = 12\n", {mac(2)}, set(), False),
    (NIC2 + "[interface 0200.0000.0003]\naddresses = 10.0.1.1/33\n", {mac(2)}, set(), False),
    (NIC2 + NIC3 + "[bogus]\nx = 1\n", {mac(2), mac(3)}, {key(2, 7)}, True),
])  # fmt: skip
def test_what_may_be_taken_away_by_how_sure_the_document_is(text, macs, vlans, routes):
    removable = asked(text, record=Record(owned=OWNED)).removable
    assert {one.mac for one, _ in removable.addresses} == macs
    assert (removable.vlans, removable.routes) == (vlans, routes)


@pytest.mark.parametrize(
    "fault",
    [
        Fault(3, f"interface {mac(2)}", "mtu", "12", "x"),
        Fault(3, "interfaces", "0200.0000.0002", "up", "x"),
        Fault(3, "interfaces", "020000000002", "up", "x"),
        Fault(3, f"vlan {mac(2)}.9", "", "", "x"),
    ],
)
def test_a_fault_casts_doubt_on_the_nic_that_it_names_in_any_notation(fault):
    doubtful = document(NIC2 + NIC3)._replace(faults=(fault,))
    resolution = resolve_state(doubtful, Settings(), world(nic(2), nic(3)), Record(owned=OWNED))
    assert {one.mac for one, _ in resolution.removable.addresses} == {mac(3)}


# --- what people are shown ------------------------------------------------------------------------------------------


def test_every_nic_is_shown_with_its_role_and_only_ours_with_settings():
    text = f"{NIC2}mtu = 1400\n{VLAN7}[interface {mac(9)}]\nmtu = 9000\naddresses = 10.9.0.1/24\n"
    shown = {
        one.key: one
        for one in asked(
            text, record=Record(nics={mac(8): NicRecord(role="management")})
        ).shown_links
    }
    assert {str(one): link.role for one, link in shown.items()} == {
        mac(1): "management",
        mac(2): "dataplane",
        mac(3): "unlisted",
        mac(8): "management",
        mac(9): "dataplane",
        f"{mac(2)}.7": "dataplane",
    }
    assert (shown[key(2)].name, shown[key(2)].mtu, shown[key(2, 7)].name) == (None, 1400, "eth2.7")
    assert (shown[key(9)].mtu, list(map(str, shown[key(9)].addresses))) == (9000, ["10.9.0.1/24"])
    assert (shown[key(1)].state, shown[key(3)].mtu) == (None, None)


def test_the_digest_does_not_depend_on_what_is_found():
    text = f"{NIC2}addresses = 10.0.0.1/24\n{VLAN7}[routes]\n10.5.0.0/16 = 10.0.0.254\n"
    here, gone = asked(text), resolve_state(document(text), Settings(), world(), Record())
    assert here.digests == gone.digests
    assert set(here.digests) == {"", mac(2)}


@pytest.mark.parametrize(("first", "second", "differ"), [
    (NIC2, "# a comment\n\n" + NIC2, set()),
    (NIC2 + NIC3, NIC3 + NIC2, set()),
    (NIC2, NIC2 + "mtu = 1400\n", {mac(2)}),
    (NIC2 + NIC3, NIC2 + NIC3 + "name = data\n", {mac(3)}),
    (NIC2, NIC2 + VLAN7, {mac(2)}),
    (NIC2, f"[interfaces]\n{mac(2)} = up\n", set()),
    (NIC2 + "[routes]\n", NIC2 + "[routes]\n10.5.0.0/16 = 10.0.0.1\n", {""}),
    (NIC2 + "addresses = 10.0.0.1/24\n[routes]\n",
     NIC2 + "addresses = 10.0.0.1/24\n[routes]\n10.5.0.0/16 = 10.0.0.9\n", {mac(2)}),
    (NIC2 + "addresses = 10.0.0.1/24\n[routes]\n10.5.0.0/16 = 10.0.0.9\n",
     "\n\n" + NIC2 + "addresses = 10.0.0.1/24\n[routes]\n10.5.0.0/16 = 10.0.0.9\n", set()),
    (NIC2 + "[routes]\n10.5.0.0/16 = down\n", NIC2 + "[routes]\n10.5.0.0/16 = user\n", {""}),
    (NIC2 + "sysctl.net.core.rmem_max = 1\n", NIC2 + "sysctl.net.core.rmem_max = 2\n", {mac(2), ""}),
    (NIC2 + "[global]\nhost_name = a\n", NIC2 + "[global]\nhost_name = b\n", set()),
])  # fmt: skip
def test_the_digest_of_a_nic_changes_with_its_own_request_alone(first, second, differ):
    before, after = asked(first).digests, asked(second).digests
    assert {one for one in before if before[one] != after[one]} == differ


def test_find_links_keys_a_vlan_by_its_nic():
    assert LinkKey(mac(2), 7) in asked(VLAN7, vlan(9, 2, 7)).desired.links
    assert asked(VLAN7, vlan(9, 2, 7)).desired.links[key(2, 7)].index == 9


# --- the same address on two links ---


def test_an_address_that_two_links_ask_for_is_set_on_none_and_both_say_so():
    text = f"[interface {mac(2)}]\naddresses = 10.0.0.1/24, 10.0.2.1/24\n[vlan {mac(3)}.7]\naddresses = 10.0.0.1/16\n"
    found = resolve_state(document(text), Settings(), world(nic(2), nic(3)), Record())
    why = f"it is requested on {mac(2)} and {mac(3)}.7, so it is set on none of them"
    assert {problem.link: problem.text for problem in found.problems} == {
        key(2): f"address 10.0.0.1/24: {why}",
        key(3, 7): f"address 10.0.0.1/16: {why}",
    }
    assert [str(one) for one in found.desired.links[key(2)].addresses] == ["10.0.2.1/24"]
    assert found.desired.links[key(3, 7)].addresses == ()


def test_an_address_of_a_link_that_is_not_ours_to_set_is_asked_for_once():
    """A NIC that is ignored, or the user's own; nor does a link-local address mean the same on two links."""
    text = "".join(
        f"[interface {mac(number)}]\naddresses = 10.0.0.1/24, fe80::1/64\n" for number in (2, 3)
    )
    seen = world(nic(2), nic(3))
    ignored = resolve_state(
        document(text), Settings(Policy(ignored=frozenset({mac(3)}))), seen, Record()
    )
    users = resolve_state(document(text + "state = user\n"), Settings(), seen, Record())
    for found in (ignored, users):
        assert [str(one) for one in found.desired.links[key(2)].addresses] == [
            "10.0.0.1/24",
            "fe80::1/64",
        ]


def test_an_absent_nic_costs_the_other_its_address_too():
    """It depends on the text alone: a NIC that is plugged in changes no other."""
    text = f"[interface {mac(2)}]\naddresses = 10.0.0.1/24\n[interface {mac(9)}]\naddresses = 10.0.0.1/24\n"
    assert (
        resolve_state(document(text), Settings(), world(nic(2)), Record())
        .desired.links[key(2)]
        .addresses
        == ()
    )


def test_an_ipv6_address_with_several_prefix_lengths_is_set_with_the_first():
    """The kernel refuses the others (ipv6_add_addr); of IPv4, it has all of them."""
    text = f"[interface {mac(2)}]\naddresses = fd00::5/64, fd00::5/128, 10.0.0.5/24, 10.0.0.5/32\n"
    agent = Agent(machine(nic(1), nic(2), mgmt=1), text)
    _, result, _ = agent.run()
    reason = "address fd00::5/128: the link has it with a different prefix length"
    assert [problem.text for problem in agent.survey().resolution.problems] == [reason]
    addresses = [str(address) for address in agent.kernel.world().addresses[2]]
    assert addresses == ["fe80::2/64", "fd00::5/64", "10.0.0.5/24", "10.0.0.5/32"]
    assert (result.failures, agent.plan()) == ((), ())


# --- forwarding -----------------------------------------------------------------------------------------------------

FORWARDING = ("net/ipv4/ip_forward", "net/ipv6/conf/all/forwarding")


@pytest.mark.parametrize(("word", "value"), [("true", "1"), ("FALSE", "0")])
def test_a_router_forwards_both_families_and_a_host_that_is_to_be_none_neither(word, value):
    found = asked(f"[global]\nrouter = {word}\n{NIC2}")
    assert (dict(found.desired.sysctls), found.problems) == (dict.fromkeys(FORWARDING, value), ())


@pytest.mark.parametrize("text", ["[global]\nrouter = user\n", "[global]\nhost_name = x\n"])
def test_a_user_who_forwards_as_he_likes_is_left_alone(text):
    assert asked(text).desired.sysctls == {}


def test_forwarding_waits_while_a_management_nic_uses_router_advertisements():
    found = asked(f"[global]\nrouter = true\n{NIC2}", advertised=frozenset({1, 2}))
    assert dict(found.desired.sysctls) == {FORWARDING[0]: "1"}
    reason = (
        "IPv6 forwarding remains off: eth1 gets its default route from router advertisements (accept_ra = 1), which a"
        " forwarding host ignores; to use both, set net.ipv6.conf.eth1.accept_ra = 2, then run neuca apply"
    )
    assert [(one.code, one.text) for one in found.problems] == [("contested", reason)]
    assert asked(f"[global]\nrouter = true\n{NIC2}", advertised=frozenset({2})).problems == ()


def test_forwarding_waits_shortly_after_the_boot_for_a_first_advertisement():
    text = f"[global]\nrouter = true\n{NIC2}"
    found = asked(text, advertised=frozenset({1}), age=5.0)
    assert FORWARDING[1] not in found.desired.sysctls
    reason = (
        "IPv6 forwarding remains off until 60 s after the boot, in case eth1 gets its default route"
        " from router advertisements"
    )
    assert ("pending", reason) in [(one.code, one.text) for one in found.problems]


@pytest.mark.parametrize(("up", "hindered"), [(True, ["contested"]), (False, [])])
def test_a_nic_that_is_down_and_nobodys_has_no_route_to_lose(up, hindered):
    found = asked(f"[global]\nrouter = true\n{NIC2}", nic(3, up=up), advertised=frozenset({3}))
    assert [one.code for one in found.problems] == hindered


def test_forwarding_is_what_it_was_once_nobody_asks():
    record = Record(original_sysctls={FORWARDING[0]: "0"})
    assert asked(f"[global]\nrouter = user\n{NIC2}", record=record).desired.sysctls == {
        FORWARDING[0]: "0"
    }
    off = Settings(router=False)
    assert asked(
        f"[global]\nrouter = true\n{NIC2}", record=record, settings=off
    ).desired.sysctls == {FORWARDING[0]: "0"}


def test_another_router_word_is_another_request_of_the_host_and_of_no_nic():
    before, after = (
        asked(f"[global]\nrouter = {word}\n{NIC2}").digests for word in ("user", "true")
    )
    assert {mac for mac in after if after[mac] != before[mac]} == {""}
