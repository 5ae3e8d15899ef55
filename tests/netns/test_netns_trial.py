"""`neuca apply --try`: kept when confirmed, and otherwise taken back, whoever dies meanwhile."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import fcntl
import json
import os
import signal
import subprocess
import sys

import pytest
from lab import PATIENCE, has_ended, mac

EARLIER = f"""[interfaces]
{mac(1)} = up:ipv4:10.1.0.1/24
[interface {mac(2)}]
mtu = 1400
addresses = 10.2.0.1/24
[routes]
10.20.0.0/16 = 10.2.0.9
"""
LATER = f"""[interface {mac(1)}]
name = renamed
mtu = 1300
addresses = 10.9.0.1/24
sysctl.net.ipv4.conf.{{interface}}.rp_filter = 2
[routes]
10.30.0.0/16 = 10.9.0.9
"""
MAIN = "import sys; from neuca_tools.commands.neuca import main; sys.exit(main())"


@pytest.fixture
def host(lab):
    """A guest in the state that the document EARLIER asks for, and LATER in a file."""
    lab.management()
    lab.veth("eth1", 1)
    lab.veth("eth2", 2)
    assert lab.once(EARLIER).code == 0
    (lab.folder / "later").write_text(LATER)
    return lab


class Trial:
    """`neuca apply --try` as a process of its own, which has printed that it waits."""

    def __init__(self, lab, seconds, source="later", stdin=subprocess.DEVNULL, main=MAIN):
        self.lab = lab
        words = ["apply", "--config", lab.config_file]
        if source:
            words += ["--source", f"file:{lab.folder}/{source}"]
        command = [*lab.guest.enter, sys.executable, "-c", main, *map(str, words)]
        lab.foreign.remember()
        self.process = subprocess.Popen(
            [*command, "--try", str(seconds)], stdin=stdin, stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL, text=True, env=lab.environment)  # fmt: skip
        self.lines = []
        for line in self.process.stdout:
            self.lines.append(line.strip())
            if line.startswith("on trial"):
                break

    @property
    def pid(self):
        """The process of the trial, which is not the command."""
        return json.loads((self.lab.folder / "state/trial.json").read_text())["pid"]

    def end(self):
        """The exit code, and what was printed last."""
        rest = self.process.stdout.read().split("\n")
        return self.process.wait(PATIENCE), [line for line in rest if line]


def state(lab):
    """All of the kernel and of the agent's files that a trial must leave as it was."""
    links = {
        one["ifname"]: (one["mtu"], "UP" in one["flags"], one["address"])
        for one in lab.look("link")
    }
    routes = sorted(str(one) for one in lab.look("-4 route show"))
    addresses = {name: lab.addresses(name) for name in links}
    named = ("udev", "nm", "networkd", "sysctl")
    files = {
        str(path): path.read_bytes()
        for name in named
        for path in sorted((lab.folder / name).rglob("*"))
        if path.is_file()
    }
    kept = {
        name: (lab.folder / "state" / name).read_bytes()
        for name in ("record.json", "document.json")
    }
    return links, routes, addresses, files, kept


def is_on_trial(lab):
    return lab.addresses("renamed") == {"10.9.0.1/24"} and lab.link("renamed")["mtu"] == 1300


def test_a_trial_that_nobody_confirms_is_taken_back_to_the_last_file(host):
    before = state(host)
    trial = Trial(host, 1)
    code, said = trial.end()
    assert (code, said) == (1, ["not confirmed: rolled back to the previous configuration"])
    assert state(host) == before
    assert not (host.folder / "state/trial.json").exists()


def test_a_trial_without_standard_input_is_not_confirmed_by_its_own_output(host):
    """Descriptor 0 is free then, and the next socket gets it."""
    before = state(host)
    trial = Trial(host, 1, main=f"import os; os.close(0); import sys; sys.stdin = None; {MAIN}")
    code, said = trial.end()
    assert (code, said) == (1, ["not confirmed: rolled back to the previous configuration"])
    assert state(host) == before


def test_a_trial_that_is_confirmed_in_another_terminal_is_kept(host):
    trial = Trial(host, 3600)
    assert is_on_trial(host)
    assert any("is on trial until" in note for note in host.status()[1]["notes"])
    assert (host.neuca("confirm").code, trial.end()[0]) == (0, 0)
    assert is_on_trial(host)
    assert host.once(LATER).code == 0
    assert is_on_trial(host)
    assert host.neuca("confirm").err == "neuca: confirm: no trial is in progress\n"


@pytest.mark.parametrize(
    ("words", "code"), [("apply", 0), ("tune apply", 0), ("release eth2 --undo", 1)]
)
def test_another_command_says_why_it_waits(host, words, code):
    trial = Trial(host, 3600)
    command = [*host.guest.enter, sys.executable, "-c", MAIN, *words.split(), "--config"]
    with subprocess.Popen(
        [*command, str(host.config_file)], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
        text=True, env=host.environment) as other:  # fmt: skip
        said = other.stderr.readline()
        assert host.neuca("confirm").code == 0
        other.stderr.read()
        assert other.wait(PATIENCE) == code
    assert said.startswith(f"waiting: the document of file:{host.folder}/later is on trial until ")
    host.once()
    assert said.endswith(": neuca confirm keeps it\n")
    assert trial.end()[0] == 0


def test_enter_on_the_terminal_keeps_it(host):
    ours, terminal = os.openpty()
    trial = Trial(host, 3600, stdin=terminal)
    os.close(terminal)
    os.write(ours, b"\n")
    assert trial.end() == (0, ["confirmed: the document is now the active one"])
    os.close(ours)
    assert is_on_trial(host)
    host.once(LATER)


def test_an_interrupt_takes_it_back_at_once(host):
    before = state(host)
    trial = Trial(host, 3600)
    trial.process.send_signal(signal.SIGINT)
    assert trial.end()[0] == 1
    assert state(host) == before


def test_the_end_of_the_command_does_not_end_the_trial_or_keep_it(host):
    before = state(host)
    trial = Trial(host, 3600)
    pid = trial.pid
    assert is_on_trial(host)
    trial.process.kill()  # the connection is lost
    trial.process.wait(PATIENCE)
    assert is_on_trial(host)
    os.kill(pid, signal.SIGTERM)  # instead of waiting for the deadline
    host.wait("the trial has ended", lambda: has_ended(pid))
    assert state(host) == before


def test_after_the_process_of_the_trial_was_killed_the_next_pass_goes_back(host):
    before = state(host)
    trial = Trial(host, 3600)
    os.kill(trial.pid, signal.SIGKILL)
    assert trial.end()[0] == 1
    note = "a trial was interrupted: the next pass returns to the earlier document"
    assert note in host.status()[1]["notes"]
    assert host.neuca("apply").code == 0
    assert state(host)[1:3] == before[1:3] or host.link("eth1") is None
    assert host.addresses("eth2") == {"10.2.0.1/24"}
    assert not (host.folder / "state/trial.json").exists()


def recorded_names(host):
    record = json.loads((host.folder / "state/record.json").read_text())
    return {mac_: nic["name"] for mac_, nic in record["nics"].items()}


def test_a_trial_after_a_killed_one_keeps_the_names_from_before_both(host):
    before = recorded_names(host)
    for is_killed in (True, False):
        trial = Trial(host, 3600)
        os.kill(trial.pid, signal.SIGKILL if is_killed else signal.SIGTERM)
        assert trial.end()[0] == 1
        (host.folder / "later").write_text(LATER.replace("1300", "1310"))
    assert host.neuca("apply").code == 0
    assert recorded_names(host) == before


@pytest.mark.parametrize("undo", [False, True])
def test_plan_shows_the_names_to_which_the_pass_after_a_killed_trial_returns(host, undo):
    if undo:
        assert host.neuca("release", mac(2)).code == 0
    trial = Trial(host, 3600)
    os.kill(trial.pid, signal.SIGKILL)
    trial.end()
    words, status = ("release", "--undo", mac(2)) if undo else ("apply",), host.status()[1]
    plan, done = host.neuca(*words, "--dry-run", "--json"), host.neuca(*words, "--json")
    assert plan.json.get("problems", []) == done.json["problems"]
    assert sorted(each["text"] for each in plan.json["operations"]) == sorted(done.json["changed"])
    assert plan.code == done.code
    names = {nic["mac"]: nic["desired_name"] for nic in status["interfaces"]}
    assert names[mac(1)] == "eth1"


EDIT = """
import json, sys; from pathlib import Path; from neuca_tools.state.store import save_state
data = json.load(sys.stdin); data.pop("crc32"); data.update(json.loads(sys.argv[2]))
save_state(Path(sys.argv[1]), "trial.json", data, 0o644)
"""


def kill_with_reused_id(host, **changes):
    """Kill a trial; another process has its ID from then on."""
    trial = Trial(host, 3600)
    os.kill(trial.pid, signal.SIGKILL)
    trial.end()
    edit_trial(host, **changes)


def edit_trial(host, **changes):
    path = host.folder / "state/trial.json"
    data = json.loads(path.read_text())
    pid, began = os.getpid(), data["process"].partition(" ")[2]
    changes = {"pid": pid, "process": f"{pid} {began}", **changes}
    host.run(sys.executable, "-c", EDIT, path.parent, json.dumps(changes), text=json.dumps(data))


def test_no_step_recovers_from_a_trial_during_another_pass(host):
    host.configure("[runtime]\ncommand-timeout = 1")
    path = host.folder / "state/record.json"
    kill_with_reused_id(host)
    before = path.read_bytes()
    with (host.folder / "run/lock").open("w") as lock:
        fcntl.lockf(lock, fcntl.LOCK_EX)
        done = host.command("neucad", "--names", "--config", host.config_file)
    assert "another pass has held it for 1 s, ignoring" in done.err
    assert path.read_bytes() == before
    assert host.neuca("apply").code == 0


@pytest.mark.parametrize("changes", [{"boot_id": "another"}, {}], ids=["boot", "reused"])
def test_after_a_trial_was_killed_names_are_those_from_before(host, changes):
    before = json.loads((host.folder / "state/record.json").read_text())
    kill_with_reused_id(host, **changes)
    host.command("neucad", "--names", "--config", host.config_file)
    assert host.neuca("apply").code == 0
    after = json.loads((host.folder / "state/record.json").read_text())
    assert {mac_: nic["name"] for mac_, nic in after["nics"].items()} == {
        mac_: nic["name"] for mac_, nic in before["nics"].items()
    }
    assert not (host.folder / "state/trial.json").exists()
    assert host.link("eth1")


@pytest.mark.parametrize("changes", [{"boot_id": "another"}, {}], ids=["boot", "reused"])
@pytest.mark.parametrize("number", [1, 2])
def test_a_nic_that_is_released_after_a_killed_trial_stays_so(host, number, changes):
    kill_with_reused_id(host)
    assert host.neuca("release", mac(number)).code == 0
    edit_trial(host, **changes)
    host.command("neucad", "--names", "--config", host.config_file)
    # A next hop of the document is on the second NIC.
    assert host.neuca("apply").code == {1: 0, 2: 4}[number]
    assert host.role(mac(number)) == "ignored"
    assert {one for name in ("eth1", "renamed", "eth2") for one in host.addresses(name)} == {
        f"10.{3 - number}.0.1/24"
    }
    assert recorded_names(host)[mac(3 - number)] == f"eth{3 - number}"


@pytest.mark.parametrize("changes", [{"boot_id": "another"}, {}], ids=["boot", "reused"])
def test_a_nic_that_is_vouched_for_after_a_killed_trial_stays_so(host, changes):
    record = host.folder / "state/record.json"
    kill_with_reused_id(host)
    host.veth("other", 7)
    assert host.neuca("trust", "other").code == 0
    edit_trial(host, **changes)
    host.command("neucad", "--names", "--config", host.config_file)
    assert json.loads(record.read_text())["nics"][mac(7)]["role"] == "management"
    assert host.neuca("apply").code == 0


@pytest.mark.parametrize(
    "damage",
    [{"changed": 5}, {"record": {"nics": [1]}}, {"names": "x"}, {"pid": "1"}, {"process": 1}],
)
def test_an_unusable_file_of_a_trial_is_one_line_and_does_not_stop_the_agent(host, damage):
    path = host.folder / "state/trial.json"
    path.write_text(json.dumps({"version": 1, **damage}))
    for option in ("--names", "--once"):
        done = host.command("neucad", option, "--config", host.config_file)
        (line,) = [line for line in done.err.splitlines() if "trial" in line]
        assert line.startswith(f'neuca: read "{path}": it is not what neucad wrote: {min(damage)}')
        assert line.endswith(", ignoring")
        assert done.code == 0, done
    assert not path.exists()


def test_without_an_earlier_document_everything_is_given_back(lab):
    lab.management()
    lab.veth("eth1", 1)
    (lab.folder / "later").write_text(LATER)
    lab.document("")
    links = lab.look("link")
    assert Trial(lab, 1).end()[0] == 1
    assert [(one["ifname"], one["mtu"]) for one in lab.look("link")] == [
        (one["ifname"], one["mtu"]) for one in links
    ]
    assert lab.addresses("eth1") == set()
    assert not (lab.folder / "state/record.json").exists()


def test_the_seconds_of_a_trial_begin_after_its_pass(host):
    """The pass takes all of them. A second of the wait is a minute here: a confirmation takes some."""
    slow = (
        "import signal, time; from neuca_tools.apply.transaction import Transaction as T;"
        " run, wait = T.run, signal.sigtimedwait;"
        " T.run = lambda self: (run(self), time.sleep(2))[0];"
        f" signal.sigtimedwait = lambda numbers, seconds: wait(numbers, 60 * seconds); {MAIN}"
    )
    trial = Trial(host, 2, main=slow)
    assert host.neuca("confirm").out == "kept\n"
    code, said = trial.end()
    assert (code, said[-1]) == (0, "confirmed: the document is now the active one")
    assert host.once(LATER).code == 0


def test_a_defect_takes_the_trial_back_and_says_so_on_one_line(host):
    before = state(host)
    # The library fails in the middle of the trial in a way that nothing expects.
    broken = f"import signal; signal.sigtimedwait = lambda *_: 1 // 0; {MAIN}"
    code, said = Trial(host, 3600, main=broken).end()
    assert code == 1
    (line,) = said
    assert line.startswith("neuca: apply --try: rolled back because of a bug: ZeroDivisionError")
    assert state(host) == before
    assert not (host.folder / "state/trial.json").exists()


def test_a_trial_that_cannot_be_reported_is_taken_back(host):
    before = state(host)
    report = host.folder / "run" / "last-pass.json"
    report.unlink()
    report.mkdir()
    trial = Trial(host, 3600)
    assert trial.end()[0] == 1
    assert trial.lines[-1].startswith(f'neuca: write "{report}"')
    assert state(host) == before
    report.rmdir()


@pytest.mark.parametrize("seconds", ["0", "3601", "x", "-5", "nan"])
def test_the_length_of_a_trial_has_bounds(host, seconds):
    done = host.neuca("apply", "--try", seconds)
    assert (done.code, done.err.splitlines()[-1]) == (
        2, f'neuca: argument --try: "{seconds}" is not a number of seconds from 1 to 3600')  # fmt: skip


def test_a_trial_that_cannot_be_taken_back_whole_leaves_the_original_values_known(host):
    queue = f"[interface {mac(2)}]\ntxqueuelen = 555\n"
    assert host.once(queue).code == 0
    trial = Trial(host, 3600)
    host.run("mount", "--bind", host.folder / "udev", host.folder / "udev")
    host.run("mount", "-o", "remount,bind,ro", host.folder / "udev")
    trial.process.send_signal(signal.SIGINT)
    code, said = trial.end()
    host.run("umount", "-l", host.folder / "udev")
    assert (code, "not everything could be rolled back" in said[-1]) == (1, True)
    assert host.link("eth2")["txqlen"] == 555
    assert host.once(LATER).code == 0
    assert host.link("eth2")["txqlen"] == 1000


def test_a_trial_after_a_killed_pass_returns_to_what_it_found(host):
    killed = "import os; from neuca_tools.apply.host import Host\nHost.remove_journal = lambda _: os.kill(os.getpid(), 9)\n"
    host.document(f"{EARLIER}[interface {mac(2)}]\ntxqueuelen = 555\n")
    words = ["apply", "--config", str(host.config_file)]
    command = [*host.guest.enter, sys.executable, "-c", killed + MAIN, *words]
    host.foreign.remember()
    assert subprocess.run(command, env=host.environment, check=False).returncode == -9
    assert (host.folder / "state/journal.json").exists()
    before = state(host)
    assert Trial(host, 1).end()[0] == 1
    assert (state(host), host.link("eth2")["txqlen"]) == (before, 555)
    assert host.once().code == 0  # it completes the killed pass


def test_a_trial_that_deletes_a_link_on_a_nic_that_nothing_else_is_asked_of_is_taken_back(host):
    host.foreign.may_make("vx0")
    vxlan = f"[vxlan vx0]\nid = 6\nparent = {mac(2)}\naddresses = 10.42.0.2/16\n"
    assert host.once(vxlan).code == 0
    trial = Trial(host, 3600)
    assert host.link("vx0") is None
    trial.process.send_signal(signal.SIGINT)
    assert trial.end() == (1, ["not confirmed: rolled back to the previous configuration"])
    assert host.addresses("vx0") == {"10.42.0.2/16"}
    assert host.once().code == 0  # it records the index of the new link


def test_a_confirmed_document_with_a_fault_ends_with_its_exit_status(host):
    (host.folder / "later").write_text(LATER.replace("mtu = 1300", "mtu = many"))
    trial = Trial(host, 3600)
    assert (host.neuca("confirm").code, trial.end()[0]) == (0, 78)
    host.once(LATER)


def test_a_trial_of_what_is_in_force_already_ends_at_once(host):
    """The same document, and everything as it requests; drift is tried."""
    done = host.neuca("apply", "--try", 60)
    assert (done.code, done.out) == (0, "ok: nothing to do\n")
    assert not (host.folder / "state/trial.json").exists()
    host.ip("link set eth2 mtu 1280")
    trial = Trial(host, 60, source="")
    assert host.neuca("confirm").code == 0
    assert trial.end()[0] == 0
    assert host.link("eth2")["mtu"] == 1400
