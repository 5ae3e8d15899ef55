"""One QEMU process: its command line, its control channel (QMP) and its end. No root, no bridge, no privileged port."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import functools
import json
import os
import select
import shlex
import socket
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path

import images

RELAY = Path(__file__).with_name("relay.py")
PROGRAM = "qemu-system-x86_64"
PROBE_PATIENCE = (
    10.0  # seconds to the kernel's first lines: a fraction of one where the processor helps
)
PATIENCE = 300.0  # seconds for a word over QMP, or for a killed process to end
# A processor of 500 million instructions a second, whose clock counts them and leaps over every wait: how busy this machine is
# changes nothing but how long a guest takes. (Two such processors do not get through a boot in five minutes.)
COUNTED = ("-accel", "tcg,thread=single", "-icount", "shift=1,sleep=off,align=off", "-cpu", "max")
# Without these guards an emulated boot takes a quarter less of the processor; no test is about them. What is counted has them.
CHEAP = "mitigations=off init_on_alloc=0"
# A kernel that counts too few timer interrupts in its first moments panics; on a busy machine QEMU may deliver too few.
UNCOUNTED = "no_timer_check"
SERVICE_NET = "net={0}.0/24,host={0}.2,dns={0}.3,dhcpstart={0}.16"


class GuestError(Exception):
    """A guest did not do what it was told, in its time."""


@dataclass(frozen=True)
class Nic:
    """One NIC. `link`: None for a cable to nowhere, else one end of `link()`; `slot`: of the PCI bus.

    `dhcp`: its cable leads to a DHCP server of QEMU's own, in a network of its own, which offers an address and a default route;
    with `ipv6`, to its router advertisements as well, which have the prefix fd00:99:N::/64.
    `service`: the address of the metadata service, for the management NIC, whose network is around it.
    `failover`: a paravirtual NIC that stands by for another one with its MAC; guests have a driver of `vmxnet3` for that one.
    """

    mac: str
    slot: int
    management: bool = False
    link: socket.socket | None = None
    host_mtu: int = 0
    dhcp: bool = False
    ipv6: bool = False
    driver: str = "virtio-net-pci"
    failover: bool = False
    service: str = "169.254.169.254"

    @property
    def id(self) -> str:
        return f"nic{self.mac.replace(':', '')}-{self.slot:x}"

    @property
    def nowhere(self) -> bool:
        return self.link is None and not self.dhcp

    def netdev(self) -> str:
        if self.link:
            return f"dgram,id={self.id},local.type=fd,local.str={self.link.fileno()}"
        if self.dhcp:  # without restrict=on, which offers no router
            net = f"10.99.{int(self.mac[-2:], 16)}"
            ipv6 = "ipv6=off"
            if self.ipv6:
                ipv6 = f"ipv6-net=fd00:99:{self.mac[-2:]}::/64"
            return f"user,id={self.id},{ipv6},net={net}.0/24,host={net}.2,dns={net}.3,dhcpstart={net}.16"
        return f"hubport,id={self.id},hubid={int(self.mac.replace(':', '')[-4:], 16) + 1}"

    def device(self) -> dict[str, object]:
        words = {
            "driver": self.driver,
            "id": f"dev-{self.id}",
            "netdev": self.id,
            "mac": self.mac,
            "addr": hex(self.slot),
        }
        more = {"host_mtu": self.host_mtu} if self.host_mtu else {}
        return {**words, "romfile": "", **more, **({"failover": "on"} if self.failover else {})}


def link() -> tuple[socket.socket, socket.socket]:
    """A cable for two guests: Ethernet frames as datagrams, so that a guest that dies in the middle of one harms no other."""
    ends = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
    for end in ends:
        end.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 20)
    return ends


def acceleration(image: images.Image) -> str:
    """Hardware acceleration where a guest's kernel speaks within its time, for /dev/kvm may be there and hang; else TCG."""
    answer = images.CACHE / f"acceleration-{os.uname().release}"
    if not answer.exists():
        answer.write_text(
            "kvm"
            if os.access("/dev/kvm", os.R_OK | os.W_OK) and _speaks(image)
            else "tcg,thread=multi"
        )
    return answer.read_text()


def _speaks(image: images.Image) -> bool:
    command = [PROGRAM, "-accel", "kvm", "-cpu", "host", "-m", "256", "-display", "none", "-monitor", "none", "-nic", "none",
               "-serial", "stdio", "-kernel", image.kernel, "-append", "console=ttyS0"]  # fmt: skip
    with subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    ) as process:
        said, deadline = b"", time.monotonic() + PROBE_PATIENCE
        while b"Linux version" not in said and time.monotonic() < deadline:
            if select.select([process.stdout], [], [], deadline - time.monotonic())[0]:
                piece = os.read(process.stdout.fileno(), 4096)
                said += piece
                if not piece:
                    break
        process.kill()
    return b"Linux version" in said


class Machine:
    """A running QEMU. `port`: of this machine's loopback, that reaches TCP port 7777 of the guest's management address."""

    def __init__(self, image: images.Image, disk: Path, nics: list[Nic], console: Path, service_port: int, processors: int,
                 memory: int, arguments: str = "", counted: bool = False) -> None:  # fmt: skip
        self._qmp, control = socket.socketpair()
        self.agent, agent = socket.socketpair()
        self._events: list[dict] = []
        # Nothing but TCG counts instructions.
        accel = "tcg" if counted or "-icount" in image.recipe.machine else acceleration(image)
        # One boot with `max,svm=off` on QEMU 7.2 went wrong from systemd's first steps on; its cause was not looked for. An older
        # model asks less of the emulation.
        processor = "host" if accel == "kvm" else "Westmere"
        emulation = COUNTED if counted else ("-accel", accel, "-cpu", processor)
        words = f"{'' if accel == 'tcg' else CHEAP} {image.recipe.arguments} {arguments}"
        command = [PROGRAM, "-nodefaults", "-display", "none", *emulation, "-smp", processors,
                   "-m", memory, "-kernel", image.kernel, "-initrd", image.initrd,
                   "-append", f"root=/dev/vda rw console=ttyS0 systemd.show_status=1 {UNCOUNTED} {words}",
                   "-drive", f"file={disk},if=none,id=disk,format=qcow2,discard=unmap",
                   "-device", "virtio-blk-pci,drive=disk,addr=0x4", "-device", "virtio-rng-pci,addr=0x5",
                   "-chardev", f"file,id=console,path={console},append=on", "-serial", "chardev:console",
                   "-device", "virtio-serial-pci,addr=0x6", "-chardev", f"socket,id=agent,fd={agent.fileno()}",
                   "-device", "virtserialport,chardev=agent,name=neuca.lab",
                   "-chardev", f"socket,id=qmp,fd={control.fileno()}", "-mon", "chardev=qmp,mode=control",
                   # As nova has it: without that no agent believes what answers at a link-local address.
                   "-smbios", "type=1,product=OpenStack Nova", *image.recipe.machine]  # fmt: skip
        for nic in nics:
            netdev = _user_network(nic, service_port) if nic.management else nic.netdev()
            device = ",".join(f"{key}={value}" for key, value in nic.device().items()).replace(
                "driver=", "", 1
            )
            command += ["-netdev", netdev, "-device", device]
        inherited = [
            control.fileno(),
            agent.fileno(),
            *(nic.link.fileno() for nic in nics if nic.link),
        ]
        self._said = console.with_name("qemu")
        with self._said.open("ab") as said:
            self._process = subprocess.Popen(list(map(str, command)), stdin=subprocess.DEVNULL, stdout=said, stderr=said,
                                             pass_fds=inherited, start_new_session=True)  # fmt: skip
        control.close()
        agent.close()
        self._qmp.settimeout(PATIENCE)
        self._answers = self._qmp.makefile("rb")
        self._message()
        self.execute("qmp_capabilities")

    @functools.cached_property
    def port(self) -> int:
        table = self.execute("human-monitor-command", **{"command-line": "info usernet"})
        return next(int(line.split()[3]) for line in table.splitlines() if "HOST_FORWARD" in line)

    def execute(self, command: str, **arguments: object) -> object:
        """A QMP command's answer; events that come in between are kept for `wait_for`."""
        self._qmp.sendall(json.dumps({"execute": command, "arguments": arguments}).encode() + b"\n")
        while True:
            message = self._message()
            if "error" in message:
                raise GuestError(f"{command}: {message['error']['desc']}")
            if "return" in message:
                return message["return"]
            self._events.append(message)

    def wait_for(self, event: str, **data: object) -> None:
        """Until this event, with at least these data, has come."""

        def fits(message: dict) -> bool:
            return message.get("event") == event and data.items() <= message.get("data", {}).items()

        while not any(map(fits, self._events)):
            self._events.append(self._message())
        self._events = [message for message in self._events if not fits(message)]

    def _message(self) -> dict:
        try:
            line = self._answers.readline()
        except ConnectionResetError:
            line = b""
        if not line:
            raise GuestError(f"QEMU has gone: {self.words()}")
        return json.loads(line)

    def words(self) -> str:
        """What QEMU itself has said."""
        return self._said.read_text(errors="replace")[-2000:]

    def wait(self, patience: float) -> None:
        """Until the process has ended by itself."""
        try:
            self._process.wait(patience)
        except subprocess.TimeoutExpired:
            raise GuestError(f"the guest did not switch itself off in {patience:g} s") from None
        self.kill()

    def kill(self) -> None:
        self._process.kill()
        self._process.wait(PATIENCE)
        for end in (self._answers, self._qmp, self.agent):
            end.close()


def _user_network(nic: Nic, service_port: int) -> str:
    relay = (
        f"{shlex.quote(os.sys.executable)} -ISE {shlex.quote(str(RELAY))} {service_port}".replace(
            ",", ",,"
        )
    )
    network = SERVICE_NET.format(nic.service.rpartition(".")[0])
    return (
        f"user,id={nic.id},ipv6=off,{network},guestfwd=tcp:{nic.service}:80-cmd:{relay},"
        "hostfwd=tcp:127.0.0.1:0-:7777"
    )
