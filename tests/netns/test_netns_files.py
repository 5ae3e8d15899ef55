"""The files: rules for udev, marks for other managers, sysctls for new links; whole, and only those that there should be."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import pytest
from lab import mac

ALONE = f"[interfaces]\n{mac(1)} = up:ipv4:172.16.0.1/24\n"
ADDRESSED = ALONE + f"{mac(2)} = user\n"
DATA, MANAGED = "10-neuca-persistent-020000000101.rules", "15-neuca-persistent-020000000099.rules"
NIC = 'DRIVERS=="?*", ATTR{type}=="1", ATTR{address}=="%s", ENV{DEVTYPE}!="?*", TEST!="master"'
MARKS = 'ENV{NM_UNMANAGED}="1", ENV{ID_NET_MANAGED_BY}="neucad"'


def names(lab, folder):
    return sorted(path.name for path in (lab.folder / folder).glob("*"))


def lines(lab, path):
    return [
        line
        for line in (lab.folder / path).read_text().splitlines()
        if line and not line.startswith("#")
    ]


def test_each_nic_has_a_rule_with_its_name_and_marks(lab):
    lab.management()
    lab.veth("dp1", 1)
    lab.veth("dp2", 2)
    lab.once(ADDRESSED)
    assert names(lab, "udev") == [DATA, DATA.replace("0101", "0102"), MANAGED]
    own = NIC % mac(1)
    assert lines(lab, f"udev/{DATA}") == [
        f'SUBSYSTEM=="net", ACTION=="add|change|move", {own}, {MARKS}',
        f'SUBSYSTEM=="net", ACTION=="add", {own}, NAME:="dp1"',
    ]
    assert lines(lab, f"udev/{MANAGED}") == [
        f'SUBSYSTEM=="net", ACTION=="add", {NIC % "02:00:00:00:00:99"}, NAME:="mgmt0"'
    ]


def test_rules_of_earlier_versions_are_written_once_by_a_start(lab):
    """They had the settings of the NIC in a comment."""
    lab.management()
    lab.veth("dp1", 1)
    lab.once(ALONE)
    rules = {path: path.read_text() for path in (lab.folder / "udev").iterdir()}
    for path, text in rules.items():
        first, rest = text.split("\n", 1)
        path.write_text(f"{first}\n### Config: state = up\n{rest}")
    lab.once()
    assert {path: path.read_text() for path in rules} == rules
    written = {path: path.stat().st_ino for path in rules}
    lab.once(f"[interface {mac(1)}]\naddresses = 172.16.0.1/24\ntxqueuelen = 500\n")
    assert {path: path.stat().st_ino for path in rules} == written


def test_a_nic_that_is_absent_has_its_marks_before_it_appears(lab):
    lab.veth("dp1", 1)
    lab.once(ADDRESSED)
    assert f"mac:{mac(2)}" in (lab.folder / "nm" / "neuca.conf").read_text()
    assert (
        f"PermanentMACAddress={mac(2)}\n"
        in (lab.folder / "networkd" / "05-neuca-nics.network").read_text()
    )


def test_other_managers_are_kept_off_dataplane_nics_alone(lab):
    lab.management()
    lab.veth("dp1", 1)
    lab.veth("dp2", 2)
    lab.once(ADDRESSED)
    devices = f"mac:{mac(1)};mac:{mac(2)};interface-name:dp1.*;interface-name:dp2.*"
    assert lines(lab, "nm/neuca.conf") == [
        "[keyfile]",
        f"unmanaged-devices+={devices}",
        "[device-neuca]",
        f"match-device={devices}",
        "managed=0",
    ]
    assert lines(lab, "networkd/05-neuca-nics.network") == [
        "[Match]",
        f"PermanentMACAddress={mac(1)}",
        f"PermanentMACAddress={mac(2)}",
        "[Link]",
        "Unmanaged=yes",
    ]
    assert lines(lab, "networkd/05-neuca-vlans.network") == [
        "[Match]",
        "Kind=vlan",
        "Name=dp1.*",
        "Name=dp2.*",
        "[Link]",
        "Unmanaged=yes",
    ]


def test_per_interface_sysctls_are_kept_for_new_links_while_they_are_asked_for(lab):
    lab.veth("dp1", 1)
    setting = f"[interface {mac(1)}]\nsysctl.net.ipv4.conf.{{interface}}.rp_filter = 2\n"
    lab.once(ADDRESSED + setting)
    quiet = "-net/ipv6/conf/dp1/accept_ra = 0"
    assert lines(lab, "sysctl/neuca.conf") == ["-net/ipv4/conf/dp1/rp_filter = 2", quiet]
    lab.once(ADDRESSED)
    assert lines(lab, "sysctl/neuca.conf") == [quiet]


def test_a_nic_that_a_complete_document_loses_loses_its_marks_and_keeps_its_name(lab):
    lab.veth("dp1", 1)
    lab.veth("dp2", 2)
    lab.once(ADDRESSED)
    assert lab.once(f"[interfaces]\n{mac(2)} = user\n").code == 0
    assert names(lab, "udev") == [DATA.replace("0101", "0102"), DATA.replace("10-", "15-", 1)]
    assert lines(lab, f"udev/{DATA.replace('10-', '15-', 1)}") == [
        f'SUBSYSTEM=="net", ACTION=="add", {NIC % mac(1)}, NAME:="dp1"'
    ]
    assert mac(1) not in (lab.folder / "nm" / "neuca.conf").read_text()
    assert mac(1) not in (lab.folder / "networkd" / "05-neuca-nics.network").read_text()


def test_when_no_nic_is_left_the_marks_are_gone(lab):
    lab.veth("dp1", 1)
    lab.once(ADDRESSED)
    assert lab.once("[global]\nhost_name = x\n").code == 0
    assert (names(lab, "nm"), names(lab, "networkd")) == ([], [])


def test_stale_rules_of_ours_go_and_other_peoples_stay(lab):
    lab.veth("dp1", 1)
    (lab.folder / "udev").mkdir()
    for name in (DATA.replace("10-", "15-", 1), "10-neuca-persistent-0200000001ff.rules", "70-persistent-net.rules",
                 "10-neuca-persistent-mine.rules"):  # fmt: skip
        (lab.folder / "udev" / name).write_text("# theirs\n")
    lab.once(ALONE)
    assert names(lab, "udev") == [DATA, "10-neuca-persistent-mine.rules", "70-persistent-net.rules"]


def test_directory_substring_and_priorities_are_configurable(lab):
    lab.management()
    lab.veth("dp1", 1)
    lab.configure(
        "[linux]\nudev-substring = my-nics\ndata-udev-priority = 7\nmgmt-udev-priority = 60"
    )
    lab.once(ALONE)
    assert names(lab, "udev") == ["07-my-nics-020000000101.rules", "60-my-nics-020000000099.rules"]


def test_a_file_that_was_edited_by_hand_is_drift_and_is_put_right(lab):
    lab.veth("dp1", 1)
    lab.once(ADDRESSED)
    rule = lab.folder / "udev" / DATA
    rule.write_text("# mine\n")
    assert lab.status()[0] == 4
    assert lab.problems() == [("drift", f'"{rule}" is not as requested')]
    lab.once()
    assert len(lines(lab, f"udev/{DATA}")) == 2


def test_a_directory_that_cannot_be_written_costs_no_nic_its_settings(lab):
    lab.veth("dp1", 1)
    (lab.folder / "nm").write_text("a file where a directory should be")
    done = lab.once(ALONE)
    assert done.code == 1
    assert lab.addresses("dp1") == {"172.16.0.1/24"}
    assert f'write "{lab.folder}/nm/neuca.conf"' in done.err
    (lab.folder / "nm").unlink()
    assert lab.once().code == 0


def test_the_document_is_for_root_alone_and_its_copy_has_no_secrets(lab):
    lab.veth("dp1", 1)
    lab.once(ADDRESSED + "[storage]\ndev1 = iscsi:10.0.0.1:3260:1:user:topsecret:yes\n")
    stored, copy = (lab.folder / folder / "document.json" for folder in ("state", "run"))
    assert ("topsecret" in stored.read_text(), stored.stat().st_mode & 0o777) == (True, 0o600)
    assert ("topsecret" in copy.read_text(), copy.stat().st_mode & 0o777) == (False, 0o644)


@pytest.mark.parametrize("content", [b"[" * 100000, b'{"a":' * 100000], ids=["lists", "objects"])
def test_deeply_nested_state_files_end_in_no_traceback(lab, content):
    lab.veth("dp1", 1)
    assert lab.once(f"[interface {mac(1)}]\naddresses = 172.16.1.1/24\n").code == 0
    files = sorted(
        {*(lab.folder / "state").glob("*.json"), *(lab.folder / "run").glob("*.json")}
        | {lab.folder / "state" / name for name in ("guest-users.json", "guest-storage.json")}
        | {lab.folder / "run" / name for name in ("guest-users.json", "tuning.json")}
    )
    for path in files:
        before = path.read_bytes() if path.exists() else None
        for words in (("status",), ("plan",), ("clean", "--dry-run")):
            path.write_bytes(content)
            done = lab.neuca(*words)
            assert "Traceback" not in done.err, (path, words)
        path.write_bytes(content)
        done = lab.once()
        assert "Traceback" not in done.err, path
        path.unlink(missing_ok=True)
        if before is not None:
            path.write_bytes(before)
    (lab.folder / "run" / "guest-due").unlink(missing_ok=True)
