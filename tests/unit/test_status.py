"""How far the host is from what is asked: every state, every exit code, drift apart from what is not done yet."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import json
from dataclasses import replace
from ipaddress import ip_interface
from itertools import product

import pytest
from worlds import Agent, key, mac, machine, nic

from neuca_tools.agent.status import status_of
from neuca_tools.commands.links import find_link
from neuca_tools.config import Config
from neuca_tools.desired.names import own_names
from neuca_tools.desired.resolve import Resolution
from neuca_tools.desired.roles import Policy, Roles
from neuca_tools.model import Device, LinkKey, NetworkState, OwnedObjects, Problem
from neuca_tools.model.device_settings import Note
from neuca_tools.model.rows import StoredDocument
from neuca_tools.plan.operation import Target
from neuca_tools.plan.operations import ReloadManager, SetMtu, WriteFile, WriteSysctl
from neuca_tools.state.active_document import Intake
from neuca_tools.status.judge import DocumentStatus, Report, judge_host

EXAMPLE = """
{"version": 1, "neuca": "2.0.0", "state": "ok", "document": {"source": "ec2", "sha256": "…", "fetched": "2026-11-20T19:00:00Z",
 "stale": false},
 "interfaces": [{"mac": "…", "name": "eth1", "kind": "physical", "role": "dataplane", "ok": true,
   "managers": {"networkmanager": "unmanaged", "networkd": "absent"},
   "problems": []}],
 "problems": [], "last_pass": {"finished": "…", "seconds": 0.08, "changed": 7, "failed": 0}}
"""
GOOD = DocumentStatus("ec2", "00", "2026-11-20T19:00:00Z")
TWO = f"[interface {mac(2)}]\nmtu = 9000\naddresses = 10.0.0.1/24\n"
PASS = Report("2026-11-20T19:00:00Z", 0.08, ("x",) * 7)


def small(text, *devices, **more):
    devices = {one.index: one for one in (nic(1), nic(2, max_mtu=9000), *devices)}.values()
    return Agent(machine(*devices, mgmt=1), text, **more)


def status(agent, document=GOOD, report=PASS, managers=None, notes=()):
    survey = agent.survey()
    return judge_host(
        "2.0.0",
        document,
        survey.resolution,
        survey.observed,
        survey.plan(),
        unapplied=survey.changed(),
        world=replace(survey.world, managers=managers or {}),
        notes=notes,
        report=report,
        own_names=own_names(survey.resolution.roles, survey.resolution.requests, survey.record),
    )


def own(found, number=2):
    (one,) = [one for one in found.data["interfaces"] if one["mac"] == mac(number)]
    return [(problem["code"], problem["text"]) for problem in one["problems"]]


def contains(whole, part):
    """Whether every key of the example is there, at every level."""
    if isinstance(part, dict):
        return set(part) <= set(whole) and all(
            contains(whole[name], value) for name, value in part.items()
        )
    return all(contains(one, part[0]) for one in whole) if isinstance(part, list) and part else True


def test_a_host_that_is_as_asked_in_the_words_of_the_specification():
    agent = small(TWO)
    agent.run()
    found = status(agent)
    assert (found.data["state"], found.exit_code, found.data["problems"]) == ("ok", 0, [])
    assert contains(found.data, json.loads(EXAMPLE))
    assert all(one["ok"] for one in found.data["interfaces"])
    assert found.data["document"]["source"] == "ec2"
    assert found.data["last_pass"] == {
        "finished": "2026-11-20T19:00:00Z",
        "seconds": 0.08,
        "changed": 7,
        "failed": 0,
    }
    assert json.loads(json.dumps(found.data)) == found.data


def test_before_the_first_pass_all_is_pending():
    found = status(small(TWO), report=None)
    assert (found.data["state"], found.exit_code, found.data["last_pass"]) == ("pending", 3, None)
    assert own(found) == [
        ("pending", "not done yet: set the MTU of eth2 from 1500 to 9000"),
        ("pending", "not done yet: bring eth2 up"),
        ("pending", "not done yet: add the address 10.0.0.1/24 to eth2"),
    ]


def status_before_its_pass(agent, text, tmp_path, audited=False, **answers):
    """The status that the agent gives of a document that its sources have and no pass has applied."""
    agent.ask(text)
    stored = StoredDocument("ec2", "00", "2026-11-20T19:00:00Z", text)
    config = Config(state_directory=tmp_path / "state", run_directory=tmp_path / "run")
    intake = Intake(agent.document, stored, **answers)
    return status_of(config, intake, agent.survey(), PASS, audited=audited)


def test_a_document_that_was_read_but_not_applied_is_pending(tmp_path):
    agent = small(TWO)
    agent.run()
    found = status_before_its_pass(agent, TWO.replace("9000", "8000"), tmp_path)
    assert (found.data["state"], found.exit_code) == ("pending", 3)
    assert own(found) == [("pending", "not done yet: set the MTU of eth2 from 9000 to 8000")]
    assert found.data["last_pass"]["changed"] == 7


def test_a_document_that_was_read_again_leaves_drift_as_it_is(tmp_path):
    agent = small(TWO)
    agent.run()
    agent.kernel.set_mtu(2, 1500)
    found = status_before_its_pass(agent, TWO, tmp_path)
    assert (found.data["state"], found.exit_code) == ("degraded", 4)
    assert own(found) == [
        ("drift", "changed; neuca apply would set the MTU of eth2 from 1500 to 9000")
    ]


def test_the_status_of_the_agent_has_names_notes_tuning_and_unheard_managers(tmp_path):
    agent = small(TWO)
    agent.run()
    agent.kernel.set_up(1, False)
    agent.kernel.rename(1, "astray")
    found = status_before_its_pass(agent, TWO, tmp_path, reason="no answer from ec2")
    (management,) = [one for one in found.data["interfaces"] if one["mac"] == mac(1)]
    assert (management["name"], management["desired_name"]) == ("astray", "eth1")
    assert management["addresses"] == ["192.0.2.10/24"]
    assert found.data["notes"] == ["no answer from ec2"]
    assert ("tuning" in found.data, found.has_silent_manager) == (False, False)
    nics = {text: nic._replace(unheard=True) for text, nic in agent.record.nics.items()}
    agent.record = agent.record._replace(nics=nics)
    found = status_before_its_pass(agent, TWO, tmp_path, audited=True)
    assert ("tuning" in found.data, found.has_silent_manager) == (True, True)


def test_what_a_user_changed_by_hand_is_drift():
    agent = small(TWO)
    agent.run()
    agent.kernel.set_mtu(2, 1500)
    found = status(agent)
    assert (found.data["state"], found.exit_code) == ("degraded", 4)
    assert own(found) == [
        ("drift", "changed; neuca apply would set the MTU of eth2 from 1500 to 9000")
    ]


def test_a_manager_that_has_not_read_its_files_is_pending_and_no_drift():
    agent = small(TWO)
    agent.run()
    found = agent.survey()
    left = (ReloadManager("networkmanager"),)
    waits = judge_host(
        "", GOOD, found.resolution, found.observed, left, unapplied={mac(2)}, report=PASS
    )
    text = "not done yet: make networkmanager reload its configuration"
    assert waits.data["problems"] == [{"code": "pending", "text": text}]
    assert (waits.data["state"], waits.exit_code) == ("pending", 3)


def test_an_address_more_is_no_drift():
    agent = small(TWO)
    agent.run()
    agent.kernel.add_address(2, ip_interface("10.7.0.1/24"))
    assert status(agent).exit_code == 0


def test_a_file_that_somebody_changed_is_drift_of_the_host():
    agent = small(TWO)
    agent.run()
    path = next(path for path in agent.kernel.files if path.startswith("/udev/10"))
    agent.kernel.files[path] = b"other"
    found = status(agent)
    assert (found.exit_code, found.data["problems"]) == (
        4,
        [{"code": "drift", "text": f'"{path}" is not as requested'}],
    )
    agent.kernel.files = dict.fromkeys(agent.kernel.files, b"other")
    text = status(agent).data["problems"][0]["text"]
    assert text.endswith(
        ' files are not as requested, "/networkd/05-neuca-nics.network" among them'
    )


def names(agent, number):
    """(the name it has, the name it should have, its problems)"""
    found = status(agent)
    (one,) = [one for one in found.data["interfaces"] if one["mac"] == mac(number)]
    return one["name"], one["desired_name"], own(found, number)


def test_a_nic_shows_the_name_it_has_and_the_one_it_should_have():
    agent = small(
        f"[interface {mac(2)}]\nname = eth3\n[interface {mac(9)}]\nname = later\n", nic(3)
    )
    agent.run()
    taken = '"eth2" should be "eth3", but another interface has that name'
    assert names(agent, 2) == ("eth2", "eth3", [("name", taken)])
    assert names(agent, 3) == ("eth3", "eth3", [])
    assert names(agent, 9) == ("later", "later", [("absent", f'no NIC has the MAC "{mac(9)}"')])
    agent = small(f"[interface {mac(2)}]\nname = data\n")
    agent.run()
    assert names(agent, 2) == ("data", "data", [])
    assert names(agent, 1) == ("eth1", "eth1", [])
    agent.kernel.set_up(1, False)
    agent.kernel.rename(1, "astray")
    assert names(agent, 1) == (
        "astray",
        "eth1",
        [("name", '"astray" should be "eth1": it will get that name at the next boot')],
    )


def test_no_document_has_a_say_in_the_name_of_the_management_nic():
    agent = small(f"[interface {mac(1)}]\nname = data\n")
    agent.run()
    assert names(agent, 1)[:2] == ("eth1", "eth1")


def test_a_contested_nic_shows_a_name():
    """The first one's of twins; a bond's member its own, and whatever it was called before."""
    bond = Device(9, "bond0", "bond", mac(3))
    agent = small(
        f"[interface {mac(2)}]\n[interface {mac(3)}]\n",
        nic(7, permanent_mac=mac(2), mac=mac(2)),
        nic(3),
    )
    agent.run()
    assert names(agent, 2) == (
        "eth2",
        "eth2",
        [("contested", f'2 devices have the MAC "{mac(2)}" (eth2, eth7): they are left alone')],
    )
    agent.kernel.devices.update({9: bond, 3: nic(3, "other", master=9, mac=mac(2))})
    assert names(agent, 3) == (
        "other",
        "eth3",
        [
            ("contested", '"other" belongs to "bond0": it is left alone'),
            ("name", '"other" should be "eth3": it will get that name at the next boot'),
        ],
    )
    assert names(small(TWO, policy=Policy(ignored=frozenset({mac(2)}))), 2)[:2] == ("eth2", None)


def test_a_changed_request_for_one_nic_makes_only_that_nic_pending():
    agent = small(TWO + f"[interface {mac(3)}]\nmtu = 1400\n", nic(3))
    agent.run()
    agent.kernel.set_mtu(2, 1500)
    agent.ask(TWO + f"[interface {mac(3)}]\nmtu = 1300\n")
    found = status(agent)
    assert own(found) == [
        ("drift", "changed; neuca apply would set the MTU of eth2 from 1500 to 9000")
    ]
    assert own(found, 3) == [("pending", "not done yet: set the MTU of eth3 from 1400 to 1300")]
    assert found.exit_code == 3


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (
            TWO.replace("9000", "9001"),
            ("mtu", 'MTU 9001 requested, but "eth2" supports at most 9000'),
        ),
        (
            TWO.replace("10.0.0.1", "192.0.2.5"),
            ("refused", "address 192.0.2.5/24: it is inside the management network 192.0.2.0/24"),
        ),
        (
            TWO + "name = eth1\n",
            ("name", '"eth2" should be "eth1", but another interface has that name'),
        ),
    ],
)
def test_a_refused_request_is_degraded(text, problem):
    agent = small(text)
    agent.run()
    found = status(agent)
    assert (found.data["state"], found.exit_code, own(found)) == ("degraded", 4, [problem])


def test_an_absent_nic_is_degraded():
    agent = small(f"[interface {mac(9)}]\n")
    agent.run()
    found = status(agent)
    assert (found.exit_code, own(found, 9)) == (
        4,
        [("absent", 'no NIC has the MAC "02:00:00:00:00:09"')],
    )


def test_an_ignored_nic_is_what_the_administrator_wanted():
    agent = small(TWO, policy=Policy(frozenset({mac(2)})))
    agent.run()
    found = status(agent)
    assert (found.data["state"], found.exit_code) == ("ok", 0)
    assert own(found) == [("ignored", "it is on the list of NICs to ignore")]
    assert [one["ok"] for one in found.data["interfaces"] if one["mac"] == mac(2)] == [True]


@pytest.mark.parametrize(
    ("manager", "title"), [("networkmanager", "NetworkManager"), ("networkd", "systemd-networkd")]
)
def test_a_nic_that_another_manager_holds_is_degraded(manager, title):
    agent = small(TWO)
    agent.run()
    survey = agent.survey()
    words = {manager: {"eth2": "managed", "eth1": "managed"}}
    observed = survey.observed._replace(
        links={
            one: link._replace(managers={manager: "managed"})
            for one, link in survey.observed.links.items()
        },
    )
    found = judge_host(
        "2.0.0",
        GOOD,
        survey.resolution,
        observed,
        (),
        world=replace(survey.world, managers=words),
        report=PASS,
    )
    assert (found.data["state"], found.exit_code) == ("degraded", 4)
    assert own(found) == [("contested", f"{title} manages it")]
    assert own(found, 1) == []
    assert found.data["interfaces"][0]["managers"] == {
        "networkmanager": "absent",
        "networkd": "absent",
        manager: "managed",
    }


def test_a_failure_counts_as_long_as_something_is_left_to_do_there():
    agent = small(TWO)
    failure = Report(
        "2026-11-20T19:00:00Z",
        0.1,
        (),
        (Problem("failed", "set the MTU of eth2 from 1500 to 9000: Invalid argument", key(2)),),
    )
    found = status(agent, report=failure)
    assert (found.data["state"], found.exit_code) == ("failed", 1)
    assert own(found) == [("failed", "set the MTU of eth2 from 1500 to 9000: Invalid argument")]
    agent.run()
    assert status(agent, report=failure).exit_code == 0


def test_a_failure_of_a_vlan_counts_for_its_nic():
    failure = Report("x", 0.1, (), (Problem("failed", "boom", key(2, 7)),))
    found = status(small(TWO + f"[vlan {mac(2)}.7]\n"), report=failure)
    assert [one["problems"] for one in found.data["interfaces"] if one["vlan_id"] == 7] == [
        [{"code": "failed", "text": "boom"}]
    ]
    assert own(found) == [("failed", "rolled back, because this failed: boom")]
    assert found.exit_code == 1


def test_a_failure_that_rolls_nothing_back_stands_for_its_own_operation_only():
    refused = WriteSysctl("net/ipv4/conf/eth2/rp_filter", "0", "on", Target(key(2), "eth2", 2))
    of_host = WriteSysctl("net/core/rmem_max", "1", "2")
    lower = SetMtu(Target(key(2, 7), "eth2.7", 3), 1400, 1500)
    failed = (
        Problem("failed", f"{refused.text}: Invalid argument", key(2)),
        Problem("failed", f"{of_host.text}: Permission denied"),
    )
    found = judge_host(
        "2.0.0",
        GOOD,
        LINKLESS,
        NetworkState(),
        (refused, of_host, WRITE, lower),
        report=Report("x", 0, (), failed),
    )
    drift = [
        Problem("drift", f"changed; neuca apply would {step.text}", step.link.key)
        for step in (WRITE, lower)
    ]
    assert found.problems == (*failed, *drift)


def test_a_failure_of_the_host_counts_while_something_of_the_host_is_left():
    failure = Report("x", 0.1, (), (Problem("failed", 'write "/x": No space left on device'),))
    found = status(small(TWO), report=failure)
    assert {"code": "failed", "text": 'write "/x": No space left on device'} in found.data[
        "problems"
    ]


# --- exit codes: the first that applies of 78, 1, 3, 4, 0 -----------------------------------------------------------

WRITE = SetMtu(Target(key(2), "eth2", 2), 1500, 9000)
LINKLESS = Resolution(NetworkState(), OwnedObjects(), Roles(), {}, {})


def verdict(invalid, failed, pending, degraded, stale):
    resolution = LINKLESS._replace(
        problems=(Problem("absent", "gone", key(3)),) if degraded else ()
    )
    document = GOOD._replace(
        invalid=("line 1",) if invalid else (), stale=stale, warnings=("line 2",)
    )
    report = Report("x", 0, (), (Problem("failed", "boom"),)) if failed else PASS
    left = [WriteSysctl("net/core/rmem_max", "1", "2")] if failed else []
    left += [WRITE] if pending else []
    found = judge_host(
        "2.0.0",
        document,
        resolution,
        NetworkState(),
        left,
        unapplied={mac(2)} if pending else (),
        report=report,
    )
    return found.data["state"], found.exit_code


@pytest.mark.parametrize(
    ("invalid", "failed", "pending", "degraded", "stale"), list(product((True, False), repeat=5))
)
def test_state_and_exit_code_in_every_combination(invalid, failed, pending, degraded, stale):
    code = 78 if invalid else 1 if failed else 3 if pending else 4 if degraded or stale else 0
    state = (
        "failed"
        if failed
        else "pending"
        if pending
        else "degraded"
        if degraded or stale or invalid
        else "ok"
    )
    assert verdict(invalid, failed, pending, degraded, stale) == (state, code)


@pytest.mark.parametrize(
    ("document", "state", "code"),
    [
        (DocumentStatus(), "pending", 3),
        (DocumentStatus(reason="no response"), "pending", 3),
        (DocumentStatus(none_for_us=True), "ok", 0),
        (GOOD._replace(none_for_us=True, stale=True), "degraded", 4),
        (GOOD._replace(stale=True), "degraded", 4),
        (DocumentStatus(invalid=("line 1",)), "pending", 78),
        (GOOD._replace(warnings=("line 1",)), "ok", 0),
    ],
)
def test_the_document_alone(document, state, code):
    found = judge_host("2.0.0", document, LINKLESS, NetworkState(), (), notes=("note",))
    assert (found.data["state"], found.exit_code) == (state, code)
    assert found.data["notes"] == [*document.warnings, "note"]


def test_a_note_about_no_link_is_one_about_the_host():
    notes = (Note("routes", "overridden", "why", None), Note("mtu", "overridden", "own", key(2)))
    found = judge_host("", GOOD, LINKLESS._replace(notes=notes), NetworkState(), ())
    assert found.data["notes"] == ["routes: overridden: why"]


def test_a_problem_is_told_once():
    report = Report("x", 0, (), (Problem("failed", "boom"), Problem("failed", "boom")))
    left = [WriteFile("/x", b"")]
    found = judge_host("2.0.0", GOOD, LINKLESS, NetworkState(), left, report=report)
    assert [problem["text"] for problem in found.data["problems"]] == [
        "boom",
        '"/x" is not as requested',
    ]


def test_a_vlan_of_an_absent_nic_is_not_as_requested():
    found = status(small(f"{TWO}[vlan {mac(7)}.8]\nname = v8\n"))
    assert {one["name"]: one["ok"] for one in found.data["interfaces"] if one["role"] == "dataplane"} == {
        "eth2": False, None: False, "v8": False
    }  # fmt: skip


# --- which link is meant --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("text", "meant"), [
    ("eth2", key(2)),
    ("eth2.7", key(2, 7)),
    (mac(2), key(2)),
    ("020000000002", key(2)),
    ("02-00-00-00-00-02", key(2)),
    ("0200.0000.0002", key(2)),
    ("02:00:00:00:00:02".upper(), key(2)),
    (f"{mac(2)}.7", key(2, 7)),
    ("020000000002.7", key(2, 7)),
    ("0200.0000.0002.7", key(2, 7)),
    (mac(1), key(1)),
    (mac(9), None),
    ("eth9", None),
    ("", None),
    (f"{mac(2)}.8", None),
    ("020000000001.7", None),
    ("02:00:00:00:00", None),
    (f"{mac(2)}.x", None),
    pytest.param(f"{mac(2)}.{'9' * 5000}", None, id="more digits than int() takes"),
    ("xx02:00:00:00:00:02", None),
])  # fmt: skip
def test_find_link(text, meant):
    survey = small(TWO + f"[vlan {mac(2)}.7]\n").survey()
    assert find_link(text, survey) == meant


@pytest.mark.parametrize(("text", "meant"), [
    ("data7", key(7)),
    ("data7-vlan", key(7, 8)),
    ("bond7", LinkKey("bond bond7")),
])  # fmt: skip
def test_find_what_is_absent_by_the_name_that_status_shows(text, meant):
    absent = f"[interface {mac(7)}]\nname = data7\n[vlan {mac(7)}.8]\nname = data7-vlan\n"
    survey = small(f"{TWO}{absent}[bond bond7]\nmembers = {mac(7)}\n").survey()
    assert find_link(text, survey) == meant


def test_what_became_of_a_setting_is_told_with_its_link_and_is_no_shortfall():
    agent = small(TWO)
    agent.run()
    survey = agent.survey()
    note = Note("txqueuelen", "not applicable", "the qdisc noqueue has no queue", key(2))
    resolution = survey.resolution._replace(
        notes=(note, Note("rings.rx", "unsupported", "x", key(3)))
    )
    found = judge_host(
        "2.0.0",
        GOOD,
        resolution,
        survey.observed,
        survey.plan(),
        unapplied=survey.changed(),
        report=PASS,
    )
    told = {one["mac"]: one["notes"] for one in found.data["interfaces"]}
    assert told[mac(2)] == [
        {
            "setting": "txqueuelen",
            "effect": "not applicable",
            "reason": "the qdisc noqueue has no queue",
        }
    ]
    assert (told[mac(1)], found.data["state"], note.text) == (
        [], "ok", "txqueuelen: not applicable: the qdisc noqueue has no queue"
    )  # fmt: skip


def test_what_the_network_of_a_link_is_and_what_is_desired():
    """A link state with carrier, MTU, addresses and mode for each NIC, the management NIC as well."""
    text = f"{TWO}[interfaces]\n{mac(3)} = user\n{mac(4)} = down\n[interface {mac(9)}]\n"
    agent = small(text, nic(3), nic(4), nic(5))
    agent.run()
    agent.kernel.devices[2] = agent.kernel.devices[2]._replace(carrier=False)
    network = ("desired_state", "state", "carrier", "mtu", "addresses")
    shown = {
        one["mac"]: tuple(one[name] for name in network) for one in status(agent).data["interfaces"]
    }
    assert shown[mac(1)][:4] == (None, "up", True, 1500)
    assert shown[mac(2)] == ("up", "up", False, 9000, ["fe80::2/64", "10.0.0.1/24"])
    assert shown[mac(3)][:2] == ("user", "down")
    assert shown[mac(4)][:2] == ("down", "down")
    assert shown[mac(5)][0] is None
    assert shown[mac(9)] == ("up", None, None, None, [])
