"""Bonds, bridges, VXLANs and macvlans over the model kernel: what is asked for, in which order, and what is refused."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import pytest
from kernel import Kernel, refuse
from worlds import Agent, key, mac, machine, nic, texts, world

from neuca_tools.desired.resolve import Settings, resolve_state
from neuca_tools.documents import parse
from neuca_tools.model import Device, LinkKey, NetworkState, Record, Virtual
from neuca_tools.state import intentions
from neuca_tools.state.records import load_journal, save_journal

ONE, TWO, THREE = mac(2), mac(3), mac(4)
BOND = f"[bond bond0]\nmode = 802.3ad\nmembers = {ONE}, {TWO}\naddresses = 10.7.0.1/24\n"
MACVLAN = f"[macvlan mv0]\nparent = {ONE}\n"
OWN = f"[interface {ONE}]\naddresses = 10.0.0.1/24\n[interface {TWO}]\naddresses = 10.1.0.1/24\n"


def agent(text, *devices):
    return Agent(machine(nic(1, "mgmt0"), nic(2), nic(3), nic(4), *devices, mgmt=1), text)


def problems(text):
    resolution = resolve_state(parse(text), Settings(), world(nic(2), nic(3), nic(4)), Record())
    return [(problem.code, str(problem.link), problem.text) for problem in resolution.problems]


def run(one, text=None):
    """A pass after which nothing is left; its operations as a person sees them."""
    if text is not None:
        one.ask(text)
    operations, result, _ = one.run()
    assert [failure.text for failure in result.failures] == []
    assert texts(one.plan()) == []
    return texts(operations)


def test_a_vlan_that_is_created_again_with_another_name_is_deleted_by_the_name_that_it_has():
    host = agent(BOND + "[vlan bond bond0.5]\n")
    run(host)
    other = BOND.replace("802.3ad", "balance-rr") + "[vlan bond bond0.5]\nname = data5\n"
    operations = run(host, other)
    assert "delete the VLAN bond0.5" in operations
    assert "create VLAN 5 on bond0 as data5 with MTU 1500" in operations


def test_a_port_comes_up_before_its_bridge_whatever_their_names_are():
    vxlan = "[vxlan vx0]\nid = 7\nlocal = 10.0.0.1\nremote = 10.0.0.2\n"
    operations = run(agent(OWN + vxlan + "[bridge br0]\nmembers = vxlan vx0\n"))
    ups = [operation for operation in operations if operation.endswith(" up")]
    assert ups == ["bring eth2 up", "bring eth3 up", "bring vx0 up", "bring br0 up"]


def test_members_go_down_into_a_bond_that_is_there_and_a_vlan_comes_after_both():
    one = agent(OWN)
    run(one)
    assert run(one, BOND + "mtu = 9000\n[vlan bond bond0.5]\naddresses = 10.5.0.1/24\n") == [
        f"create the bond bond0 (mac {ONE}, miimon 100, mode 802.3ad) with MTU 9000",
        "bring eth2 down",
        "add eth2 to bond0",
        "bring eth3 down",
        "add eth3 to bond0",
        "create VLAN 5 on bond0 as bond0.5",
        "bring eth2 up",
        "bring eth3 up",
        "bring bond0 up",
        "bring bond0.5 up",
        "add the address 10.7.0.1/24 to bond0",
        "add the address 10.5.0.1/24 to bond0.5",
        "delete the address 10.0.0.1/24 from eth2",
        "delete the address 10.1.0.1/24 from eth3",
    ]
    assert [one.kernel.named(name).mtu for name in ("eth2", "bond0", "bond0.5")] == [
        9000,
        9000,
        9000,
    ]


def test_what_is_on_a_bond_goes_before_it_and_its_members_have_their_own_again():
    one = agent(BOND + "mtu = 9000\n[vlan bond bond0.5]\n")
    run(one)
    assert run(one, OWN) == [
        "delete the VLAN bond0.5",
        "delete the bond bond0",
        "set the MTU of eth2 to 1500",
        "set the MTU of eth3 to 1500",
        "bring eth2 up",
        "bring eth3 up",
        "add the address 10.0.0.1/24 to eth2",
        "add the address 10.1.0.1/24 to eth3",
    ]
    assert [
        (one.kernel.named(name).mtu, one.kernel.named(name).mac) for name in ("eth2", "eth3")
    ] == [(1500, ONE), (1500, TWO)]


def test_a_nic_that_leaves_a_bond_has_its_own_mtu_address_and_route():
    own = "mac = 02:00:00:00:00:aa\nmtu = 9000\n"
    one = agent(BOND + own)
    run(one)
    left = (
        BOND.replace(f"{ONE}, ", "")
        + own
        + f"\n[interface {ONE}]\naddresses = 10.0.0.1/24\nmtu = 4000\n"
    )
    assert run(one, left + "[routes]\n10.9.0.0/16 = 10.0.0.254\n") == [
        "remove eth2 from bond0",
        "set the MTU of eth2 to 4000",
        "bring eth2 up",
        "add the address 10.0.0.1/24 to eth2",
        "route 10.9.0.0/16 via 10.0.0.254 on eth2",
    ]
    assert (one.kernel.named("eth2").mtu, one.kernel.named("eth3").master) == (
        4000,
        one.kernel.named("bond0").index,
    )
    assert one.record.originals[key(2)].mtu == 1500  # not the bond's


def test_a_bond_that_changes_its_mode_is_made_anew_with_all_that_is_on_it():
    text = (
        BOND + "[vlan bond bond0.5]\naddresses = 10.5.0.1/24\n[routes]\n10.9.0.0/16 = 10.5.0.254\n"
    )
    one = agent(text)
    run(one)
    done = run(one, text.replace("802.3ad", "active-backup"))
    assert done[:3] == [
        "delete the VLAN bond0.5",
        "delete the bond bond0",
        f"create the bond bond0 (mac {ONE}, miimon 100, mode active-backup)",
    ]
    assert done[-1] == "route 10.9.0.0/16 via 10.5.0.254 on bond0.5"


def test_a_bond_or_bridge_has_the_mac_of_its_first_member_and_keeps_it():
    one = agent(
        BOND
        + "[vlan bond bond0.5]\n[bridge br0]\nmembers = bond bond0.5\n"
        + f"[bridge br1]\nmembers = {THREE}\n"
    )
    run(one)
    assert [one.kernel.named(name).mac for name in ("bond0", "br0", "br1")] == [ONE, ONE, THREE]
    done = run(one, BOND.replace(f"{ONE}, ", ""))
    assert "remove eth2 from bond0" in done
    assert "delete the bond bond0" not in done
    assert (one.kernel.named("bond0").mac, one.kernel.named("eth2").mac) == (ONE, ONE)


def test_a_bridge_takes_a_bond_that_has_kept_the_mac_of_a_former_member():
    agent_ = agent(BOND)
    run(agent_)
    bond = BOND.replace(f"{ONE}, ", "")
    done = run(
        agent_, bond.replace("addresses", "# addresses") + "[bridge br0]\nmembers = bond bond0\n"
    )
    assert f"create the bridge br0 (mac {ONE})" in done
    assert agent_.kernel.named("bond0").master == agent_.kernel.named("br0").index


def test_who_passes_on_its_members_mac_has_none_of_its_own():
    one = agent(BOND.replace("802.3ad", "active-backup") + "fail-over-mac = active\n")
    assert (
        run(one)[0]
        == "create the bond bond0 (fail-over-mac active, miimon 100, mode active-backup)"
    )


def test_only_what_changed_changes():
    one = agent(BOND + f"[interface {THREE}]\naddresses = 10.2.0.1/24\n")
    run(one)
    one.kernel.set_mtu(one.kernel.named("eth4").index, 2000)
    one.ask(
        BOND
        + f"xmit-hash-policy = layer3+4\n[interface {THREE}]\naddresses = 10.2.0.1/24\nmtu = 1500\n"
    )
    assert {operation.target for operation in one.run(start=False)[0] if operation.link} >= {
        "bond0",
        "eth2",
        "eth3",
        "eth4",
    }
    one.ask(BOND + f"[interface {THREE}]\naddresses = 10.2.0.1/24\nmtu = 1500\n")
    assert "eth4" not in {operation.target for operation in one.run(start=False)[0]}
    assert texts(one.plan()) == []


def test_a_member_that_is_absent_is_put_in_when_it_comes():
    one = Agent(machine(nic(1, "mgmt0"), nic(2), mgmt=1), BOND)
    run(one)
    one.kernel.devices[9] = nic(9, mac=TWO, permanent_mac=TWO)
    assert texts(one.run(start=False)[0]) == ["add eth9 to bond0", "bring eth9 up"]
    assert texts(one.plan()) == []


def test_a_bond_that_fails_half_way_leaves_its_members_as_they_were(monkeypatch):
    one = agent(OWN)
    run(one)
    before = one.kernel.snapshot()
    one.ask(
        BOND
        + "[vxlan vx0]\nid = 5\nparent = bond bond0\n"
        + f"[interface {THREE}]\naddresses = 10.2.0.1/24\n"
    )
    taken = one.kernel.named("eth3").index
    monkeypatch.setattr(
        one.kernel,
        "set_master",
        lambda index, master: (
            refuse(5, "Input/output error")
            if index == taken and master
            else type(one.kernel).set_master(one.kernel, index, master)
        ),
    )
    _, result, undone = one.run()
    assert [failure.text for failure in result.failures] == [
        "add eth3 to bond0: Input/output error"
    ]
    assert result.nics_to_roll_back == {ONE, TWO, "bond bond0", "vxlan vx0"}
    assert texts(undone.done)[:1] == ["delete the bond bond0"]
    after = one.kernel.snapshot()
    index = one.kernel.named("eth4").index
    assert {number: device for number, device in after[0].items() if number != index} == {
        number: device for number, device in before[0].items() if number != index
    }
    assert one.kernel.addresses[index][-1].ip.compressed == "10.2.0.1"


def test_a_bond_that_was_made_and_the_pass_died_is_still_ours():
    one = agent(BOND)
    survey = one.survey()
    one.record = intentions.record_intentions(survey.record, survey.plan())
    one.kernel.add_link("bond", "bond0", 0, {"mac": ONE, "mode": "802.3ad", "miimon": "100"}, None)
    assert "add eth2 to bond0" in run(one)


def test_after_a_reboot_it_is_made_again():
    one = agent(BOND)
    run(one)
    one.reboot()
    assert f"create the bond bond0 (mac {ONE}, miimon 100, mode 802.3ad)" in run(one)


def test_an_incomplete_document_takes_nothing_apart():
    one = agent(BOND)
    run(one)
    one.ask(BOND.replace(f"{ONE}, {TWO}", "bogus") + OWN)
    one.run()
    assert one.kernel.named("eth2").master == one.kernel.named("bond0").index


def test_the_journal_brings_back_what_links_are_made_of(tmp_path):
    one = agent(BOND + "[vxlan vx0]\nid = 5\nparent = bond bond0\n")
    run(one)
    observed = one.survey().observed
    save_journal(tmp_path, NetworkState(observed.links, observed.hops), "boot-1")
    back = load_journal(tmp_path, "boot-1")
    assert back.links[LinkKey("vxlan vx0")].virtual == observed.links[LinkKey("vxlan vx0")].virtual
    assert back.links[key(2)].master == LinkKey("bond bond0")
    assert observed.links[LinkKey("bond bond0")].virtual.members == (key(2), key(3))


# --- refused --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "link", "why"),
    [
        (f"[bond bond0]\nmembers = {ONE}\n", "bond bond0", "it requires mode"),
        ("[bond bond0]\nmode = 802.3ad\n", "bond bond0", "it requires members"),
        (f"[vxlan vx0]\nparent = {ONE}\n", "vxlan vx0", "it requires id"),
        ("[macvlan mv0]\n", "macvlan mv0", "it requires parent"),
        ("[vlan bond bond9.5]\n", "bond bond9", "neither a parent nor members are specified"),
        (
            "[vxlan vx0]\nid = 5\nremote = 10.0.0.2\n",
            "vxlan vx0",
            "no link has the network of its local or remote address: set its parent",
        ),
        (
            "[vxlan vx0]\nid = 5\nlocal = 10.0.0.2\nremote = fd00::1\n",
            "vxlan vx0",
            "local and remote are not of the same family",
        ),
        (
            "[bridge br0]\n[vxlan vx0]\nid = 5\nparent = bridge br0\n",
            "vxlan vx0",
            "a vxlan cannot use bridge br0",
        ),
        (
            f"[bond bond0]\nmode = 802.3ad\nmembers = {ONE}.5\n",
            "bond bond0",
            f"a bond cannot use {ONE}.5: make the bond of the NICs, and the VLAN on the bond",
        ),
        (
            f"[vlan {ONE}.5]\nname = v5\n[bond bond0]\nmode = 802.3ad\nmembers = {ONE}.5, {TWO}.6\n",
            "bond bond0",
            f'a bond cannot use "v5" ({ONE}.5), {TWO}.6: make the bond of the NICs, and the VLAN on the bond',
        ),
        (f"[bridge br0]\nmembers = {ONE}.5\n", "bridge br0", f"{ONE}.5 is not requested"),
        ("[bridge br0]\nmembers = bond bond9\n", "bridge br0", "bond bond9 cannot be created"),
        (
            f"[interfaces]\n{ONE} = down\n[bridge br0]\nmembers = {ONE}\n",
            "bridge br0",
            f'{ONE} is requested to be "down"',
        ),
        (
            f"[bridge br0]\nmembers = {ONE}\n[bridge br1]\nmembers = {ONE}\n",
            "bridge br1",
            f"{ONE} is in bridge br0 already",
        ),
        (
            f"{MACVLAN}[bridge br0]\nmembers = {ONE}\n",
            "bridge br0",
            f"{ONE} has macvlan mv0 on top of it, so it cannot be in a bond or bridge",
        ),
        (
            f"{MACVLAN}[bond b]\nmode = 802.3ad\nmembers = {ONE}\n",
            "macvlan mv0",
            f"{ONE} is in bond b already",
        ),
        (
            f"[bridge eth3]\nmembers = {ONE}\n",
            "bridge eth3",
            'another interface is named "eth3": it is left alone',
        ),
        (
            f"{BOND}arp-interval = 100\n",
            "bond bond0",
            "a bond with mode = 802.3ad cannot have arp-interval",
        ),
        (
            f"[bond b]\nmode = active-backup\nmembers = {ONE}\nmiimon = 100\narp-interval = 100\n",
            "bond b",
            "a bond cannot have both miimon and arp-interval",
        ),
        (
            f"{BOND}packets-per-slave = 4\n",
            "bond bond0",
            "packets-per-slave needs mode = balance-rr",
        ),
        (
            f"[bond b]\nmode = active-backup\nmembers = {ONE}\nlacp-rate = fast\n",
            "bond b",
            "lacp-rate needs mode = 802.3ad",
        ),
        (
            f"{BOND}arp-validate = all\n",
            "bond bond0",
            "a bond with mode = 802.3ad cannot have arp-validate",
        ),
        (
            f"{BOND}miimon = 0\ndowndelay = 200\n",
            "bond bond0",
            "downdelay needs miimon",
        ),
        (
            f"[bond b]\nmode = active-backup\nmembers = {ONE}\narp-interval = 100\nupdelay = 200\n",
            "bond b",
            "updelay needs miimon",
        ),
        (
            f"[bridge b]\nmembers = {ONE}\nstp = yes\nforward-delay = 1\n",
            "bridge b",
            "with stp, forward-delay is at least 2",
        ),
    ],
)
def test_what_cannot_be_made_says_why(text, link, why):
    assert ("refused", link, why) in problems(text)


def test_the_kernel_s_default_of_an_option_that_the_mode_excludes_is_harmless():
    words = "lacp-rate = slow\narp-interval = 0\narp-validate = none\npackets-per-slave = 1\n"
    text = f"[bond b]\nmode = balance-alb\nmembers = {ONE}\n{words}"
    assert [problem for problem in problems(text) if problem[0] == "refused"] == []


def test_a_bond_that_checks_its_members_by_arp_has_no_other_way_by_default():
    one = agent(f"[bond b]\nmode = active-backup\nmembers = {ONE}\narp-interval = 100\n")
    created = next(text for text in run(one) if text.startswith("create the bond"))
    assert created == f"create the bond b (arp-interval 100, mac {ONE}, mode active-backup)"


def test_a_nic_with_somebody_elses_macvlan_on_it_is_put_into_nothing():
    theirs = Device(9, "theirs", "macvlan", mac(9), lower=2, mtu=1500)
    resolution = resolve_state(parse(BOND), Settings(), world(nic(2), nic(3), theirs), Record())
    assert [problem.text for problem in resolution.problems] == [
        f'{ONE} has "theirs" on top of it, so it cannot be in a bond or bridge'
    ]


@pytest.mark.parametrize(
    ("text", "name"),
    [
        (BOND, "bond0"),
        (f"[bridge br0]\nmembers = {ONE}\n", "br0"),
        (f"[vrf red]\ntable = 500\nmembers = {ONE}\n", "red"),
    ],
)
def test_a_nic_that_somebody_has_put_into_a_link_of_ours_stays_and_keeps_it(text, name):
    one = agent(text)
    run(one)
    master = one.kernel.named(name).index
    one.kernel.set_master(4, master)  # which no document names
    assert run(one) == []
    run(one, f"[interface {ONE}]\nmtu = 1400\n")
    assert one.kernel.devices[4].master == master
    assert 'but somebody put "eth4" into it' in str(one.survey().resolution.problems)
    one.kernel.set_master(4, 0)
    run(one)
    assert one.kernel.named(name) is None


def test_a_nic_with_a_macvlan_that_an_incomplete_document_leaves_on_it_is_put_into_nothing():
    one = agent(MACVLAN)
    run(one)
    assert run(one, f"[bridge br0]\nmembers = {ONE}\n[interfaces]\nnonsense = 1\n") == []
    assert [problem.text for problem in one.survey().resolution.problems] == [
        f'{ONE} has "mv0" on top of it, so it cannot be in a bond or bridge'
    ]
    assert "add eth2 to br0" in run(one, f"[bridge br0]\nmembers = {ONE}\n")


def test_what_is_made_of_absent_nics_alone_is_absent():
    absent = problems(f"[bridge br0]\nmembers = {mac(9)}\n")
    assert ("absent", "bridge br0", f"none of its lower devices is present: {mac(9)}") in absent


def test_somebody_elses_bond_of_our_name_is_never_taken():
    one = agent(BOND)
    one.kernel.add_link("bond", "bond0", 0, {"mac": ONE, "mode": "802.3ad", "miimon": "100"}, None)
    one.kernel.written.clear()
    one.run()
    assert one.kernel.named("bond0").index not in one.kernel.written
    assert one.kernel.named("eth2").master == 0


def test_a_vlan_of_a_nic_in_a_bond_belongs_on_the_bond():
    assert problems(BOND + f"[vlan {ONE}.5]\n") == [
        ("refused", f"{ONE}.5", 'VLAN 5 is on a NIC that is in "bond0": request it there')
    ]


def test_a_bond_takes_no_more_than_its_members_do():
    small = nic(3, max_mtu=4000)
    resolution = resolve_state(
        parse(BOND + "mtu = 9000\n"), Settings(), world(nic(2), small), Record()
    )
    assert [(problem.code, problem.text) for problem in resolution.problems] == [
        ("mtu", 'MTU 9000 requested, but its member "eth3" supports at most 4000')
    ]


# --- documents ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "virtual"),
    [
        (
            "[bond b]\nmode = 4\nmiimon = 50\n",
            Virtual((), None, (("mode", "802.3ad"), ("miimon", "50"))),
        ),
        (
            f"[bridge b]\nmembers = {ONE.replace(':', '')}.7, bond x, bond x.5\nstp = on\n",
            Virtual((key(2, 7), LinkKey("bond x"), LinkKey("bond x", 5)), None, (("stp", "yes"),)),
        ),
        (
            "[vxlan b]\nid = 16777215\nlocal = FD00::1\n",
            Virtual((), None, (("id", "16777215"), ("local", "fd00::1"))),
        ),
        (
            "[macvlan b]\nparent = vxlan v\nmode = vepa\nmac = 0200.0000.0009\n",
            Virtual((), LinkKey("vxlan v"), (("mode", "vepa"), ("mac", mac(9)))),
        ),
    ],
)
def test_sections_say_what_it_is_made_of(text, virtual):
    assert (
        next(
            link.virtual
            for link in parse(text).links
            if link.key.kind in ("bond", "bridge", "vxlan", "macvlan")
            and link.key.virtual_name == "b"
        )
        == virtual
    )


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("members = eth0", '"eth0" is neither a MAC address nor a link such as "bond NAME"'),
        ("members = bond a.b.5", '"a.b" has a ".", which separates the ID of a VLAN'),
        ("lacp-rate = soon", '"soon" is not "slow" or "fast"'),
        ("id = 5", "unknown key; known are"),
        ("arp-ip-target = fd00::1", '"fd00::1" is not an IPv4 address'),
        ("arp-ip-target = " + "10.0.0.1," * 17, "more than 16 addresses"),
        (f"members = {ONE}, bond x, vlan", '"vlan" is neither a MAC address nor a link such as'),
    ],
)
def test_a_line_that_cannot_be_used_costs_its_link(line, reason):
    document = parse(f"[bond b]\n{line}\nmtu = 1400\n")
    assert document.links == ()
    assert len(document.faults) == 1
    assert document.faults[0].reason.startswith(reason)


def test_a_name_beside_that_of_the_section_costs_only_itself():
    document = parse("[bond b]\nname = x\nmtu = 1400\n")
    assert document.links[0].mtu == 1400
    assert [fault.reason for fault in document.faults] == ['its name is "b", as the section says']


def test_a_name_that_a_link_cannot_have_is_a_fault_of_its_section():
    assert [
        fault.reason for fault in parse("[bridge br0.5]\nmtu = 1400\n[interfaces]\n").faults
    ] == ['"br0.5" has a ".", which separates the ID of a VLAN, ignoring the section']


def test_each_layer_says_what_it_likes_of_it():
    local = parse("[bond bond0]\nupdelay = 200\nmode = active-backup\n").links
    resolution = resolve_state(parse(BOND), Settings(links=local), world(nic(2), nic(3)), Record())
    wanted = resolution.desired.links[LinkKey("bond bond0")].virtual
    assert dict(wanted.options) == {
        "mode": "active-backup",
        "miimon": "100",
        "updelay": "200",
        "mac": ONE,
    }
    assert wanted.members == (key(2), key(3))


def test_of_two_links_with_one_name_neither_is_made():
    text = f"[interface {mac(2)}]\n[bridge two]\nstate = up\n[macvlan two]\nparent = {mac(2)}\n"
    agent = Agent(Kernel(world(nic(1), nic(2))), text)
    assert agent.run()[1].failures == ()
    found = {(str(one.link), one.text) for one in agent.survey().resolution.problems}
    reason = 'another interface is to be named "two"'
    assert found == {("bridge two", reason), ("macvlan two", reason)}


def test_the_original_mtu_of_a_member_is_known_after_a_time_in_a_bond():
    one = agent(f"[interface {ONE}]\nmtu = 1400\n")
    run(one)
    run(one, BOND)
    run(one, "[global]\n")
    assert one.kernel.devices[2].mtu == 1500


IMPOSSIBLE = [
    f"[bond bond0]\nmode = active-backup\nmembers = {mac(2)}, {mac(1)}\n",
    f"[bridge br0]\nmembers = {mac(2)}, {mac(1)}\n",
    f"[vrf red]\ntable = 100\nmembers = {mac(2)}, {mac(1)}\n",
]


@pytest.mark.parametrize("section", IMPOSSIBLE)
def test_a_nic_whose_master_cannot_be_created_keeps_its_address_and_gets_no_other(section):
    agent = Agent(machine(nic(1), nic(2), mgmt=1))
    agent.ask(f"[interface {mac(2)}]\naddresses = 10.0.2.1/24\n")
    agent.run()
    agent.ask(f"{section}[interface {mac(2)}]\naddresses = 10.0.2.1/24, 10.0.4.1/24\n")
    agent.run()
    found = [str(address) for address in agent.kernel.addresses[2] if address.version == 4]
    assert found == ["10.0.2.1/24"]
