"""A state directory that takes nothing: what NICs lack is added all the same, status says why, and it is made up for."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import json

import pytest
from lab import mac

ONE = f"[interface {mac(1)}]\nname = data1\naddresses = 172.16.1.1/24\n"
TWO = f"[interface {mac(1)}]\nname = data1\naddresses = 172.16.1.2/24\n"
WORDS = {"full": "No space left on device", "read-only": "Read-only file system"}
HOW = ["full", pytest.param("read-only", marks=pytest.mark.long)]


class Disk:
    """A small file system of its own under a directory of the agent, in the guest alone."""

    def __init__(self, lab, name="state"):
        self._lab, self.place = lab, lab.folder / name
        self.place.mkdir(exist_ok=True)
        lab.run("mount", "-t", "tmpfs", "-o", "size=1m,mode=755", name, self.place)

    def spoil(self, how):
        """Make it take nothing any more."""
        if how == "full":
            self._lab.run("sh", "-c", f"head -c 4m /dev/zero > {self.place}/ballast", check=False)
        else:
            self._lab.remount(self.place, "ro")

    def mend(self, how):
        """Let it take something again."""
        if how == "full":
            self._lab.run("rm", self.place / "ballast")
        else:
            self._lab.remount(self.place, "rw")

    def files(self):
        return set(self._lab.run("ls", self.place).out.split())

    def json(self, name):
        return json.loads(self._lab.run("cat", self.place / name).out)

    def stamps(self):
        """What tells a write."""
        places = (self.place, self._lab.folder / "run" / "unsaved")
        return self._lab.run("find", *places, "-type", "f", "-printf", "%p %i %T@\\n").out


@pytest.fixture
def disk(lab):
    return Disk(lab)


def reasons(lab, how, name):
    """The exit code of status, and its lines that give a reason, as text and as JSON."""
    code, data = lab.status()
    text = lab.neuca("status").out.splitlines()
    why = f'write "{lab.folder}/state/{name}": {WORDS[how]}'
    assert (code, data["state"], data["unsaved"]) == (4, "degraded", why)
    assert text[0].startswith("degraded: ")
    assert f"degraded: not saved: {why}" in text[:3]
    return data


@pytest.mark.parametrize("how", WORDS)
def test_a_first_boot_on_a_full_disk_gets_its_dataplane_and_reports_degraded(lab, disk, how):
    lab.veth("dp1", 1)
    disk.spoil(how)
    done = lab.once(ONE)
    assert done.code == 4
    assert done.err.splitlines()[-1] == "add the address 172.16.1.1/24 to data1"
    assert lab.addresses("data1") == {"172.16.1.1/24"}
    reasons(lab, how, "document.json")
    before = disk.stamps()
    assert lab.once().code == 4
    assert disk.stamps() == before
    disk.mend(how)
    assert lab.once().code == 0
    assert {"record.json", "document.json", "machine.json"} <= disk.files()
    assert disk.json("record.json")["owned"]["addresses"] == [[mac(1), "172.16.1.1/24"]]
    assert not list((lab.folder / "run" / "unsaved").iterdir())
    assert (lab.status()[0], lab.status()[1]["unsaved"]) == (0, None)


@pytest.mark.parametrize("how", HOW)
def test_a_reboot_on_a_full_disk_brings_up_the_last_good_document(lab, disk, how):
    lab.veth("dp1", 1)
    assert lab.once(ONE).code == 0
    disk.spoil(how)
    lab.ip("link set data1 down")
    lab.ip("address flush dev data1")
    lab.ip("link set data1 name eth7")
    assert lab.command("neucad", "--names", "--config", lab.config_file).code == 0
    assert lab.link("data1")
    assert lab.once().code == 0
    assert lab.addresses("data1") == {"172.16.1.1/24"}
    disk.mend(how)


@pytest.mark.parametrize("how", HOW)
def test_names_are_given_where_rules_and_marks_cannot_be_written_either(lab, disk, how):
    lab.veth("dp1", 1)
    lab.veth("dp2", 2)
    both = f"{ONE}[interface {mac(2)}]\nname = data2\n"
    assert lab.once(ONE).code == 0
    disk.spoil(how)
    etc = Disk(lab, "udev")
    etc.spoil(how)
    lab.ip("link set data1 down")
    lab.ip("link set data1 name eth7")
    assert lab.command("neucad", "--names", "--config", lab.config_file).code == 0
    assert lab.link("data1")
    assert lab.once(both).code == 4
    assert lab.link("data2")
    code, data = lab.status()
    assert (code, data["state"]) == (4, "degraded")
    assert data["unsaved"].endswith(WORDS[how])
    texts = [one["text"] for one in data["problems"] if one["code"] == "unsaved"]
    assert texts
    assert [text for text in texts if not text.endswith(WORDS[how])] == []
    etc.mend(how)
    disk.mend(how)
    assert lab.once().code == 0


@pytest.mark.parametrize("how", HOW)
def test_what_a_nic_would_lose_stays_until_there_is_room(lab, disk, how):
    lab.veth("dp1", 1)
    assert lab.once(ONE).code == 0
    disk.spoil(how)
    assert lab.once(TWO).code == 4
    assert lab.addresses("data1") == {"172.16.1.1/24", "172.16.1.2/24"}
    data = reasons(lab, how, "document.json")
    waits = "waits for room: delete the address 172.16.1.1/24 from data1"
    assert {"code": "unsaved", "text": waits} in data["problems"]
    assert lab.neuca("plan").out == f"nothing to do\nnot done: {waits}\n"
    assert lab.neuca("apply").out == f"not done: {waits}\ndegraded: nothing to do, 1 not done\n"
    disk.mend(how)
    assert lab.once().code == 0
    assert lab.addresses("data1") == {"172.16.1.2/24"}


@pytest.mark.parametrize("how", HOW)
def test_the_daemon_saves_everything_at_its_next_look_once_there_is_room(lab, disk, how):
    lab.veth("dp1", 1)
    lab.document(ONE)
    daemon = lab.start()
    lab.wait("the first document is in force", lambda: lab.status()[0] == 0)
    disk.spoil(how)
    lab.document(TWO)
    both = {"172.16.1.1/24", "172.16.1.2/24"}
    lab.wait("what is new is added", lambda: lab.addresses("data1") == both)
    lab.wait("status says why", lambda: lab.status()[1]["unsaved"])
    disk.mend(how)
    lab.wait("the old one goes", lambda: lab.addresses("data1") == {"172.16.1.2/24"})
    lab.wait("all is well", lambda: lab.status()[0] == 0 and "journal.json" not in disk.files())
    assert disk.json("record.json")["owned"]["addresses"] == [[mac(1), "172.16.1.2/24"]]
    assert daemon.stop() == 0


def test_a_pass_that_dies_without_room_is_gone_on_with(lab, disk):
    """The copy in the run directory counts, and is the newer one whenever a write is interrupted."""
    lab.veth("dp1", 1)
    assert lab.once(ONE).code == 0
    disk.spoil("full")
    assert lab.once(TWO).code == 4
    spare = lab.folder / "run" / "unsaved" / "record.json"
    assert [mac(1), "172.16.1.2/24"] in json.loads(spare.read_text())["owned"]["addresses"]
    assert lab.once(f"[interface {mac(1)}]\nname = data1\n").code == 4
    disk.mend("full")
    assert lab.once().code == 0
    assert lab.addresses("data1") == set()


@pytest.mark.parametrize("how", HOW)
def test_tuning_is_degraded_until_its_original_values_are_saved(lab, disk, how):
    lab.veth("dp1", 1)
    assert lab.once(ONE).code == 0
    disk.spoil(how)
    lab.document(f"{ONE}mtu = 1400\n")
    done = lab.neuca("tune", "apply")
    why = f'write "{lab.folder}/state/record.json": {WORDS[how]}'
    assert (done.code, done.out) == (4, "1 setting changed\n")
    assert done.err.splitlines()[-1] == f"neuca: not saved: {why}"
    disk.mend(how)
    assert lab.neuca("tune", "apply").code == 0
    assert lab.status()[1]["unsaved"] is None
    assert lab.once().code == 0


@pytest.mark.parametrize("how", HOW)
def test_a_nic_is_not_released_while_that_cannot_be_remembered(lab, disk, how):
    lab.veth("dp1", 1)
    assert lab.once(ONE).code == 0
    disk.spoil(how)
    done = lab.neuca("release", "data1")
    assert done.code == 1
    assert done.err.endswith(f"{WORDS[how]}\n")
    assert lab.addresses("data1") == {"172.16.1.1/24"}
    disk.mend(how)


def test_a_nic_whose_files_cannot_be_removed_is_released(lab):
    lab.veth("dp1", 1)
    etc = Disk(lab, "udev")
    assert lab.once(ONE).code == 0
    etc.spoil("read-only")
    done = lab.neuca("release", "data1")
    assert (done.code, lab.role(mac(1)), lab.addresses("data1")) == (1, "ignored", set())
    assert done.out.startswith("data1 is released and ignored; ")
    assert done.err.endswith(f"{WORDS['read-only']}\n")
    etc.mend("read-only")
    assert lab.once().code == 0


def test_names_are_given_though_another_machines_state_cannot_be_set_aside(lab, disk):
    """The instance id of a seed tells that this is a clone, on a disk that is full."""
    lab.veth("dp1", 1)
    assert lab.once(ONE).code == 0
    seed(lab, "i-1")
    lab.configure(sources=f"nocloud={lab.folder}/seed")
    assert lab.once().code == 0
    seed(lab, "i-2")
    disk.spoil("full")
    lab.ip("link set data1 down")
    lab.ip("link set data1 name eth7")
    done = lab.command("neucad", "--names", "--config", lab.config_file)
    assert done.code == 1
    assert WORDS["full"] in done.err
    assert "Traceback" not in done.err
    assert lab.link("data1")
    done = lab.once()
    assert done.code == 1
    assert lab.status()[1]["unsaved"].endswith(WORDS["full"])
    disk.mend("full")
    assert lab.once().code == 0
    assert "set-aside" in disk.files()


def seed(lab, instance):
    place = lab.folder / "seed"
    place.mkdir(exist_ok=True)
    (place / "meta-data").write_text(f"instance-id: {instance}\n")
    (place / "user-data").write_text(ONE)


SCRIPT = ONE + "[scripts]\nbootscript = #!/bin/sh\n    echo ran >> {}/ran\n"


@pytest.mark.parametrize("how", HOW)
def test_a_script_runs_once_and_not_before_its_mark_can_be_kept(lab, disk, how):
    lab.veth("dp1", 1)
    lab.configure("[guest]\nscripts = yes")
    disk.spoil(how)
    assert lab.once(SCRIPT.format(lab.folder)).code == 4
    guest = ("neucad", "--guest", "--config", lab.config_file)
    for _ in range(2):
        assert lab.command(*guest).code == 1
        assert not (lab.folder / "ran").exists()
    problems = [one["text"] for one in lab.status()[1]["problems"]]
    assert any(one.startswith("scripts: ") and one.endswith(WORDS[how]) for one in problems)
    disk.mend(how)
    for _ in range(2):
        assert lab.once().code == 0
        assert lab.command(*guest).code == 0
    assert (lab.folder / "ran").read_text() == "ran\n"


def test_a_full_run_directory_keeps_no_document_and_no_nic_out(lab):
    run = Disk(lab, "run")
    lab.veth("dp1", 1)
    lab.document(ONE)
    daemon = lab.start()
    lab.wait("the first document", lambda: lab.addresses("data1") == {"172.16.1.1/24"})
    lab.wait("it is reported", lambda: lab.status()[0] == 0)
    run.spoil("full")
    lab.document(TWO + f"[interface {mac(2)}]\naddresses = 172.16.2.1/24\n")
    lab.wait("the new document", lambda: lab.addresses("data1") == {"172.16.1.2/24"}, 30)
    lab.veth("dp2", 2)
    lab.wait("the NIC is configured", lambda: lab.addresses("dp2") == {"172.16.2.1/24"}, 30)
    code, data = lab.status()
    assert (code, data["state"]) == (4, "degraded"), daemon.log()
    assert data["unsaved"] == f'write "{run.place}/last-pass.json": No space left on device'
    assert lab.neuca("apply").code == 4
    run.mend("full")
    lab.wait("the daemon saves the report", lambda: lab.status()[1]["unsaved"] is None, 30)
    assert lab.neuca("apply").code == 0
    assert lab.status()[1]["unsaved"] is None
    assert daemon.stop() == 0
    lab.run("umount", run.place)
    lab.applied = False  # the run directory is another one now


def test_files_in_read_only_directories_are_one_line_with_the_reason(lab):
    lab.configure("[linux]\nmanagers = none")
    for number in (1, 2):
        lab.veth(f"dp{number}", number)
    disks = [Disk(lab, name) for name in ("udev", "nm", "networkd", "sysctl")]
    for one in disks:
        one.spoil("read-only")
    both = f"{ONE}[interface {mac(2)}]\nname = data2\naddresses = 172.16.2.1/24\n"
    done = lab.once(both)
    assert done.code == 4, done
    assert lab.addresses("data1")
    assert lab.addresses("data2")
    lines = [line for line in (done.out + done.err).splitlines() if "Read-only" in line]
    text = lab.neuca("status").out
    assert "drift" not in text
    assert "not saved" not in text
    (line,) = [line for line in text.splitlines() if "Read-only" in line]
    assert line.startswith("!! unsaved: ")
    assert line.endswith(": Read-only file system")
    assert f' files cannot be written, "{lab.folder}/' in line
    assert line.count('"') == 2
    assert len(lines) == 2, lines  # in the journal, and in the summary
    for one in disks:
        one.mend("read-only")
    assert lab.once().code == 0
