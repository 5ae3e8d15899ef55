"""Tuning with the real kernel: what a network namespace has of it, whose word counts, and the way back."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import pytest
from lab import mac

RMEM, WMEM, SYN = "net/ipv4/tcp_rmem", "net/ipv4/tcp_wmem", "net/ipv4/tcp_max_syn_backlog"
DOCUMENT = f"[interfaces]\n{mac(1)} = up:ipv4:10.1.0.1/24\n"


@pytest.fixture
def host(lab):
    """A guest with one dataplane NIC, the profile exogeni, and an odd receive buffer of its own."""
    lab.management()
    lab.veth("eth1", 1)
    lab.document(DOCUMENT)
    lab.sysctl(RMEM, "'4096 131072 6291456'")
    lab.sysctl(WMEM, "'4096 16384 4194304'")
    lab.configure(profile="exogeni")
    lab.foreign.may_set(RMEM, WMEM, SYN, "net/ipv4/tcp_mtu_probing")
    return lab


def audit(lab, *arguments):
    return {
        one["setting"]: one
        for one in lab.neuca("tune", "audit", "--json", *arguments).json["values"]
    }


def tuned(lab):
    return [one["text"] for one in lab.neuca("tune", "plan", "--json").json["operations"]]


def in_force(lab):
    """The plans, the NIC, and the files outside the agent's own directories."""
    files = {
        path: kept
        for path, kept in lab.files().items()
        if "/run/" not in path and "/state/" not in path
    }
    return tuned(lab), lab.neuca("plan").out, lab.look("link show eth1"), files


def test_a_pass_sets_what_the_namespace_has_and_says_what_it_has_not(host):
    assert host.once().code == 0
    assert host.sysctl(RMEM) == "4096 131072 16777216"
    assert host.sysctl(WMEM) == "4096 65536 16777216"
    rows = audit(host)
    assert rows["net.ipv4.tcp_rmem"]["effect"] == "effective"
    assert rows["net.ipv4.tcp_rmem"]["origin"] == "profile exogeni"
    for setting in ("net.core.rmem_max", "net.core.netdev_max_backlog"):
        assert (rows[setting]["effect"], rows[setting]["desired"]) in (
            ("not applicable", "16777216"), ("not applicable", "30000")), rows[setting]  # fmt: skip
    assert (
        rows["net.core.netdev_max_backlog"]["reason"]
        == "this network namespace has no such setting; that of the host may have it"
    )
    code, status = host.status()
    assert (code, status["state"]) == (0, "ok")
    assert any(
        "net.core.netdev_max_backlog" in note and "not applicable" in note
        for note in status["notes"]
    )
    assert {one["effect"] for one in status["tuning"]["values"]} <= {
        "effective",
        "not applicable",
        "unsupported",
    }


def test_a_second_pass_writes_nothing(host):
    host.once()
    before = host.files()
    with host.monitored() as monitor:
        assert host.once().code == 0
        assert monitor.lines() == []
    assert (host.files(), tuned(host)) == (before, [])


def test_a_profile_by_hand_holds_over_restarts_and_goes_with_revert(host):
    host.configure(profile="none")
    assert host.once().code == 0
    done = host.neuca("tune", "apply", "--profile", "bdp", "--rate", "1Gbit", "--rtt", "100ms")
    assert (done.code, done.out.splitlines()) == (
        0,
        [
            "2 settings changed",
            "profile bdp is in effect until the next boot; set [tuning] to keep it",
        ],
    )
    assert host.once().code == 0
    assert (host.sysctl(RMEM), host.sysctl(WMEM)) == ("4096 131072 31250000", "4096 16384 31250000")
    assert "29.8 MiB at 100 ms RTT allows 1.2 Gbit/s" in host.neuca("tune", "audit").out
    assert "profile bdp: until the next boot (neuca tune apply)" in host.status()[1]["notes"]
    assert host.neuca("tune", "apply", "--profile", "exogeni").code == 0
    assert host.sysctl(RMEM) == "4096 131072 16777216"
    host.run("ip", "link", "set", "eth1", "mtu", "1400")  # by hand
    planned = host.neuca("tune", "revert", "--dry-run").out
    assert "transmit queue length of eth1" in planned
    assert "MTU" not in planned
    done = host.neuca("tune", "revert")
    assert (done.code, "transmit queue length of eth1" in done.err) == (0, True), done
    assert (host.sysctl(RMEM), host.sysctl(WMEM)) == ("4096 131072 6291456", "4096 16384 4194304")
    link = host.look("link show eth1")[0]
    assert (link["txqlen"], link["mtu"]) == (1000, 1400)
    assert host.neuca("tune", "revert").out == (
        "`neuca tune apply` selected no profiles since boot, so there is nothing to undo\n"
    )
    assert host.once().code == 0
    assert host.sysctl(RMEM) == "4096 131072 6291456"


def test_revert_keeps_what_the_configuration_and_the_document_request(host):
    """It undoes `tune apply`: not the configuration's profile, the document's MTU or accept_ra = 0."""
    assert host.once().code == 0
    before = in_force(host)
    for undone in ("nothing", "a profile"):
        if undone == "a profile":
            options = ("--profile", "bdp", "--rate", "1Gbit", "--rtt", "100ms")
            assert host.neuca("tune", "apply", *options).code == 0
        assert host.neuca("tune", "revert").code == 0
        assert in_force(host) == before


def test_the_word_of_the_administrator_is_named_and_counts(host):
    host.configure(f"[linux]\nsysctl-directory = {host.folder}/etc/sysctl.d", profile="exogeni")
    (host.folder / "etc/sysctl.d").mkdir(parents=True)
    (host.folder / "etc/sysctl.conf").write_text("net.ipv4.tcp_rmem = 4096 131072 6291456\n")
    assert host.once().code == 0
    assert (host.sysctl(RMEM), host.sysctl(WMEM)) == ("4096 131072 6291456", "4096 65536 16777216")
    reason = f'by {host.folder}/etc/sysctl.conf, which sets it to "4096 131072 6291456"'
    assert (
        audit(host)["net.ipv4.tcp_rmem"]["effect"],
        audit(host)["net.ipv4.tcp_rmem"]["reason"],
    ) == ("overridden", reason)
    assert f"net.ipv4.tcp_rmem: overridden {reason}" in host.status()[1]["notes"]


def test_what_the_document_asks_for_by_name_comes_first_and_explain_says_so(host):
    host.document(
        DOCUMENT
        + f"[interface {mac(1)}]\ntxqueuelen = 500\nsysctl.net.ipv4.tcp_rmem = 4096 65536 131072\n"
    )
    assert host.once().code == 0
    assert (host.sysctl(RMEM), host.look("link show eth1")[0]["txqlen"]) == (
        "4096 65536 131072",
        500,
    )
    row = next(
        one
        for one in host.neuca("explain", "--json", "eth1").json["settings"]
        if one["setting"] == "txqueuelen"
    )
    assert (row["desired"], row["origin"]) == (500, f"line 4, [interface {mac(1)}]")
    assert (
        audit(host, "--interface", "eth1")["txqueuelen"]["origin"]
        == f"line 4, [interface {mac(1)}]"
    )


def test_audit_and_status_agree_that_a_queue_length_has_no_effect(host):
    host.document(f"{DOCUMENT}[interface {mac(1)}]\ntxqueuelen = 500\n")
    host.once()
    row = audit(host, "--interface", "eth1")["txqueuelen"]
    reason = 'the qdisc is "noqueue", which has no queue'
    assert (row["current"], row["effect"], row["reason"]) == ("500", "not applicable", reason)
    assert f"txqueuelen: not applicable: {reason}" in host.neuca("status").out


def test_what_is_nowhere_is_not_said_to_be_on_the_host(host):
    (host.folder / "profiles").mkdir()
    mine = "[sysctl]\nnet.ipv4.no_such_setting = 1\n"
    (host.folder / "profiles/exogeni.conf").write_text(mine)
    assert host.once().code == 0
    row = audit(host)["net.ipv4.no_such_setting"]
    assert (row["effect"], "only" in row["reason"]) == ("not applicable", False)


def test_a_profile_of_ones_own_comes_before_the_shipped_one(host):
    (host.folder / "profiles").mkdir()
    mine = "[sysctl]\nnet.ipv4.tcp_max_syn_backlog = 100000\n[link]\ntxqueuelen = 2000\n"
    (host.folder / "profiles/exogeni.conf").write_text(mine)
    before = host.sysctl(SYN)
    assert host.once().code == 0
    assert (host.sysctl(SYN), host.sysctl(RMEM)) == ("100000", "4096 131072 6291456")
    assert host.look("link show eth1")[0]["txqlen"] == 2000
    host.configure(profile="none")
    assert host.once().code == 0
    assert (host.sysctl(SYN), host.look("link show eth1")[0]["txqlen"]) == (before, 1000)


@pytest.mark.parametrize(
    ("profile", "text"),
    [
        (
            "wan",
            'profile "wan": there is no such profile in "{folder}/profiles" or among the profiles of the package',
        ),
        (
            "exogenni",
            (
                'profile "exogenni": there is no such profile in "{folder}/profiles" or among the profiles of the package;'
                ' did you mean "exogeni"?'
            ),
        ),
        ("bdp", 'profile "bdp": it requires rate and rtt'),
        (
            "bad",
            'profile "bad", line 2: "net.core.rmem_max" is not a setting here, ignoring it',
        ),
    ],
)
def test_a_profile_that_cannot_be_used_is_invalid_and_costs_only_itself(host, profile, text):
    (host.folder / "profiles").mkdir()
    (host.folder / "profiles/bad.conf").write_text("[sysctls]\nnet.core.rmem_max = 1\n")
    host.configure(profile=f"{profile}, exogeni")
    assert host.once().code == 78
    assert host.problems() == [("invalid", text.format(folder=host.folder))]
    assert host.sysctl(RMEM) == "4096 131072 16777216"
    assert host.neuca("tune", "apply").code == 78
    refused = host.neuca("tune", "apply", "--profile", profile)
    assert (refused.code, refused.err) == (2, f"neuca: tune: {text.format(folder=host.folder)}\n")


def test_ignored_and_management_nics_are_left_alone(host):
    host.veth("eth2", 2, foreign=True)
    host.configure(f"[runtime]\ndataplane-macs-to-ignore = {mac(2)}", profile="exogeni")
    host.document(f"{DOCUMENT}{mac(2)} = up\n")
    host.once()
    assert {one["txqlen"] for one in host.look("link") if one["ifname"] in ("eth2", "mgmt0")} == {
        1000
    }
    refused = host.neuca("tune", "plan", "--interface", "eth2")
    assert (refused.code, refused.err) == (
        2,
        (
            'neuca: tune --interface "eth2": no dataplane interface has this name or MAC\n'
            "       neuca status lists the interfaces of this host\n"
        ),
    )


def test_a_source_that_has_another_document_than_the_active_one_is_read_once(host):
    host.once()
    applied = host.neuca("tune", "apply", "--source", "none")
    reason = "the configuration names no source (sources = none)"
    assert (applied.code, applied.err.count(reason)) == (0, 1)
    assert host.once().code == 0


def test_words_that_make_no_sense_are_refused(host):
    host.once()
    assert host.neuca("tune", "apply", "--profile", "bdp", "--rate", "fast").err == (
        'neuca: tune --rate: "fast" is not a rate such as "10Gbit"\n'
    )
    assert host.neuca("tune", "revert", "--profile", "bdp").code == 2


def test_a_revert_that_fails_does_not_say_that_all_is_as_requested(host):
    (host.folder / "profiles").mkdir()
    (host.folder / "profiles/bad.conf").write_text("[sysctl]\nnet.ipv4.tcp_fin_timeout = 16M\n")
    host.configure(profile="bad")
    assert host.neuca("tune", "apply", "--profile", "exogeni").code == 0
    reverted = host.neuca("tune", "revert")
    assert (reverted.code, reverted.out) == (1, "1 setting could not be changed\n")
    host.configure(profile="none")
    assert host.once().code == 0


def test_a_pass_that_dies_half_way_leaves_the_way_back(host):
    """The record with the values is on disk before the first write: what a killed pass did goes back too."""
    host.once()
    before = (host.sysctl(RMEM), host.sysctl(WMEM))
    options = ("--profile", "bdp", "--rate", "1Gbit", "--rtt", "100ms")
    assert host.neuca("tune", "apply", *options).code == 0
    host.sysctl(WMEM, f"'{before[1]}'")  # as if killed before this write
    assert host.neuca("tune", "revert").code == 0
    assert (host.sysctl(RMEM), host.sysctl(WMEM)) == before
    assert host.once().code == 0


# --- the MTU ---------------------------------------------------------------------------------------------------------


def test_a_profile_raises_the_mtu_of_no_virtual_machine(host):
    """Wherever the test runs: the processor has the flag of a hypervisor."""
    fake = host.folder / "cpuinfo"
    fake.write_text("processor\t: 0\nflags\t\t: fpu hypervisor\n")
    host.run("mount", "--bind", fake, "/proc/cpuinfo")
    assert host.once().code == 0
    assert host.look("link show eth1")[0]["mtu"] == 1500
    assert audit(host)["mtu"]["effect"] == "not applicable"


def test_a_link_that_a_pass_would_rename_is_tuned_under_its_present_name(lab):
    lab.veth("dp1", 1)
    assert lab.once(f"[interface {mac(1)}]\n").code == 0
    setting = "sysctl.net.ipv4.conf.{interface}.rp_filter = 2"
    lab.document(f"[interface {mac(1)}]\nname = data1\nmtu = 1400\n{setting}\n")
    expected = [
        "set the MTU of dp1 from 1500 to 1400",
        'set the sysctl net.ipv4.conf.dp1.rp_filter from "0" to "2"',
    ]
    assert tuned(lab) == expected
    done = lab.neuca("tune", "apply")
    assert (done.code, done.err.splitlines()) == (0, expected)
    assert (lab.link("dp1")["mtu"], lab.sysctl("net/ipv4/conf/dp1/rp_filter")) == (1400, "2")
    assert lab.neuca("apply").code == 0
    assert lab.link("data1")
