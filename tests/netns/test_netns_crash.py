"""Passes that die, fail or meet: the next one converges, a failed NIC is as before, two never run at once."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import fcntl
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from lab import mac, refused_route

MANY = 6
LONGEST_PASS = 20.0  # seconds


def document(mtu, last, numbers=range(1, MANY + 1)):
    text = "".join(f"[interface {mac(number)}]\nname = data{number}\nmtu = {mtu}\ntxqueuelen = {mtu}\n"
                   f"addresses = 172.16.{number}.{last}/24, fd00:{number}::{last}/64\n"
                   f"sysctl.net.ipv4.conf.{{interface}}.rp_filter = {last}\n" for number in numbers)  # fmt: skip
    return (
        text
        + "[routes]\n"
        + "".join(f"10.{number}.0.0/16 = 172.16.{number}.25{last}\n" for number in numbers)
    )


def pass_that_dies_after(lab, lines):
    """`neucad --once`, killed once the kernel has reported so many changes."""
    command = [
        *lab.guest.enter,
        sys.executable,
        "-m",
        "neuca_tools.commands.neucad",
        "--once",
        "--config",
        str(lab.config_file),
    ]
    with lab.monitored() as monitor, subprocess.Popen(command, env=lab.environment, cwd="/", stderr=subprocess.DEVNULL,
                                                      stdout=subprocess.DEVNULL) as process:  # fmt: skip
        while process.poll() is None and not monitor.count() >= lines:
            monitor.stir(0.01)
        process.send_signal(signal.SIGKILL)
    return process.returncode


def check_whole(lab):
    """No file is half written: each is text that ends, or JSON."""
    for path in lab.folder.rglob("*"):
        if path.is_file() and not path.name.endswith((".neuca-new", "lock", ".log")):
            text = path.read_text()
            assert text.endswith(("\n", "}")), path
            assert path.suffix != ".json" or json.loads(text)


@pytest.mark.parametrize("start", [0, 1, 2])
def test_a_pass_that_is_killed_at_any_moment_converges_with_the_next_one(lab, start):
    for number in range(1, MANY + 1):
        lab.veth(f"dp{number}", number)
    lab.ip("link set dp1 mtu 1450 txqueuelen 77")
    killed = 0
    for lines in range(1 + start, 60, 9):
        lab.applied = True
        lab.document(document(*((9000, 1), (4000, 2))[lines % 2]))
        killed += pass_that_dies_after(lab, lines) == -signal.SIGKILL
        check_whole(lab)
    assert killed > 3
    assert lab.once(document(8000, 2)).code == 0
    for number in range(1, MANY + 1):
        assert lab.addresses(f"data{number}") == {f"172.16.{number}.2/24", f"fd00:{number}::2/64"}
    assert not (lab.folder / "state" / "journal.json").exists()
    assert not list(lab.folder.rglob("*.neuca-new"))
    assert lab.once(f"[interface {mac(1)}]\nname = data1\n").code == 0
    assert (lab.link("data1")["mtu"], lab.link("data1")["txqlen"], lab.addresses("data1")) == (
        1450,
        77,
        set(),
    )
    assert lab.look("route show proto 110") == []


def kill_with_its_pass(daemon):
    """Both at one time, as systemd ends a service."""
    children = Path(f"/proc/{daemon.pid}/task/{daemon.pid}/children").read_text().split()
    for process in (daemon.pid, *map(int, children)):
        os.kill(process, signal.SIGKILL)
    daemon.close()


@pytest.mark.parametrize(
    "kills",
    [(3, 12, 33), pytest.param((1, 3, 7, 12, 18, 25, 33, 42, 5, 15), marks=pytest.mark.long)],
    ids=["3", "10"],
)
def test_a_daemon_killed_repeatedly_during_its_pass_still_applies_everything(lab, kills):
    """`kills`: the lines of `ip monitor` after which each daemon is killed."""
    for number in range(1, MANY + 1):
        lab.veth(f"dp{number}", number)
    lab.ip("link set dp1 mtu 1450 txqueuelen 77")
    killed_in_a_pass = 0
    for lines in kills:
        lab.applied = True
        lab.document(document(*((9000, 1), (4000, 2))[lines % 2]))
        with lab.monitored() as monitor:
            daemon = lab.start()
            began = time.monotonic()
            while monitor.count() < lines and time.monotonic() < began + LONGEST_PASS:
                monitor.stir(0.01)
            kill_with_its_pass(daemon)
        killed_in_a_pass += (lab.folder / "state" / "journal.json").exists()
        check_whole(lab)
    assert killed_in_a_pass > len(kills) // 3
    lab.document(document(8000, 2))
    lab.start()
    addresses = {
        number: {f"172.16.{number}.2/24", f"fd00:{number}::2/64"} for number in range(1, MANY + 1)
    }
    lab.wait(
        "each has its addresses once",
        lambda: {number: lab.addresses(f"data{number}") for number in addresses} == addresses,
    )
    lab.wait(
        "everything is in force",
        lambda: lab.status()[0] == 0 and lab.link(f"data{MANY}")["mtu"] == 8000,
    )
    # Status looks for itself, and may be content while the pass still makes sure: its journal goes last.
    lab.wait("the pass is over", lambda: not (lab.folder / "state" / "journal.json").exists())
    lab.wait("no file is left half written", lambda: not list(lab.folder.rglob("*.neuca-new")))
    record = json.loads((lab.folder / "state" / "record.json").read_text())
    assert sorted(map(tuple, record["owned"]["addresses"])) == sorted(
        (mac(number), address) for number, texts in addresses.items() for address in texts
    )
    assert lab.daemon.stop() == 0
    assert lab.once(f"[interface {mac(1)}]\nname = data1\n").code == 0
    assert (lab.link("data1")["mtu"], lab.link("data1")["txqlen"], lab.addresses("data1")) == (
        1450,
        77,
        set(),
    )


def test_a_nic_that_fails_is_as_it_was_and_the_others_are_configured(lab):
    lab.veth("dp1", 1)
    lab.veth("dp2", 2)
    lab.ip("link set dp1 mtu 1450 txqueuelen 77")
    asked = "".join(f"[interface {mac(number)}]\naddresses = 172.16.{number}.1/24, fd00:{number}::1/64\nmtu = 9000\n"
                    "txqueuelen = 5000\n" for number in (1, 2))  # fmt: skip
    done = lab.once(f"{asked}[routes]\n{refused_route('172.16.1.254')}")
    assert done.code == 1
    dp1 = lab.link("dp1")
    assert (dp1["mtu"], dp1["txqlen"], "UP" in dp1["flags"], lab.addresses("dp1")) == (
        1450,
        77,
        False,
        set(),
    )
    assert (lab.link("dp2")["mtu"], lab.addresses("dp2")) == (
        9000,
        {"172.16.2.1/24", "fd00:2::1/64"},
    )
    code, data = lab.status()
    assert (code, data["state"], data["last_pass"]["failed"]) == (1, "failed", 1)
    failed = (
        "route 198.51.100.0/25 via 172.16.1.254 on dp1: Invalid argument (Invalid prefsrc address)"
    )
    assert lab.problems("dp1") == [("failed", failed)]
    assert not (lab.folder / "state" / "journal.json").exists()
    lab.permit()
    assert lab.once().code == 0
    assert lab.addresses("dp1") == {"172.16.1.1/24", "fd00:1::1/64"}


def test_a_nic_that_fails_keeps_what_it_had_from_the_pass_before(lab):
    lab.veth("dp1", 1)
    before = f"[interface {mac(1)}]\naddresses = 172.16.1.1/24\nmtu = 4000\n[routes]\n10.20.0.0/16 = 172.16.1.254\n"
    lab.once(before)
    lab.ip("address add 172.16.9.1/24 dev dp1")
    done = lab.once(
        f"[interface {mac(1)}]\naddresses = 172.16.1.2/24, fd00:1::1/64\nmtu = 9000\n"
        f"[routes]\n10.20.0.0/16 = 172.16.1.253\n{refused_route('172.16.1.253')}"
    )
    assert done.code == 1
    assert (lab.addresses("dp1"), lab.link("dp1")["mtu"]) == (
        {"172.16.1.1/24", "172.16.9.1/24"},
        4000,
    )
    assert lab.routes("10.20.0.0/16") == [("172.16.1.254", "dp1", 20, "110")]
    assert lab.once(before).code == 0


EARLIER = f"[interface {mac(1)}]\nmtu = 1400\naddresses = 172.16.1.1/24\n"
NEWER = f"[interface {mac(1)}]\nmtu = 1300\naddresses = 172.16.1.2/24, fd00:1::2/64\n"


@pytest.mark.parametrize(
    ("broken", "sign"),
    [
        ("kill add the address fd00:1::2", "the pass ended without a report"),
        ("add the address fd00:1::2|set the MTU of dp1 from 1300", "could not be rolled back"),
    ],
    ids=["killed", "not rolled back"],
)
def test_the_document_from_before_an_incomplete_pass_is_applied_again(lab, broken, sign):
    lab.veth("dp1", 1)
    lab.once(EARLIER)
    before = lab.link("dp1")["mtu"], lab.addresses("dp1")
    cause = lab.start_failing(broken)
    lab.wait("it has started", lambda: "pass: " in lab.daemon.log())
    lab.document(NEWER)
    lab.wait("the pass is incomplete", lambda: sign in lab.daemon.log())
    cause.unlink()
    lab.document(EARLIER)
    lab.wait(
        "all is as before", lambda: (lab.link("dp1")["mtu"], lab.addresses("dp1")) == before, 20
    )
    assert lab.status("--wait")[0] == 0


def test_a_pass_waits_for_the_one_that_runs_and_gives_up_after_its_time(lab):
    lab.veth("dp1", 1)
    lab.configure("[runtime]\ncommand-timeout = 1")
    (lab.folder / "run").mkdir()
    with (lab.folder / "run" / "lock").open("w") as lock:
        fcntl.lockf(lock, fcntl.LOCK_EX)
        done = lab.once(document(9000, 1, [1]))
        assert (done.code, done.err) == (
            1,
            f'neuca: lock "{lab.folder}/run/lock": another pass has held it for 1 s\n',
        )
        assert lab.link("dp1")["mtu"] == 1500
        assert lab.neuca("status").code == 3
    assert lab.once().code == 0


def test_passes_that_are_started_together_do_their_work_one_after_the_other(lab):
    for number in range(1, MANY + 1):
        lab.veth(f"dp{number}", number)
    lab.document(document(9000, 1))
    lab.applied = True
    command = [
        *lab.guest.enter,
        sys.executable,
        "-m",
        "neuca_tools.commands.neucad",
        "--once",
        "--config",
        str(lab.config_file),
    ]
    started = [
        subprocess.Popen(command, env=lab.environment, cwd="/", stderr=subprocess.PIPE, text=True)
        for _ in range(4)
    ]
    texts = [process.communicate(timeout=240)[1] for process in started]
    assert [process.returncode for process in started] == [0, 0, 0, 0], texts
    assert sorted(bool(text) for text in texts) == [False, False, False, True]


def test_a_record_that_is_damaged_is_named_and_nothing_is_done(lab):
    lab.veth("dp1", 1)
    lab.once(document(9000, 1, [1]))
    record = lab.folder / "state" / "record.json"
    good = record.read_text()
    record.write_text(good[:40])
    done = lab.once()
    assert done.code == 1
    assert done.err.startswith(f'neuca: read "{record}": it is not JSON: ')
    record.write_text(good)
