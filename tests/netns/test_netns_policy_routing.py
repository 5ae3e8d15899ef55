"""Policy routing, proven with packets: a router that drops spoofed sources, as the fabric of a cloud does."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import json
import subprocess
import sys

import pytest
from lab import GATEWAY, GATEWAY6, MANAGEMENT_MAC, PATIENCE, ROOT, mac

# A host in the internet, reached through every NIC.
FAR, FAR6 = "203.0.113.1", "2001:db8:cafe::1"
SUBNETS = {
    "mgmt0": ("192.0.2.0/24", "2001:db8:ffff::/64"),
    "dp1": ("10.1.0.0/24", "fd00:1::/64"),
    "dp2": ("10.2.0.0/24", "fd00:2::/64"),
}
OWN = {
    "mgmt0": ("192.0.2.10", "2001:db8:ffff::10"),
    "dp1": ("10.1.0.5", "fd00:1::5"),
    "dp2": ("10.2.0.5", "fd00:2::5"),
}
ROUTERS = {
    "mgmt0": (GATEWAY, GATEWAY6),
    "dp1": ("10.1.0.1", "fd00:1::1"),
    "dp2": ("10.2.0.1", "fd00:2::1"),
}


def section(number, more=""):
    return f"""[interface {mac(number)}]
addresses = 10.{number}.0.5/24, fd00:{number}::5/64
gateway = 10.{number}.0.1, fd00:{number}::1
{more}
"""


BOTH = section(1) + section(2)
# Sends an echo request from each source to each destination, and prints the pairs that were answered.
PROBE = """
import json, select, socket, struct, sys, time
def checksum(data):
    total = sum(struct.unpack(f"!{len(data) // 2}H", data))
    total = (total >> 16) + (total & 0xFFFF)
    return ~(total + (total >> 16)) & 0xFFFF
pairs, sockets, found = json.loads(sys.argv[1]), {}, []
for number, (source, to) in enumerate(pairs):
    six = ":" in source
    family = socket.AF_INET6 if six else socket.AF_INET
    one = socket.socket(family, socket.SOCK_RAW, 58 if six else 1)
    one.bind((source, 0))
    head = struct.pack("!BBHHH", 128 if six else 8, 0, 0, 4711, number)
    data = head if six else struct.pack("!BBHHH", 8, 0, checksum(head), 4711, number)
    sockets[one] = (number, six, data, to)
deadline, due = time.monotonic() + float(sys.argv[2]), 0.0
while sockets and time.monotonic() < deadline:
    if time.monotonic() >= due:
        # Once a second, as ping(8) does: the first packet may be lost while neighbors are resolved.
        due = time.monotonic() + 1
        for one, (_, _, data, to) in sockets.items():
            one.sendto(data, (to, 0))
    left = min(due, deadline) - time.monotonic()
    ready, _, _ = select.select(list(sockets), [], [], max(0, left))
    for one in ready:
        number, six, _, _ = sockets[one]
        data, sender = one.recvfrom(2048)
        body = data if six else data[20:]
        if (body[0], struct.unpack("!HH", body[4:8])) == (129 if six else 0, (4711, number)):
            if sender[0] == pairs[number][1]:
                found.append(pairs[number])
                del sockets[one]
print(json.dumps(found))
"""
# Carries out the plan one operation at a time: after each it prints a line, and waits for one.
STEPS = """
import sys
from pathlib import Path
from neuca_tools.apply.host import open_host
from neuca_tools.config import load_config
from neuca_tools.state.active_document import last_confirmed
from neuca_tools.agent.worker import Job
from neuca_tools.documents import parse
from neuca_tools.state.active_document import Intake
from neuca_tools.state import intentions, records
config = load_config(Path(sys.argv[1]))
intake = Intake(parse(Path(sys.argv[2]).read_text()))
with open_host(config, intake) as handles:
    decision = handles.survey()
    writer = handles.writer(decision)
    operations = decision.plan()
    record = intentions.record_intentions(decision.record, operations)
    records.save_record(config.state, record)
    for operation in operations:
        operation.run(writer)
        print(operation.text, flush=True)
        sys.stdin.readline()
"""


@pytest.fixture
def cloud(lab):
    """A guest with a management NIC and two more, each in a subnet of a router that drops spoofed packets."""
    lab.management()
    lab.veth("dp1", 1)
    lab.veth("dp2", 2)
    for name in ("dp1", "dp2"):
        for router, subnet in zip(ROUTERS[name], SUBNETS[name]):
            words = ["ip", "address", "add", f"{router}/{subnet.partition('/')[2]}", "dev", name]
            lab.run(*words, *(["nodad"] if ":" in router else []), where=lab.outside)
    lab.run("ip", "address", "add", f"{FAR}/32", "dev", "lo", where=lab.outside)
    # Without nodad, nothing can be sent from an address in its first second.
    lab.run("ip", "address", "del", f"{GATEWAY6}/64", "dev", "mgmt0", where=lab.outside)
    for address, name in ((f"{FAR6}/128", "lo"), (f"{GATEWAY6}/64", "mgmt0")):
        words = ["ip", "address", "add", address, "dev", name, "nodad"]
        lab.run(*words, where=lab.outside)
    guarded(lab)
    return lab


def guarded(lab):
    """Make the router drop what comes in with a source of another subnet."""
    for number, family in enumerate(("-4", "-6")):
        rules = ["pref 200 lookup local"]
        for name, subnets in SUBNETS.items():
            rules += [f"pref 20 iif {name} from {subnets[number]} goto 200"]
            rules += [f"pref 20 iif {name} from fe80::/10 goto 200"] if number else []
            rules += [f"pref 30 iif {name} blackhole"]
        for rule in rules:
            lab.run("ip", family, "rule", "add", *rule.split(), where=lab.outside)
        lab.run("ip", family, "rule", "del", "pref", "0", where=lab.outside)


def pairs(names=("mgmt0", "dp1", "dp2")):
    """Every address of these NICs, from the internet and from the subnets."""
    found = []
    for name in names:
        # The management NIC has no rules: to another NIC's subnet it answers through that NIC.
        subnets = ROUTERS if name != "mgmt0" else ["mgmt0"]
        for number, address in enumerate(OWN[name]):
            sources = [(FAR, FAR6)[number], *(ROUTERS[one][number] for one in subnets)]
            found += [[source, address] for source in sources]
    return found


def answered(lab, wanted, seconds=30.0):
    """Which of the pairs are answered; it waits until all are, at most this long."""
    lab.settle()
    done = lab.run(sys.executable, "-c", PROBE, json.dumps(wanted), seconds, where=lab.outside)
    return sorted(json.loads(done.out))


@pytest.mark.parametrize("strictness", [0, 1, 2])
def test_every_address_is_reached_and_answers_through_its_own_nic(cloud, strictness):
    cloud.sysctl("net/ipv4/conf/all/rp_filter", strictness)
    cloud.sysctl("net/ipv4/conf/default/rp_filter", strictness)
    for name in SUBNETS:
        cloud.sysctl(f"net/ipv4/conf/{name}/rp_filter", strictness)
    before = cloud.look("route show table main")
    assert cloud.once(BOTH).code == 0
    assert answered(cloud, pairs()) == sorted(pairs())
    added = [one for one in cloud.look("route show table main") if one not in before]
    assert [(one["dst"], one["dev"]) for one in added] == [
        ("10.1.0.0/24", "dp1"),
        ("10.2.0.0/24", "dp2"),
    ]


def test_without_rules_only_its_own_subnet_reaches_an_address(cloud):
    no = "policy-routing = no"
    assert cloud.once(section(1, no) + section(2, no)).code == 0
    found = answered(cloud, pairs(("dp1",)), 3.0)
    assert found == [["10.1.0.1", "10.1.0.5"], ["fd00:1::1", "fd00:1::5"]]
    assert (ours(cloud), ours(cloud, "-6")) == ([], [])


def test_a_network_that_is_routed_through_two_nics_is_reached_from_the_addresses_of_both(cloud):
    """As OpenStack's host routes of two subnets: the main table has only one route with this prefix and metric."""
    routes = "203.0.113.0/24 = 10.1.0.1 metric 20\n203.0.113.0/24 = 10.2.0.1\n"
    assert cloud.once(f"{BOTH}[routes]\n{routes}").code == 0
    wanted = [[FAR, OWN["dp1"][0]], [FAR, OWN["dp2"][0]]]
    assert answered(cloud, wanted) == wanted
    assert cloud.plan() == []
    assert cloud.once(BOTH).code == 0
    assert cloud.run("ip", "route", "show", "203.0.113.0/24", "table", "all").out == ""


def ours(lab, family="-4"):
    return [
        one["priority"]
        for one in lab.look(f"{family} rule show")
        if one["priority"] > 30000 and one["priority"] < 32766
    ]


def test_the_rules_and_the_table_of_a_nic(cloud):
    cloud.once(BOTH)
    shown = cloud.run("ip", "-4", "rule", "show").out.replace("\t", " ").splitlines()
    assert [line for line in shown if "10.1.0.5" in line] == [
        "31000: from 10.1.0.5 lookup 31001 suppress_prefixlength 0 proto 110",
        "31100: from 10.1.0.5 lookup main suppress_prefixlength 0 proto 110",
        "31200: from 10.1.0.5 lookup 31001 proto 110",
    ]
    table = cloud.run("ip", "-4", "route", "show", "table", "31001").out.splitlines()
    assert [line.strip() for line in table] == [
        "default via 10.1.0.1 dev dp1 proto 110 metric 20",
        "10.1.0.0/24 dev dp1 proto 110 scope link src 10.1.0.5 metric 20",
        "10.2.0.0/24 via 10.1.0.1 dev dp1 proto 110 metric 20",
        "192.0.2.0/24 via 10.1.0.1 dev dp1 proto 110 metric 20",
    ]
    tables = {one["mac"]: one["table"] for one in cloud.status()[1]["interfaces"]}
    assert (tables[mac(1)], tables[mac(2)]) == (31001, 31002)
    assert "routing table: 31001" in cloud.neuca("status").out


@pytest.mark.long
def test_no_single_operation_makes_anything_worse(cloud):
    """Adding and removing NICs, one operation at a time."""
    growing = [*stepped(cloud, section(1)), *stepped(cloud, BOTH)]
    # What was answered before the second NIC had its address, from its subnet, came through the first.
    for (_, before), (text, after) in zip(growing, growing[1:]):
        assert [pair for pair in before if pair not in after] == [], text
    assert growing[-1][1] == sorted(pairs())
    kept = sorted(pairs(("mgmt0", "dp1")))
    for text, found in stepped(cloud, section(1)):
        assert [pair for pair in kept if pair not in found] == [], text
    assert ours(cloud) == [31000, 31100, 31200]


def stepped(lab, text):
    """Every operation that leads to this document, and what is answered after it."""
    lab.document(text)
    lab.foreign.remember()
    words = [*lab.guest.enter, sys.executable, "-c", STEPS, lab.config_file, lab.document_file]
    steps = subprocess.Popen(
        list(map(str, words)), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=lab.environment
    )  # fmt: skip
    found = []
    try:
        for line in steps.stdout:
            found.append((line.strip(), answered(lab, pairs(), 0.4)))
            steps.stdin.write("\n")
            steps.stdin.flush()
        assert steps.wait(PATIENCE) == 0
    finally:
        steps.kill()
        steps.wait()
    assert lab.once().code == 0
    return found


def test_a_rule_of_another_program_about_an_address_comes_first(cloud):
    cloud.ip("rule add from 10.1.0.5 lookup 500 pref 30200")
    assert cloud.once(BOTH).code == 0
    shown = cloud.run("ip", "-4", "rule", "show").out
    assert [line for line in shown.splitlines() if "10.1.0.5" in line and "110" in line] == []
    (one,) = [one for one in cloud.status()[1]["interfaces"] if one["mac"] == mac(1)]
    assert [note["reason"] for note in one["notes"]] == [
        "rule 30200 of another program selects 10.1.0.5"
    ]
    assert answered(cloud, [[FAR6, "fd00:1::5"], [FAR, "10.2.0.5"]]) == [
        [FAR6, "fd00:1::5"],
        [FAR, "10.2.0.5"],
    ]


def test_a_table_with_foreign_routes_is_not_used_and_a_table_is_kept(cloud):
    cloud.ip("route add blackhole 10.99.0.0/16 table 31001")
    cloud.once(section(2))
    tables = {one["mac"]: one["table"] for one in cloud.status()[1]["interfaces"]}
    assert tables[mac(2)] == 31002
    cloud.once(BOTH)
    tables = {one["mac"]: one["table"] for one in cloud.status()[1]["interfaces"]}
    assert (tables[mac(1)], tables[mac(2)]) == (31003, 31002)


def test_no_removes_everything_at_the_next_pass(cloud):
    cloud.once(BOTH)
    cloud.configure("[network]\npolicy-routing = no")
    assert cloud.once().code == 0
    assert (ours(cloud), ours(cloud, "-6")) == ([], [])
    assert cloud.run("ip", "route", "show", "table", "31001", check=False).out == ""


@pytest.fixture
def docker(cloud):
    """The same guest with a container behind docker0."""
    host = cloud.host()
    cloud.ip(f"link add docker0 type veth peer name eth0 netns {host.pid}")
    for words in ("address add 172.18.0.1/24 dev docker0", "link set docker0 up"):
        cloud.ip(words)
    for words in (
        "address add 172.18.0.2/24 dev eth0",
        "link set eth0 up",
        "route add default via 172.18.0.1",
    ):
        cloud.run("ip", *words.split(), where=host)
    cloud.sysctl("net/ipv4/ip_forward", 1)
    return cloud


def publish(lab, *words):
    """Have the kernel translate addresses as Docker does."""
    with lab.foreign.changing():
        lab.run(sys.executable, ROOT / "tests" / "netns" / "nat.py", *words)


def test_a_container_is_reached_from_an_address_of_a_nic(docker):
    """Main's specific routes, such as that of docker0, hold for the addresses of a NIC too."""
    docker.once(BOTH)
    done = docker.run(sys.executable, "-c", PROBE, json.dumps([["10.1.0.5", "172.18.0.2"]]), "10")
    assert json.loads(done.out) == [["10.1.0.5", "172.18.0.2"]]


def test_what_is_published_on_the_management_nic_stays_reachable(docker):
    """amazon-ec2-net-utils #97: rules for the primary NIC cut off the published ports."""
    publish(docker, "192.0.2.10=172.18.0.2")
    docker.once(BOTH)
    assert answered(docker, [[FAR, "192.0.2.10"]]) == [[FAR, "192.0.2.10"]]


def test_what_is_published_on_another_nic_needs_a_mark(docker):
    """Its answers are routed before they have the address of the NIC."""
    publish(docker, "10.1.0.5=172.18.0.2", "docker0")
    docker.once(BOTH)
    assert answered(docker, [[FAR, "10.1.0.5"]], 1.0) == []
    docker.once(f"{BOTH}[rule containers]\nmark = 1\ntable = 31001\n")
    wanted = [[FAR, "10.1.0.5"], [FAR, "10.2.0.5"], [FAR, "192.0.2.10"]]
    assert answered(docker, wanted) == sorted(wanted)


def test_rules_and_tables_come_back_after_somebody_deleted_them(cloud):
    cloud.document(BOTH)
    cloud.start()
    cloud.wait("all rules are there", lambda: len(ours(cloud)) == 6 and len(ours(cloud, "-6")) == 6)
    for pref in ("31000", "31100", "31200"):
        cloud.ip(f"rule del pref {pref} from 10.1.0.5")
    cloud.wait("the rules are back", lambda: len(ours(cloud)) == 6)
    cloud.ip("route flush table 31001")
    cloud.wait("the table is back", lambda: len(cloud.look("route show table 31001")) == 4)
    cloud.ip("link set dp2 down")
    cloud.ip("link set dp2 up")
    cloud.wait("the table is back", lambda: len(cloud.look("route show table 31002")) == 4)
    # The kernel has dropped it, and it is not set again before a start: that is drift.
    cloud.ip("-6 address add fd00:2::5/64 dev dp2 nodad")
    cloud.wait("the table is back", lambda: len(cloud.look("-6 route show table 31002")) == 4)
    assert answered(cloud, pairs(("dp1",))) == sorted(pairs(("dp1",)))


def test_a_nic_in_the_management_subnet(lab):
    """Its address has no route of its network in the main table, which stays as it is."""
    lab.management()
    lab.veth("dp1", 1)
    for words in (
        f"address add {FAR}/32 dev lo",
        "address flush dev dp1",
        "route add 192.0.2.20 dev dp1",
    ):
        lab.run("ip", *words.split(), where=lab.outside)
    for rule in (
        "pref 20 iif mgmt0 from 192.0.2.10 goto 200",
        "pref 20 iif dp1 from 192.0.2.20 goto 200",
        "pref 30 iif mgmt0 blackhole",
        "pref 30 iif dp1 blackhole",
    ):
        lab.run("ip", "rule", "add", *rule.split(), where=lab.outside)
    lab.run("ip", "rule", "add", "pref", "200", "lookup", "local", where=lab.outside)
    lab.run("ip", "rule", "del", "pref", "0", where=lab.outside)
    before = lab.look("route show table main")
    text = f"[interface {mac(1)}]\naddresses = 192.0.2.20/24\n"
    assert lab.once(text).code == 4
    assert lab.once(f"{text}gateway = {GATEWAY}\n").code == 0
    assert lab.look("route show table main") == before
    wanted = [
        [FAR, "192.0.2.10"],
        [FAR, "192.0.2.20"],
        [GATEWAY, "192.0.2.10"],
        [GATEWAY, "192.0.2.20"],
    ]
    assert answered(lab, wanted) == sorted(wanted)


def test_a_management_address_that_comes_late_does_not_stay_behind_a_dataplane_nic(lab):
    """Two prefixes that the kernel routed to a dataplane NIC turn out to be the management networks."""
    lab.veth("mgmt0", address=MANAGEMENT_MAC, up=True, foreign=True)
    lab.veth("dp1", 1)
    lab.configure(f"[network]\nmanagement-macs = {MANAGEMENT_MAC}")
    text = f"[interface {mac(1)}]\naddresses = 192.0.2.20/24, 2001:db8:ffff::20/64\n"
    lab.once(f"{text}gateway = {GATEWAY}, {GATEWAY6}\n")
    with lab.foreign.changing():
        lab.ip("address add 192.0.2.10/24 dev mgmt0 metric 100")
        lab.ip("address add 2001:db8:ffff::10/64 dev mgmt0 metric 1000 nodad")
    assert [one[1] for one in lab.routes("192.0.2.0/24")] == ["dp1", "mgmt0"]
    assert lab.once().code == 0
    for family, prefix in ((4, "192.0.2.0/24"), (6, "2001:db8:ffff::/64")):
        assert [one[1] for one in lab.routes(prefix, family)] == ["mgmt0"]
    assert lab.addresses("dp1") == {"192.0.2.20/24", "2001:db8:ffff::20/64"}
    assert lab.plan() == []


@pytest.mark.parametrize(
    "text",
    [
        f"[network]\nmanagement-macs = {MANAGEMENT_MAC}, {mac(1)}\n",
        f"[runtime]\ndataplane-macs-to-ignore = {mac(1)}\n",
    ],
    ids=["management", "ignored"],
)
def test_a_nic_that_becomes_protected_keeps_answering(cloud, text):
    cloud.once(BOTH)
    before = cloud.look("rule show"), cloud.look("-6 rule show")
    cloud.configure(text)
    cloud.once(BOTH)
    assert (cloud.look("rule show"), cloud.look("-6 rule show")) == before
    wanted = [
        [source, to]
        for source in (FAR, FAR6)
        for to in OWN["dp1"]
        if (":" in source) == (":" in to)
    ]
    assert answered(cloud, wanted) == sorted(wanted)


def test_the_rules_of_a_document_are_set_and_removed(cloud):
    text = f"""{section(1, "policy-routing = no")}
[routes]
0.0.0.0/0 = 10.1.0.1 table 100
[rule reply]
from = 10.1.0.5
table = 100
priority = 900
[rule marked]
mark = 0x1/0xff
table = 100
[rule management]
from = 192.0.2.10
table = 100
[rule everything]
to = 198.51.100.0/24
table = 100
"""
    cloud.once(text)
    shown = cloud.run("ip", "-4", "rule", "show").out.replace("\t", " ").splitlines()
    assert [line for line in shown if "110" in line] == [
        "900: from 10.1.0.5 lookup 100 proto 110",
        "30900: from all fwmark 0x1/0xff lookup 100 proto 110",
    ]
    assert [text for _, text in cloud.problems()] == [
        (
            "rule 30900: from 192.0.2.10/32 lookup 100: it selects 192.0.2.10, which is an address of the"
            " management NIC"
        ),
        (
            "rule 30900: from all to 198.51.100.0/24 lookup 100: it has neither from nor mark, so it could"
            " select traffic of the management NIC"
        ),
    ]
    assert answered(cloud, [[FAR, "10.1.0.5"]]) == [[FAR, "10.1.0.5"]]
    cloud.once(section(1, "policy-routing = no"))
    assert ours(cloud) == []


def test_a_released_nic_has_no_rules_and_no_table(cloud):
    cloud.once(BOTH)
    assert cloud.neuca("release", mac(1)).code == 0
    assert ours(cloud) == [31000, 31100, 31200]
    assert cloud.run("ip", "route", "show", "table", "31001", check=False).out == ""


def test_a_wider_rule_takes_the_place_of_a_narrower_one_and_the_other_way_round(cloud):
    """The kernel takes each for the other: adding the wider one fails, and its removal can hit the narrower one."""
    text = f"""{section(1, "policy-routing = no")}
[routes]
0.0.0.0/0 = 10.1.0.1 table 100
[rule x]
from = 10.1.0.5
table = 100
"""
    narrow = "30900: from 10.1.0.5 to 10.9.0.0/16 lookup 100 proto 110"
    wide = "30900: from 10.1.0.5 lookup 100 proto 110"
    for added, wanted in (("to = 10.9.0.0/16", narrow), ("", wide), ("to = 10.9.0.0/16", narrow)):
        assert cloud.once(f"{text}{added}\n").code == 0
        shown = cloud.run("ip", "-4", "rule", "show").out.replace("\t", " ").splitlines()
        assert [line for line in shown if "110" in line] == [wanted]
        assert cloud.plan() == []
