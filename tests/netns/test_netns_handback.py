"""Giving back: `release` hands one NIC to its user, `revert` every setting to what it was."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from lab import PATIENCE, mac

DOCUMENT = f"""[interface {mac(1)}]
addresses = 172.16.1.1/24, fd00:16::1/64
mtu = 9000
txqueuelen = 5000
sysctl.net.ipv4.conf.{{interface}}.rp_filter = 2
sysctl.net.core.somaxconn = 8192
[interface {mac(2)}]
addresses = 172.16.2.1/24
[routes]
10.20.0.0/16 = 172.16.1.254
"""
RULES = {number: f"10-neuca-persistent-{mac(number).replace(':', '')}.rules" for number in (1, 2)}


# Makes a pass for another document, as the daemon does, once it reads a line; it holds the lock.
PASS = """import pathlib, sys
from neuca_tools.agent.reconcile import run_pass
from neuca_tools.commands.context import read_document
from neuca_tools.config import load_config
from neuca_tools.files import locked
config = load_config(pathlib.Path(sys.argv[1]))
with locked(config.pass_lock, 1.0):
    print("locked", flush=True)
    sys.stdin.readline()
    run_pass(config, read_document(config, None), whole=True)
"""
SOMAXCONN = "sysctl.net.core.somaxconn = 4096"
NEUCA = "import sys; from neuca_tools.commands.neuca import main; sys.exit(main())"


@pytest.fixture
def running(lab):
    lab.foreign.may_set("net/core/somaxconn")
    for number in (1, 2):
        lab.veth(f"dp{number}", number)
    lab.before = lab.sysctl("net/core/somaxconn")
    assert lab.once(DOCUMENT).code == 0
    return lab


def test_release_takes_away_what_is_ours_on_one_nic(running):
    running.ip("address add 172.16.9.1/24 dev dp1")
    done = running.neuca("release", "dp1")
    assert (done.code, done.out) == (
        0,
        "dp1 is released and ignored; neuca release --undo dp1 reverses this\n",
    )
    assert running.addresses("dp1") == {"172.16.9.1/24"}
    assert (running.routes("10.20.0.0/16"), running.addresses("dp2")) == ([], {"172.16.2.1/24"})
    assert sorted(path.name for path in (running.folder / "udev").glob("*")) == [RULES[2]]
    for file in ("nm/neuca.conf", "networkd/05-neuca-nics.network"):
        assert mac(1) not in (running.folder / file).read_text()
    assert running.role(mac(1)) == "ignored"
    assert "UP" in running.link("dp1")["flags"]


def test_a_released_nic_is_ignored_until_it_is_taken_back(running):
    running.neuca("release", mac(1).replace(":", "").upper())
    with running.monitored() as monitor:
        running.once(DOCUMENT.replace("172.16.1.1/24", "172.16.1.2/24"))
        assert monitor.lines() == []
    done = running.neuca("release", "--undo", "dp1")
    assert (done.code, done.out) == (0, "dp1 is no longer ignored\nok: 12 changed\n")
    assert running.once().code == 0
    assert running.addresses("dp1") == {"172.16.1.2/24", "fd00:16::1/64"}
    assert running.link("dp1")["mtu"] == 9000


def test_a_released_nic_that_is_neither_present_nor_requested_is_taken_back(running):
    running.neuca("release", "dp2")
    running.ip("link del dp2")
    running.once(f"[interface {mac(1)}]\nname = dp1\n")
    done = running.neuca("release", "--undo", mac(2))
    assert (done.code, done.out) == (0, f"{mac(2)} is no longer ignored\nok: nothing to do\n")
    running.veth("dp2", 2)
    assert running.once(DOCUMENT).code == 0
    assert running.addresses("dp2") == {"172.16.2.1/24"}
    assert running.neuca("release", "--undo", mac(7)).code == 2


def test_reverting_the_tuning_does_not_ignore_an_option(running):
    done = running.neuca("tune", "revert", "--source", "file:/nonexistent")
    options = "--source, --profile, --rate, --rtt or --interface"
    reason = f"it undoes `tune apply`, and cannot be combined with {options}"
    assert (done.code, done.err.splitlines()[-1]) == (2, f"neuca: tune revert: {reason}")


def test_taking_a_nic_back_leaves_nothing_to_do(running):
    assert running.neuca("release", "dp1").code == 0
    assert running.neuca("release", "--undo", "dp1").code == 0
    code, data = running.status()
    assert (code, data["document"]["stale"], data["document"]["reason"]) == (0, False, None), data[
        "problems"
    ]


def test_a_dry_run_of_a_release_prints_all_that_a_release_does(running):
    """The files and the udev rule, too."""
    planned = running.neuca("release", "dp1", "--dry-run").out.splitlines()
    done = running.neuca("release", "dp1", "--json").json
    assert planned == [operation["text"] for operation in done["operations"]]
    assert f'remove "{running.folder}/udev/{RULES[1]}"' in planned
    undone = running.neuca("release", "--undo", "dp2")
    assert undone.err == f'neuca: release --undo "{mac(2)}": it was not released\n'


def test_taking_a_nic_back_is_planned_and_ends_as_a_pass_does(running):
    undo = ("release", "--undo", "dp1")
    assert running.neuca(*undo, "--dry-run").code == 1
    running.neuca("release", "dp1")
    running.once(DOCUMENT + "[interface nonsense]\nmtu = 1500\n")
    planned = running.neuca(*undo, "--dry-run").out.splitlines()
    assert "add the address 172.16.1.1/24 to dp1" in planned
    done = running.neuca(*undo)
    *operations, fault = done.err.splitlines()
    assert (done.code, operations) == (78, planned)
    assert '"nonsense" is not a MAC address' in fault


@pytest.mark.parametrize("wrong", ["configuration", "document"])
def test_an_invalid_value_determines_the_exit_code(running, wrong):
    """neuca-status(7): the first of 78, 1, 3, 4 and 0 that applies."""
    commands = ["tune apply", "release --undo dp1"]
    if wrong == "configuration":
        running.configure("[network]\ndrift = sometimes")
        commands += ["export", "revert", "trust dp9", "tune revert"]
    running.veth("dp9", 9)
    running.neuca("release", "dp1")
    running.once(f"{DOCUMENT}[interface {mac(1)}]\nmtu = none\n" if wrong == "document" else None)
    for command in commands:
        done = running.neuca(*command.split())
        assert (done.code, "neuca: error: " in done.err) == (78, True), command
    assert running.once().code == 78


def test_a_command_about_what_is_no_nic_says_so(running):
    done = running.neuca("release", "nothing")
    assert (done.code, done.err) == (
        2,
        'neuca: release "nothing": no NIC has this name or MAC\n       neuca status lists the interfaces of this host\n',
    )
    done = running.neuca("explain", "nothing")
    assert (done.code, done.err.splitlines()[0]) == (
        2,
        'neuca: explain "nothing": no NIC of this host and no link of the document has this name or MAC',
    )


def test_revert_puts_every_setting_back_and_a_new_start_sets_them_again(running):
    running.ip("link set dp2 mtu 4000")
    done = running.neuca("revert")
    assert (done.code, done.out) == (0, "4 settings restored\n")
    dp1 = running.link("dp1")
    assert (dp1["mtu"], dp1["txqlen"], running.link("dp2")["mtu"]) == (1500, 1000, 4000)
    assert running.sysctl("net/ipv4/conf/dp1/rp_filter") == "0"
    assert running.sysctl("net/core/somaxconn") == running.before
    assert running.addresses("dp1") == {"172.16.1.1/24", "fd00:16::1/64"}
    assert not (running.folder / "sysctl" / "neuca.conf").exists()
    assert running.neuca("revert").out == "nothing was changed, so there is nothing to restore\n"
    assert running.once().code == 0
    assert (running.link("dp1")["mtu"], running.link("dp1")["txqlen"]) == (9000, 5000)


def test_revert_does_not_deny_that_it_has_removed_a_file(lab):
    lab.veth("dp1", 1)
    assert lab.once(f"[interface {mac(1)}]\naddresses = 172.16.1.1/24\n").code == 0
    file = lab.folder / "sysctl" / "neuca.conf"
    done = lab.neuca("revert")
    assert (done.out, done.err) == ("0 settings restored\n", f'remove "{file}"\n')
    assert lab.neuca("revert").out == "nothing was changed, so there is nothing to restore\n"
    assert lab.once().code == 0


def test_after_revert_and_a_new_start_the_originals_are_known_again(running):
    running.neuca("revert")
    running.once()
    running.once(f"[interface {mac(1)}]\naddresses = 172.16.1.1/24\n")
    assert (running.link("dp1")["mtu"], running.link("dp1")["txqlen"]) == (1500, 1000)
    assert running.sysctl("net/core/somaxconn") == running.before


def test_a_verbose_plan_shows_what_changes_in_files(running):
    """As a unified diff, after the operations."""
    (running.folder / "udev" / RULES[1]).write_text("# mine\n")
    lines = running.neuca("plan", "-v").out.splitlines()
    path = f"{running.folder}/udev/{RULES[1]}"
    at = lines.index(f"--- {path}")
    assert lines[0] == f'write "{path}"'
    assert lines[at + 1] == f"+++ {path}"
    assert "-# mine" in lines[at:]
    assert any(line.startswith("+SUBSYSTEM==") for line in lines[at:])
    assert not [line for line in running.neuca("plan").out.splitlines() if "# mine" in line]
    assert running.neuca("apply").code == 0


def test_revert_keeps_the_original_values_of_a_nic_that_it_must_not_change(lab):
    lab.management()
    lab.veth("dp1", 1)
    lab.veth("dp2", 2)
    asked = "".join(f"[interface {mac(number)}]\nmtu = 1400\n" for number in (1, 2))
    assert lab.once(asked).code == 0
    lab.ip("link add theirs type bridge")
    lab.ip("link set dp1 master theirs")
    assert lab.neuca("revert").code == 0
    assert (lab.link("dp1")["mtu"], lab.link("dp2")["mtu"]) == (1400, 1500)
    lab.ip("link set dp1 nomaster")
    lab.ip("link del theirs")
    assert lab.neuca("revert").code == 0
    assert lab.link("dp1")["mtu"] == 1500
    assert lab.once(asked).code == 0


@pytest.mark.parametrize("words", [["release", "dp1"], ["tune", "apply"]], ids=" ".join)
def test_a_command_that_has_waited_for_a_pass_is_about_the_document_of_that_pass(running, words):
    def start(code, *arguments):
        command = [*running.guest.enter, sys.executable, "-c", code, *map(str, arguments)]
        return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
                                env=running.environment)  # fmt: skip

    running.applied = True
    with start(PASS, running.config_file) as other:
        assert other.stdout.readline() == "locked\n"
        with start(NEUCA, *words, "--config", running.config_file) as late:
            place = Path(f"/proc/{late.pid}/wchan")
            running.wait("it waits", lambda: "setlk" in place.read_text())
            running.document(f"[interface {mac(2)}]\nmtu = 1300\n{SOMAXCONN}\n")
            other.communicate("\n", PATIENCE)
            late.communicate(timeout=PATIENCE)
            assert (other.returncode, late.returncode) == (0, 0)
    assert running.link("dp2")["mtu"] == 1300
    assert running.sysctl("net/core/somaxconn") == "4096"
    assert running.once().code == 0
