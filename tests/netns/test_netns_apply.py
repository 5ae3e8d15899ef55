"""`neuca apply` says what it did not do, in the words and with the exit code of `neuca plan`."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import pytest
from command_schemas import validated
from lab import mac

GOOD = f"[interfaces]\n{mac(1)} = up:ipv4:10.1.0.1/24\n"
ABSENT = f"{GOOD}{mac(9)} = up:ipv4:10.9.0.1/24\n"
REFUSED = f"{GOOD}[interface {mac(2)}]\naddresses = 192.0.2.77/24\n"
INVALID = f"{GOOD}[interface {mac(1)}]\nmtu = nonsense\n"


@pytest.fixture
def host(lab):
    """A guest with two dataplane NICs."""
    lab.management()
    lab.veth("eth1", 1)
    lab.veth("eth2", 2)
    return lab


INSIDE = "it is inside the management network 192.0.2.0/24"
CASES = [
    (GOOD, 0, []),
    (ABSENT, 4, [f'not done: {mac(9)}: no NIC has the MAC "{mac(9)}"']),
    (
        REFUSED,
        4,
        [f"not done: eth2: address 192.0.2.77/24: {INSIDE}"],
    ),
    (INVALID, 78, []),
]


@pytest.mark.parametrize(("text", "code", "left"), CASES)
def test_apply_names_each_request_that_it_left_as_plan_did(host, text, code, left):
    host.document(text)
    planned = host.neuca("plan")
    applied = host.neuca("apply")
    assert (planned.code, applied.code) == (code, code)
    lines = planned.out.splitlines()
    operations = lines[: len(lines) - len(left)]
    assert lines[len(operations) :] == left
    *told, last = applied.out.splitlines()
    assert told == left
    state = {0: "ok", 4: "degraded", 78: "degraded"}[code]
    assert last.startswith(f"{state}: {len(operations)} changed")
    assert host.status()[0] == code


def test_a_second_apply_says_that_nothing_is_to_do(host):
    host.document(ABSENT)
    host.neuca("apply")
    again = host.neuca("apply")
    assert (again.code, again.err, again.out.splitlines()) == (
        4,
        "",
        [
            f'not done: {mac(9)}: no NIC has the MAC "{mac(9)}"',
            "degraded: nothing to do, 1 not done",
        ],
    )


def test_plan_in_json_has_the_state_and_what_is_left(host):
    host.document(ABSENT)
    done = host.neuca("plan", "--json")
    assert (done.code, done.json["state"], done.json["problems"]) == (
        4,
        "degraded",
        [{"link": mac(9), "code": "absent", "text": f'no NIC has the MAC "{mac(9)}"'}],
    )


def test_a_profile_that_cannot_be_used_is_named_with_its_reason(host):
    host.once(GOOD)
    reason = 'profile "bdp": it requires rate and rtt'
    planned = host.neuca("tune", "plan", "--profile", "bdp")
    assert (planned.code, planned.out.splitlines()) == (
        78,
        ["nothing to do", f"not done: {reason}"],
    )
    audit = host.neuca("tune", "audit", "--profile", "bdp")
    assert (audit.code, f"not done: {reason}" in audit.out.splitlines()) == (78, True)
    data = host.neuca("tune", "audit", "--profile", "bdp", "--json").json
    assert data["problems"] == [{"code": "invalid", "text": reason}]
    absent = host.neuca("tune", "plan", "--profile", "nowhere")
    assert (absent.code, absent.out.splitlines()[1].startswith("not done: profile")) == (78, True)


def test_a_nic_stays_configured_when_its_vlan_cannot_be_created(host):
    """On a kernel without 8021q; with it, the VLAN is there too."""
    host.document(
        f"{GOOD}[vlan {mac(1)}.5]\naddresses = 10.5.0.1/24\n[routes]\n10.6.0.0/16 = 10.5.0.9\n"
    )
    done = host.neuca("apply")
    host.settle()
    assert (host.link("eth1")["operstate"], host.addresses("eth1")) == ("UP", {"10.1.0.1/24"})
    if host.link("eth1.5") is None:
        reason = "create VLAN 5 on eth1 as eth1.5: Operation not supported (Unknown device type)"
        assert (done.code, done.out.splitlines()[0]) == (1, f"not done: eth1.5: {reason}")
        again = host.neuca("apply")
        assert (again.code, again.err.splitlines()) == (1, [reason])
    host.document(GOOD)
    assert host.neuca("apply").code == 0
    assert host.addresses("eth1") == {"10.1.0.1/24"}


def test_a_dry_run_changes_nothing_and_says_what_plan_says(host):
    host.document(ABSENT)
    planned = host.neuca("plan")
    with host.monitored() as monitor:
        dry = host.neuca("apply", "--dry-run")
        assert monitor.lines() == []
    assert (dry.code, dry.out) == (planned.code, planned.out)
    assert not (host.folder / "state/record.json").exists()
    host.neuca("apply")
    would = host.neuca("release", "--dry-run", "eth1")
    assert "delete the address 10.1.0.1/24 from eth1" in would.out.splitlines()
    assert host.addresses("eth1") == {"10.1.0.1/24"}
    assert host.neuca("revert", "--dry-run").code == 0


def test_the_report_of_apply_in_json(host):
    host.document(ABSENT)
    planned = [one["text"] for one in host.neuca("plan", "--json").json["operations"]]
    done = host.neuca("apply", "--json", "--quiet")
    assert (done.code, done.out, done.err) == (4, "", "")
    again = host.neuca("apply", "--json")
    report = again.json
    assert (again.code, report["version"], report["changed"], report["state"]) == (
        4, 1, [], "degraded")  # fmt: skip
    assert [one["code"] for one in report["problems"]] == ["absent"]
    assert planned
    validated("report", report)
    validated("plan", host.neuca("plan", "--json").json)
    validated("status", host.status()[1])
    validated("user-data", host.neuca("show", "document", "--json").json)


def test_the_metrics_for_the_node_exporter_are_printed_or_written_to_a_file(host):
    host.document(ABSENT)
    host.neuca("apply")
    done = host.neuca("status", "--prometheus")
    assert (done.code, done.out.splitlines()[-1]) == (4, "# EOF")
    assert 'neuca_state{state="degraded"} 1' in done.out.splitlines()
    path = host.folder / "neuca.prom"
    assert host.neuca("status", f"--prometheus={path}").out == ""
    assert path.read_text() == done.out
    path.unlink()
