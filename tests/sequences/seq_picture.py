"""Pictures of a host: facts as lines of text, which can be compared with those of another host."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path

from seq_host import IGNORED, MANAGEMENT

OPTIONS = {
    "bridge": ("stp_state", "forward_delay", "hello_time", "max_age", "ageing_time", "priority"),
    "bond": (
        "mode", "miimon", "updelay", "downdelay", "ad_lacp_rate", "xmit_hash_policy", "ad_select", "fail_over_mac", "min_links",
        "arp_interval", "arp_ip_target", "arp_validate", "primary", "primary_reselect", "num_peer_notif", "resend_igmp",
        "all_slaves_active", "packets_per_slave", "lp_interval"),
    "vxlan": ("id", "local", "remote", "local6", "remote6", "group", "group6", "port", "link"),
    "macvlan": ("mode",), "vlan": ("protocol", "id"), "vrf": ("table",)}  # fmt: skip
SYSCTLS = (
    "ipv4/conf/{}/rp_filter",
    "ipv4/conf/{}/arp_announce",
    "ipv6/conf/{}/hop_limit",
    "ipv6/conf/{}/accept_ra",
    "ipv6/conf/{}/disable_ipv6",
)
QUESTIONS = ((4, "address\nroute show table all\nrule\n"), (6, "route show table all\nrule\n"))
# Rules of VRFs are the kernel's too: it makes one with the first VRF and keeps it.
BY_KERNEL = ("local", "broadcast", "multicast", "anycast")
BOND_COSTS = (1, 2, 100)  # of 20 Gbit/s, 10 Gbit/s and of an unknown speed
OWN_TABLES = range(31000, 32000)  # of policy routing: any of them is as good
PROTECTED = (MANAGEMENT, IGNORED)
BY_HAND = ("10.200.", "10.201.", "10.202.")  # networks that only changes by hand use
FACTS_OF_PROTECTED = "protected "


def look():
    """The links with their addresses, the routes of both families, and the rules of both."""
    answers = []
    for family, questions in QUESTIONS:
        done = subprocess.run(["ip", f"-{family}" if family == 6 else "-d", "-j", "-d", "-batch", "-"], input=questions,
                              capture_output=True, text=True, check=True)  # fmt: skip
        answers.append(_arrays(done.stdout.replace("fan-map ,", ","), questions.count("\n")))
    (links, *four), six = answers
    return [links, four[0], six[0], four[1], six[1]]


def _arrays(text, count):
    """Several JSON arrays one after another."""
    decoder, arrays = json.JSONDecoder(), []
    while text := text.lstrip():
        array, end = decoder.raw_decode(text)
        arrays.append(array)
        text = text[end:]
    return [*arrays, *[[]] * (count - len(arrays))]


def names_of(links, nics):
    """The name of each NIC now by its number."""
    return {nics[link["ifindex"]]: link["ifname"] for link in links if nics.get(link["ifindex"])}  # fmt: skip


def picture(nics):
    """Every fact of the host, with dp1, dp2, … for the NICs. Those of protected NICs begin with FACTS_OF_PROTECTED."""
    links, *families = look()
    placed = places(links, nics)
    names = [f"link dp{number} name {name}" for number, name in names_of(links, nics).items()]
    return sorted([*map(placed, _facts(links, families)), *names])


def places(links, nics):
    """A function that writes dp1, dp2, … for the names that NICs have now, in those of their VLANs too."""
    names = {name: f"dp{number}" for number, name in names_of(links, nics).items()}
    pattern = re.compile(r"(?<![\w.])(" + "|".join(map(re.escape, names or ["-"])) + r")(?!\w)")
    return lambda text: pattern.sub(lambda match: names[match[1]], text)


def _facts(links, families):
    routes, rules = families[:2], families[2:]
    names = [link["ifname"] for link in links if link["ifname"] != "lo"]
    facts = [fact for link in links if link["ifname"] != "lo" for fact in _link(link)]
    owners = {}
    for route in (each for family in routes for each in family):
        table = _number(route.get("table"))
        if table in OWN_TABLES and route.get("dev"):
            owners.setdefault(str(table), route["dev"])
    for family in routes:
        facts += [_route(route, owners) for route in family if _is_of_interest(route)]
    for family, number in zip(rules, (4, 6)):
        facts += [
            _rule(rule, owners, number)
            for rule in family
            if rule["priority"] not in (0, 32766, 32767) and "l3mdev" not in rule
        ]
    facts += [
        f"{_of(name)}sysctl {name} {path.format('X')} {_sysctl(path, name)}"
        for name in names
        for path in SYSCTLS
    ]
    return facts


def _of(name):
    return FACTS_OF_PROTECTED if name in PROTECTED else ""


def _link(link):
    name, kind = link["ifname"], link.get("linkinfo", {}).get("info_kind", "")
    data = link.get("linkinfo", {}).get("info_data", {})
    port = link.get("linkinfo", {}).get("info_slave_data", {})
    start = f"{_of(name)}link {name}"
    yield f"{start} kind {kind}"
    yield f"{start} state {'up' if 'UP' in link['flags'] else 'down'}"
    yield f"{start} mtu {link['mtu']}"
    yield f"{start} txqueuelen {link.get('txqlen')}"
    yield f"{start} master {link.get('master')}"
    address = link.get("address", "")
    in_bond = link.get("linkinfo", {}).get("info_slave_kind") == "bond"
    # A bond sets that of its members; another link keeps the one that it has (neuca-user-data(5)).
    if kind in ("", "veth") and not in_bond:
        yield f"{start} mac {address}"
    if kind in ("vlan", "macvlan"):
        yield f"{start} on {link.get('link')}"
    for option in OPTIONS.get(kind, ()):
        yield f"{start} {option} {data.get(option)}"
    if link.get("linkinfo", {}).get("info_slave_kind") == "bridge":
        # The default of a bond follows its speed, which Linux 7.2 does not know before the up delay of a member is over.
        is_default = kind in ("bond", "vlan") and port.get("cost") in BOND_COSTS
        yield f"{start} port {'default' if is_default else port.get('cost')} {port.get('priority')}"
    for each in link.get("addr_info", ()):
        if not each["local"].startswith(("fe80:", *BY_HAND)):
            bare = " noprefixroute" if each.get("noprefixroute") else ""
            yield f"{_of(name)}address {name} {each['local']}/{each['prefixlen']}{bare}"


def _is_of_interest(route):
    places = (str(route.get("dst", "")), str(route.get("gateway", "")))
    is_users = any(place.startswith(BY_HAND) for place in places)
    is_link_local = places[0].startswith(("fe80:", "ff00:"))
    return route.get("type", "unicast") not in BY_KERNEL and not is_users and not is_link_local


def _number(table):
    return int(table) if str(table).isdecimal() else 0


def _table(table, owners):
    owner = owners.get(str(table))
    return f"table of {owner}" if owner else f"table {table or 'main'}"


def _route(route, owners):
    hops = " ".join(
        f"nexthop {hop.get('gateway')} {hop.get('dev')} {hop.get('weight')}"
        for hop in route.get("nexthops", ())
    )
    metrics = " ".join(f"{key} {value}" for each in route.get("metrics", ()) for key, value in sorted(each.items()))  # fmt: skip
    keys = ("type", "gateway", "dev", "metric", "protocol", "scope", "prefsrc", "tos")
    words = " ".join(f"{key} {route[key]}" for key in keys if key in route)
    onlink = " onlink" if "onlink" in route.get("flags", ()) else ""
    start = f"{_of(route.get('dev'))}route {route.get('dst')}"
    return f"{start} {words} {_table(route.get('table'), owners)} {hops}{metrics}{onlink}".rstrip()


def _rule(rule, owners, family):
    words = " ".join(f"{key} {value}" for key, value in sorted(rule.items()) if key not in ("table", "priority"))  # fmt: skip
    return f"rule {family} {rule['priority']}: {words} {_table(rule.get('table'), owners)}"


def _sysctl(path, name):
    try:
        return Path("/proc/sys/net", path.format(name)).read_text().strip()
    except OSError:
        return "absent"


def files(folder):
    """What tells a write of the agent's files: inode and time. The report of the last pass is written by each."""
    passing = ("last-pass.json", "lock", "neucad.lock", "user-data", "config", "daemon.log")
    found = (path for path in folder.rglob("*") if path.is_file() and path.name not in passing)
    return {str(path.relative_to(folder)): (path.stat().st_ino, path.stat().st_mtime_ns) for path in found}  # fmt: skip


def protected(facts):
    """The facts of protected NICs, and of all that is the host's: its default routes are those of the management NIC."""
    return [
        fact
        for fact in facts
        if fact.startswith(FACTS_OF_PROTECTED)
        or (fact.startswith("route default") and "table main" in fact)
    ]


def difference(before, after):
    """What is missing and what is new, as lines."""
    gone, new = set(before) - set(after), set(after) - set(before)
    return [f"- {fact}" for fact in sorted(gone)] + [f"+ {fact}" for fact in sorted(new)]
