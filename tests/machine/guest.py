"""One guest for a test: boot it, run commands in it, reboot it, pull its plug, move its NICs about, give it a document."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import base64
import json
import re
import select
import shutil
import socket
import subprocess
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import images
from cloud import Cloud
from qemu import GuestError, Machine, Nic

JOURNAL = "journalctl -b --no-pager -o short-monotonic || cat /var/log/syslog /var/log/neuca/*"
BOOT_PATIENCE = 1800.0  # seconds: an emulated processor that others use too
MANAGEMENT = "52:54:00:00:00:01"


def mac(number: int) -> str:
    """The MAC of the dataplane NIC with this number."""
    return f"fe:16:3e:00:00:{number:02x}"


def nics(count: int, management_slot: int = 0x10) -> list[Nic]:
    """The management NIC, and so many dataplane NICs in the slots after it."""
    data = [Nic(mac(number), management_slot + number) for number in range(1, count + 1)]
    return [Nic(MANAGEMENT, management_slot, management=True), *data]


def iso9660(folder: Path, label: str) -> Path:
    """An image of what is in a folder, beside it."""
    image = folder.with_suffix(".iso")
    command = ["xorrisofs", "-quiet", "-J", "-r", "-V", label, "-o", image, folder]
    subprocess.run(command, check=True, timeout=60)
    return image


class Done(NamedTuple):
    """A command's exit code (124: it was killed at the end of its time), and its output and errors as they came."""

    code: int
    output: str

    @property
    def json(self):
        return json.loads(self.output)


class Guest:
    """A disk of its own on top of an image or of another guest's disk; at most one QEMU runs on it."""

    def __init__(self, image: images.Image, folder: Path, nics: Sequence[Nic], *, processors: int = 1, memory: int = 1024,
                 disk: Path | None = None, arguments: str = "", counted: bool = False) -> None:  # fmt: skip
        self.image, self.folder, self.nics = image, folder, list(nics)
        self.arguments = arguments  # of the kernel, after the image's own
        self.processors, self.memory, self.counted = processors, memory, counted
        self.cloud = Cloud("")
        self.cloud.mode = "off"
        self.boot_id = ""
        self.booted_in = 0.0  # seconds, of the last boot
        self.console, self.disk = folder / "console", folder / "disk.qcow2"
        self._machine: Machine | None = None
        self._received, self._requests = b"", 0
        folder.mkdir(parents=True)
        below, form = (disk, "qcow2") if disk else (image.disk, "raw")
        subprocess.run(
            ["qemu-img", "create", "-q", "-f", "qcow2", "-b", below, "-F", form, self.disk],
            check=True,
            timeout=60,
        )

    # --- on and off ---

    def power_on(self) -> None:
        """Start the machine, and wait for nothing."""
        self._received = b""
        self._machine = Machine(
            self.image,
            self.disk,
            self.nics,
            self.console,
            self.cloud.port,
            self.processors,
            self.memory,
            self.arguments,
            self.counted,
        )

    def boot(self, patience: float = BOOT_PATIENCE) -> None:
        """Start the machine, until its agent speaks."""
        self.power_on()
        self.wait_for_boot(patience)

    def wait_for_boot(self, patience: float = BOOT_PATIENCE) -> None:
        """Until the agent of another boot than the last one speaks."""
        before, began = self.boot_id, time.monotonic()
        while self.boot_id == before:
            hello = self._message(began + patience, "boot").get("hello")
            self.boot_id = hello or self.boot_id
        self.booted_in = time.monotonic() - began

    def reboot(self, patience: float = BOOT_PATIENCE) -> None:
        """As its user would. That it did is proven by another boot id."""
        self.run("(sleep 0.2; reboot) > /dev/null 2>&1 &")
        self.wait_for_boot(patience)

    def shut_down(self, patience: float = BOOT_PATIENCE) -> None:
        """As its user would."""
        self.run("(sleep 0.2; poweroff) > /dev/null 2>&1 &")
        self._machine.wait(patience)
        self._machine = None

    def power_cut(self) -> None:
        """No warning, no sync."""
        if self._machine:
            self._machine.kill()
        self._machine = None

    def permute(self, slots: Sequence[int]) -> None:
        """Give the NICs these slots, in their order; the machine is off."""
        assert self._machine is None, "slots change while the machine is off"
        self.nics = [replace(nic, slot=slot) for nic, slot in zip(self.nics, slots, strict=True)]

    def save(self, name: str) -> None:
        """Save the state of the machine on its disk, for `-loadvm`."""
        said = self._machine.execute("human-monitor-command", **{"command-line": f"savevm {name}"})
        assert not said, f"savevm: {said}"

    def close(self) -> None:
        self.power_cut()
        self.cloud.close()

    def forget(self) -> None:
        """A test that passed leaves no disk behind."""
        shutil.rmtree(self.folder, ignore_errors=True)

    # --- NICs while it runs ---

    def plug(self, nic: Nic) -> None:
        options = dict(word.split("=", 1) for word in nic.netdev().split(",")[1:])
        assert nic.nowhere, "only a cable to nowhere can be plugged in while the machine runs"
        self._machine.execute("netdev_add", type="hubport", id=nic.id, hubid=int(options["hubid"]))
        self._machine.execute("device_add", **nic.device())
        self.nics.append(nic)

    def plug_pair(self, standby: Nic, bus: str, driver: str) -> None:
        """A NIC with the MAC of one that stands by for it; QEMU adds it once the guest's driver knows of failover."""
        self._machine.execute("netdev_add", type="hubport", id="pair", hubid=0xFFFF)
        self._machine.execute(
            "device_add", driver=driver, id="dev-pair", netdev="pair", mac=standby.mac, bus=bus,
            failover_pair_id=f"dev-{standby.id}", romfile="",
        )  # fmt: skip

    def unplug(self, mac: str) -> None:
        """Until the guest has let go of it."""
        nic = next(nic for nic in self.nics if nic.mac == mac)
        self._machine.execute("device_del", id=f"dev-{nic.id}")
        self._machine.wait_for("DEVICE_DELETED", device=f"dev-{nic.id}")
        self._machine.execute("netdev_del", id=nic.id)
        self.nics.remove(nic)

    def equip(self, *words: str) -> None:
        """More words for QEMU, from the next start of the machine on."""
        recipe = replace(self.image.recipe, machine=(*self.image.recipe.machine, *words))
        self.image = replace(self.image, recipe=recipe)

    def insert(
        self, folder: Path, label: str, kind: str = "vfat", name: str = "volume", slot: str = "0x1e"
    ) -> None:
        """A volume of this label, of what is in a folder: FAT, that QEMU makes, on a virtio disk or a stick (`usb`, where
        the machine was equipped with a controller), or `iso9660`: a CD-ROM, as nova has it.

        It stays over reboots, and goes with the machine. Its slots are behind that of the root disk, which stays /dev/vda then.
        """
        if kind == "iso9660":
            image = iso9660(folder, label)
            words = {"driver": "raw", "file": {"driver": "file", "filename": str(image)}}
            self._machine.execute("device_add", driver="virtio-scsi-pci", id="scsi", addr="0x1d")
            place = {"driver": "scsi-cd", "bus": "scsi.0"}
        else:
            words = {"driver": "vvfat", "dir": str(folder), "label": label}
            place = {"driver": "virtio-blk-pci", "addr": slot}
        if kind == "usb":
            place = {"driver": "usb-storage"}
        self._machine.execute("blockdev-add", **{"node-name": name, "read-only": True, **words})
        self._machine.execute("device_add", id=f"dev-{name}", drive=name, **place)

    def reachable(self, patience: float = BOOT_PATIENCE) -> bool:
        """Whether its management address answers, from outside, with the id of this boot."""
        deadline = time.monotonic() + patience
        while time.monotonic() < deadline:
            try:
                with socket.create_connection(("127.0.0.1", self._machine.port), 5) as connection:
                    if connection.recv(64).decode().strip() == self.boot_id:
                        return True
            except OSError:
                pass
            select.select([], [], [], 0.5)  # no descriptor tells when an address answers
        return False

    # --- what its metadata service says ---

    def serve(self, document: str | None) -> None:
        """This user-data from now on; None: the service is switched off."""
        self.cloud.mode = "off" if document is None else "ok"
        self.cloud.document = document or ""

    # --- commands ---

    def run(self, command: str, timeout: float = 300.0, data: bytes = b"") -> Done:
        """A bash command as root, with `data` on its standard input."""
        self._requests += 1
        request = {
            "id": self._requests,
            "command": command,
            "timeout": timeout,
            "input": base64.b64encode(data).decode(),
        }
        self._machine.agent.settimeout(timeout + 60)
        self._machine.agent.sendall(json.dumps(request).encode() + b"\n")
        deadline = time.monotonic() + timeout + 60
        while True:
            message = self._message(deadline, f"answer of: {command}")
            if message.get("id") == self._requests:
                return Done(
                    message["code"], base64.b64decode(message["output"]).decode(errors="replace")
                )

    def check(self, command: str, timeout: float = 300.0, data: bytes = b"") -> str:
        """The output of a command that must succeed."""
        done = self.run(command, timeout, data)
        assert done.code == 0, f"{command}: ended with {done.code}\n{done.output}"
        return done.output

    def put(self, path: str, data: bytes | str) -> None:
        """Write a file."""
        data = data.encode() if isinstance(data, str) else data
        self.check(f'mkdir -p "$(dirname {path})" && cat > {path}', 600, data)

    def eventually(
        self, command: str, wanted: Callable[[Done], bool], patience: float = BOOT_PATIENCE
    ) -> Done:
        """The first outcome of a command that fits; asked again and again, for what a guest has no descriptor to tell."""
        deadline = time.monotonic() + patience
        while True:
            began = time.monotonic()
            done = self.run(command)
            if wanted(done):
                return done
            assert time.monotonic() < deadline, (
                f"{command}: not as it should be after {patience:g} s\n{done.output}"
            )
            # Who asks leaves the guest's one processor to what is asked about for twice as long.
            select.select([], [], [], max(0.5, 2 * (time.monotonic() - began)))

    def _message(self, deadline: float, waiting_for: str) -> dict:
        """The next whole line of the agent that is one; what a power cut left of another is passed over."""
        while True:
            line, whole, rest = self._received.partition(b"\n")
            if whole:
                self._received = rest
                try:
                    return json.loads(line)
                except ValueError:
                    continue
            remaining = deadline - time.monotonic()
            if remaining <= 0 or not select.select([self._machine.agent], [], [], remaining)[0]:
                raise GuestError(f"no {waiting_for} in its time\n{self.tail()}")
            piece = self._machine.agent.recv(1 << 16)
            if not piece:
                raise GuestError(f"QEMU has gone: {self._machine.words()}")
            self._received += piece

    # --- evidence ---

    def tail(self, lines: int = 40) -> str:
        """The end of its console."""
        text = self.console.read_text(errors="replace") if self.console.exists() else ""
        return "\n".join(text.splitlines()[-lines:])

    def evidence(self, kept: Path) -> dict[str, str]:
        """What to print when a test fails, title to text. Console, journal and status stay whole in the folder `kept`."""
        kept.mkdir(parents=True, exist_ok=True)
        try:
            (kept / "journal").write_text(self.run(JOURNAL).output)
            (kept / "status").write_text(self.run("neuca status; ip -br link; ip -br addr").output)
        except (GuestError, OSError, AttributeError) as error:
            (kept / "status").write_text(f"not to be had: {error!r}"[:300])
        for path in (self.console, self.console.with_name("qemu")):
            if path.exists():
                shutil.copy(path, kept)
        found = {
            f"{path}": path.read_text(errors="replace").splitlines()
            for path in sorted(kept.iterdir())
        }
        ours = re.compile("neuca|rename")
        return {
            f"{self.image.recipe.name}: {path}": "\n".join(
                [line for line in lines if not path.endswith("journal") or ours.search(line)][-40:]
            )
            for path, lines in found.items()
        }
