"""An earlier version is replaced while its links are in use: they stay, and are the agent's, also for a roll-back.

The earlier version is taken from the history of this checkout, and really runs: its state files are what it writes.
"""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import io
import json
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest
from lab import ROOT, mac

EARLIER = "aa08c39f"
FAILING = Path(__file__).with_name("failing.py")
MAIN = "import sys; from neuca_tools.commands.neucad import main; sys.exit(main())"
COMMON = """txqueuelen = 77
sysctl.net.ipv4.conf.{interface}.rp_filter = 2
addresses = 172.17.1.1/24, fd05::1/64
[routes]
10.77.0.0/16 = 172.17.1.9
"""
NIC = f"[interface {mac(1)}]\naddresses = 172.16.1.1/24\n"
MADE = {
    "bond": f"[bond it]\nmembers = {mac(1)}, {mac(2)}\nmode = 802.3ad\nlacp-rate = fast\n",
    "bridge": f"[bridge it]\nmembers = {mac(1)}, {mac(2)}\nageing-time = 77\n",
    "vlan": f"{NIC}[vlan {mac(1)}.5]\nname = it\n",
    "vxlan": f"{NIC}[vxlan it]\nid = 5\nlocal = 172.16.1.1\nremote = 172.16.1.2\n",
    "macvlan": f"{NIC}[macvlan it]\nparent = {mac(1)}\n",
    "vrf": f"{NIC}[vrf it]\nmembers = {mac(2)}\ntable = 700\n",
}
MISSING = {"vlan": "8021q"}


@pytest.fixture(scope="session")
def earlier_code(tmp_path_factory):
    words = ["git", "-C", str(ROOT), "archive", EARLIER, "neuca_tools"]
    done = subprocess.run(words, capture_output=True, check=False)
    if done.returncode:
        pytest.skip(f"no history in this checkout: {done.stderr.decode().strip()}")
    folder = tmp_path_factory.mktemp("earlier")
    with tarfile.open(fileobj=io.BytesIO(done.stdout)) as archive:
        # Python 3.12 and later ask for a filter, which earlier ones do not know.
        archive.extraction_filter = getattr(tarfile, "data_filter", None)
        archive.extractall(folder)
    return folder


def made(host):
    """The links that the record has the requests of."""
    return json.loads((host.folder / "state/record.json").read_text()).get("made", {})


@pytest.fixture(params=MADE)
def host(lab, request, earlier_code):
    """A guest that the earlier version has configured."""
    kind = request.param
    lab.management()
    for number in (1, 2):
        lab.veth(f"dp{number}", number, up=True)
    own = {"vlan": "link dp1 type vlan id 9", "vxlan": "type vxlan id 9 dstport 4789"}
    own.update(macvlan="link dp1 type macvlan", vrf="type vrf table 9")
    if lab.ip(f"link add it {own.get(kind, f'type {kind}')}", check=False).code != 0:
        pytest.skip(f"this kernel has no {MISSING.get(kind, kind)}")
    lab.ip("link del it")
    lab.foreign.may_make("it")
    lab.first = MADE[kind] + (COMMON if kind != "vrf" else "")
    lab.document(lab.first)
    lab.foreign.remember()
    words = (f"PYTHONPATH={earlier_code}", sys.executable, "-c", MAIN, "--once", "--config", lab.config_file)  # fmt: skip
    done = lab.run("env", *words, check=False)
    assert done.code == 0, done.out + done.err
    assert not made(lab)
    lab.settle()
    return lab


def kept(fact, left_out):
    """What `ip` says without what differs in each moment, and these keys."""
    if isinstance(fact, list):
        return sorted((kept(one, left_out) for one in fact), key=str)
    if not isinstance(fact, dict):
        return fact
    names = {*fact} - {*left_out, "ifalias", "protocol", "nodad"}
    # Timers, and what LACP has found out.
    names = [name for name in names if not name.startswith("ad_") and not name.endswith("_timer")]
    return {name: kept(fact[name], left_out) for name in sorted(names)}


def seen(host, *left_out):
    """All that `ip` says of the links, but their aliases, and of their addresses and routes."""
    host.settle()
    facts = [host.look(f"-d address show dev {name}")[0] for name in ("it", "dp1", "dp2")]
    facts += host.look("route show table all") + host.look("-6 route show table all")
    return kept(facts, left_out)


def test_the_links_of_an_earlier_version_stay_as_they_are(host):
    before = seen(host)
    with host.monitored() as monitor:
        assert host.once(host.first).code == 0
        lines = monitor.lines()
    assert seen(host) == before
    # An alias is new. No link goes down, no address or route is touched.
    assert [line for line in lines if "[LINK]" not in line or "Deleted" in line] == []
    assert [line for line in lines if "state DOWN" in line or "LOWER_UP" not in line] == []
    assert (host.plan(), host.problems()) == ([], [])
    assert [link for link in made(host).values() if link["virtual"] or ".5" in link["key"]]
    assert host.once(NIC).code == 0
    assert host.link("it") is None


def test_the_first_pass_of_the_new_version_can_fail(host):
    """It has no request on record for the link, and creates it from what the kernel had listed."""
    before = seen(host, "ifindex", "index", "link_index")
    both = (f"[interface {mac(number)}]\naddresses = 10.{number}.0.1/24\n" for number in (1, 2))
    host.document("".join(both))
    host.applied = True
    host.foreign.remember()
    words = (FAILING, "add the address 10.", "neucad", "--once", "--config", host.config_file)
    done = host.run(sys.executable, *words, check=False)
    assert (done.code, "injected: " in done.err) == (1, True)
    assert seen(host, "ifindex", "index", "link_index") == before, done.err
    assert host.once(host.first).code == 0
    assert (host.plan(), host.problems()) == ([], [])
