"""Documents that are bad, foreign, absent or stale: good lines are applied, nothing is taken away on a doubt."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import os
import sys

import pytest
from lab import mac

GOOD = f"[interfaces]\n{mac(1)} = up:ipv4:172.16.1.1/24\n{mac(2)} = up:ipv4:172.16.2.1/24\n"
FOREIGN = {"cloud-config": "#cloud-config\npackages: [x]\n", "shell script": "#!/bin/sh\ntrue\n"}


@pytest.fixture
def pair(lab):
    lab.veth("dp1", 1)
    lab.veth("dp2", 2)
    return lab


def state(lab):
    """Everything of the dataplane NICs that a document can change."""
    return [
        (name, lab.addresses(name), lab.link(name)["mtu"], "UP" in lab.link(name)["flags"])
        for name in ("dp1", "dp2")
    ]


def test_bad_lines_cost_only_themselves(pair):
    done = pair.once(
        f"[interfaces]\n{mac(1)} = up:ipv4:172.16.1.1/24\n{mac(2)} = up:ipv4:nonsense\nzz = up\n"
        f"[interface {mac(1)}]\nmtu = many\ntxqueuelen = 500\n[routes]\n10.20.0.0/16 = 172.16.1.254\nx = y\n"
    )
    assert done.code == 78
    assert [line for line in done.err.splitlines() if "error" in line] == [
        line for line in done.err.splitlines() if line.startswith("neuca: error: line ")
    ]
    assert done.err.count("neuca: error: line ") == 4
    assert (pair.addresses("dp1"), pair.link("dp1")["txqlen"]) == ({"172.16.1.1/24"}, 500)
    assert len(pair.routes("10.20.0.0/16")) == 1
    assert pair.status()[0] == 78


def test_with_bad_lines_things_go_only_where_it_is_sure(pair):
    both = "".join(f"[interface {mac(number)}]\naddresses = 172.16.{number}.1/24, 172.16.{number}.2/24\nmtu = 9000\n"
                   for number in (1, 2)) + "[routes]\n10.20.0.0/16 = 172.16.1.254\n"  # fmt: skip
    pair.once(both)
    done = pair.once(
        f"[interface {mac(1)}]\naddresses = 172.16.1.1/24\n[interface {mac(2)}]\naddresses = nonsense\n"
    )
    assert done.code == 78
    assert (pair.addresses("dp1"), pair.link("dp1")["mtu"]) == ({"172.16.1.1/24"}, 1500)
    assert (pair.addresses("dp2"), pair.link("dp2")["mtu"]) == (
        {"172.16.2.1/24", "172.16.2.2/24"},
        9000,
    )
    assert len(pair.routes("10.20.0.0/16")) == 1


def test_a_nic_that_an_incomplete_document_does_not_have_keeps_all(pair):
    pair.once(GOOD)
    assert pair.once(f"[interfaces]\n{mac(1)} = up:ipv4:172.16.1.1/24\nzz = up\n").code == 78
    assert pair.addresses("dp2") == {"172.16.2.1/24"}
    assert (pair.folder / "udev" / "10-neuca-persistent-020000000102.rules").exists()


def test_a_nic_missing_from_a_complete_document_loses_our_addresses_and_stays_up(pair):
    pair.once(GOOD)
    pair.ip("address add 172.16.9.1/24 dev dp2")
    assert pair.once(f"[interfaces]\n{mac(1)} = up:ipv4:172.16.1.1/24\n").code == 0
    assert state(pair) == [
        ("dp1", {"172.16.1.1/24"}, 1500, True),
        ("dp2", {"172.16.9.1/24"}, 1500, True),
    ]


def test_local_sections_win_setting_by_setting(pair):
    pair.configure(f"[interface {mac(1)}]\nmtu = 4000")
    assert pair.once(GOOD + f"[interface {mac(1)}]\nmtu = 9000\ntxqueuelen = 77\n").code == 0
    assert (pair.link("dp1")["mtu"], pair.link("dp1")["txqlen"], pair.addresses("dp1")) == (
        4000,
        77,
        {"172.16.1.1/24"},
    )


def test_a_bad_value_of_the_configuration_is_named_and_the_default_is_used(pair):
    pair.configure("[linux]\nmgmt-udev-priority = many")
    done = pair.once(GOOD)
    assert done.code == 78
    assert (f'{pair.config_file}: [linux] "mgmt-udev-priority" = "many": ') in done.err
    assert pair.addresses("dp1") == {"172.16.1.1/24"}


# --- sources that fail ---


@pytest.fixture
def served(pair):
    pair.management()
    pair.service(GOOD)
    pair.configure(sources="ec2", timeout=1)
    assert pair.once().code == 0
    return pair


@pytest.mark.parametrize("mode", ["404", "500", "cut", "garbage", "hang", *FOREIGN])
def test_without_a_usable_answer_the_last_good_document_stays_in_force(served, mode):
    before = state(served)
    if mode in FOREIGN:
        served.document(FOREIGN[mode])
    else:
        served.metadata.mode = mode
    with served.monitored() as monitor:
        done = served.once()
        assert monitor.lines() == []
    code, data = served.status()
    assert (done.code, code) == ((78, 78) if mode == "garbage" else (4, 4))
    assert (data["document"]["source"], data["document"]["stale"]) == ("ec2", True)
    assert state(served) == before
    served.metadata.mode = "ok"
    served.document(GOOD)
    assert served.once().code == 0


def test_a_dead_service_at_boot_leaves_the_last_good_document(served):
    served.configure(sources="ec2=http://192.0.2.1:81", timeout=1)
    served.ip("link set dp1 down")
    served.ip("address flush dev dp1")
    done = served.once()
    assert done.code == 4
    assert state(served)[0] == ("dp1", {"172.16.1.1/24"}, 1500, True)


@pytest.mark.parametrize("mode", ["500", "cut", "hang"])
def test_no_document_and_no_answer_is_not_done_yet(pair, mode):
    pair.management()
    pair.service(GOOD).mode = mode
    pair.configure(
        sources="ec2", timeout=0.5 if mode == "hang" else 10
    )  # one that answers may be slow on a busy machine
    before = state(pair)
    done = pair.once()
    assert done.code == 3
    assert (state(pair), pair.status()[1]["state"]) == (before, "pending")


@pytest.mark.parametrize("mode", ["404", *FOREIGN])
def test_no_document_for_us_is_in_order(pair, mode):
    pair.management()
    pair.service(FOREIGN.get(mode, "")).mode = "404" if mode == "404" else "ok"
    pair.configure(sources="ec2")
    before = state(pair)
    done = pair.once()
    assert done.code == 0
    assert (state(pair), pair.status()[1]["document"]["none_for_us"]) == (before, True)


def test_a_file_that_is_not_there_yet_is_not_done_yet(pair):
    done = pair.once()
    assert (done.code, pair.status()[0]) == (3, 3)


def test_a_guest_without_a_public_address_has_none(lab):
    """Nova answers with an empty text, and EC2 has no such item."""
    lab.management()
    service = lab.service("[interfaces]\n")
    service.tokens = False
    lab.configure(sources="ec2")
    for tree in ({"/latest/meta-data/public-ipv4": ""}, {}):
        service.tree = tree
        assert lab.neuca("get-public-ip")[:2] == (1, "Not found\n")
    service.tree = {"/latest/meta-data/public-ipv4": "203.0.113.7"}
    assert lab.neuca("get-public-ip")[:2] == (0, "203.0.113.7\n")


# --- without root ---


def _nobody(lab):
    """The words before a command of a user who can reach the files of the agent."""
    if os.geteuid():
        pytest.skip("these tests do not run as root, and have no other user to become")
    nobody = ("setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups")
    if lab.run(*nobody, sys.executable, "-c", "", check=False).code:
        pytest.skip("only root can reach this interpreter")
    for path in (lab.folder, *lab.folder.parents):
        if path.stat().st_uid == 0 and path.name and not path.stat().st_mode & 0o001:
            path.chmod(path.stat().st_mode | 0o011)
    lab.let_others_read_the_code()
    return nobody


def test_without_root_a_document_that_only_root_can_read_is_not_taken_for_none(lab):
    lab.veth("dp1", 1)
    assert lab.once(f"[interfaces]\n{mac(1)} = up:ipv4:172.16.0.1/24\n").code == 0
    lab.document_file.chmod(0o600)
    lab.ip("address del 172.16.0.1/24 dev dp1")
    nobody = _nobody(lab)
    plan = lab.neuca("plan", prefix=nobody)
    assert (plan.out, plan.err) == ("add the address 172.16.0.1/24 to dp1\n", "")
    (lab.folder / "run/document.json").unlink()
    shown = lab.neuca("interfaces", "--json", prefix=nobody)
    assert (shown.code, shown.out) == (1, "")
    assert shown.err.startswith("neuca: read the document: read ")
    assert lab.once().code == 0


def test_without_root_one_can_look_and_the_network_is_not_asked(served):
    nobody = _nobody(served)
    asked = served.metadata.seen()
    status = served.neuca("status", "--json", prefix=nobody)
    assert (status.code, status.err) == (0, "")
    assert status.json["state"] == "ok"
    for command in ("plan",), ("apply", "--dry-run"):
        assert served.neuca(*command, prefix=nobody).out == "nothing to do\n"
    assert served.neuca("show", "desired", "--json", prefix=nobody).json["links"][1][
        "addresses"
    ] == ["172.16.1.1/24"]
    assert served.neuca("show", "observed", prefix=nobody).code == 0
    assert served.neuca("plan", "--source", "ec2", prefix=nobody).err == (
        'neuca: read the document from "ec2": only root may query the network\n'
    )
    assert served.neuca("apply", prefix=nobody).err == (
        "neuca: apply: only root may do this\n       run it as root, or with sudo\n"
    )
    assert served.metadata.seen() == asked


@pytest.mark.parametrize("header", ["interfacs", "Interfaces", "interfcae 02:00:00:00:01:01"])
def test_a_misspelled_section_removes_nothing(lab, header):
    """What it requests must not be taken for what is no longer requested."""
    lab.veth("dp1", 1)
    text = f"[interface {mac(1)}]\naddresses = 172.16.0.1/24\n"
    assert lab.once(text).code == 0
    lab.once(text.replace(f"interface {mac(1)}", header))
    assert lab.addresses("dp1") == {"172.16.0.1/24"}
    assert lab.status()[1]["state"] != "ok"


WRITER = """import sys, time
first, rest = sys.argv[2:]
for _ in range(50):
    with open(sys.argv[1], "w") as file:
        file.write(first); file.flush(); time.sleep(0.03); file.write(rest)
    time.sleep(0.1)
"""


def test_a_file_that_is_being_rewritten_takes_nothing_away(lab):
    for number in (1, 2):
        lab.veth(f"dp{number}", number)
    first, rest = (f"[interface {mac(n)}]\naddresses = 172.16.{n}.1/24\n" for n in (1, 2))
    lab.document(first + rest)
    lab.start()
    lab.wait("both are configured", lambda: lab.addresses("dp2") == {"172.16.2.1/24"})
    new = rest + "mtu = 1400\n"
    with lab.monitored() as monitor:
        lab.run(sys.executable, "-c", WRITER, lab.document_file, first, new)
        lab.wait("it is applied", lambda: lab.link("dp2")["mtu"] == 1400)
        # The last look may still be one at a half-written file, which the next corrects.
        lab.wait("it is confirmed", lambda: not lab.status()[1]["document"]["stale"])
        assert [line for line in monitor.lines("ADDR") if "Deleted" in line] == []
    assert lab.addresses("dp2") == {"172.16.2.1/24"}
    assert lab.daemon.stop() == 0  # its polls would write while the second pass is watched
