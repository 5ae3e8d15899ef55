"""A hostile host on one network of the guest's: it impersonates, advertises, answers, floods, captures and replays.

Everything that it sends goes through one packet socket, made in its own network namespace; a new attack is a builder in
`frames` and one line of a test.
"""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import contextlib
import select
import socket
import subprocess
import sys
import threading
import time

import frames
from lab import PATIENCE, SERVICE
from metadata import Metadata, listener

OPENSTACK = "/openstack/latest/"
MAC = "02:00:00:00:66:66"
LINK_LOCAL = "fe80::66:66"
SERVICES = (SERVICE, "fd00:ec2::254", "fe80::a9fe:a9fe")
MAX_FRAMES = 10_000  # frames of one flood
# A socket made where the attacker is, and handed over.
PACKET = """import socket, sys
with socket.socket(fileno=int(sys.argv[2])) as end:
    made = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3))
    made.bind((sys.argv[1], 3))
    socket.send_fds(end, [b"x"], [made.fileno()])"""

REFUSED = """import socket, sys
try:
    socket.create_connection((sys.argv[1], 9), 10)
except ConnectionRefusedError:
    print("refused")"""


def packet_socket(where, nic):
    """A packet socket on that NIC of another namespace, made there and handed over."""
    ours, theirs = socket.socketpair()
    with ours, theirs:
        command = [*where.enter, sys.executable, "-c", PACKET, nic, str(theirs.fileno())]
        subprocess.run(command, check=True, pass_fds=[theirs.fileno()], timeout=PATIENCE)
        return socket.socket(fileno=socket.recv_fds(ours, 1, 1)[1][0])


def waiting_frames(packets):
    """All that a packet socket has taken in."""
    found = []
    packets.setblocking(False)
    with contextlib.suppress(BlockingIOError):
        while True:
            found.append(packets.recv(65536))
    return found


class Attacker:
    """`frames` builds what `send` sends. Threads answer (`answer_arp`, `serve_dhcp`) until `close`."""

    def __init__(self, lab, nic="eth0"):
        self.lab, self.nic, self.mac, self.link_local = lab, nic, MAC, LINK_LOCAL
        self.name = ""  # of the guest's NIC on the same network
        self.host = lab.host()  # its end of a NIC stays until the laws have been checked
        self.services, self._threads = [], []
        self.leases = 0  # how often its DHCP server has given one
        self._stop = threading.Event()
        self._packets = None

    # --- where it is ---

    def on_dataplane(self, name, number, up=False):
        """A new NIC of the guest's, whose other end is the attacker's."""
        lab, pid, self.name = self.lab, self.host.pid, name
        lab.peers += 1
        words = f"ip link add name {name} address 02:00:00:00:01:{number:02x} type veth peer"
        words += f" index {2000 + lab.peers} name {self.nic} address {self.mac} netns {pid}"
        with lab.foreign.changing():
            lab.run(*words.split())
            if up:
                lab.run("ip", "link", "set", name, "up")
        lab.foreign.may_change(lab.index(name))
        self._up()
        # Until the kernel has noted the carrier it drops the addresses that an advertisement gives.
        lab.settle()
        return self

    def on_management(self, name="mgmt0"):
        """A port of a bridge that the management NIC's network becomes."""
        lab, outside, self.name = self.lab, self.lab.outside, name
        script = f"""ip link add br0 type bridge mcast_snooping 0
        ip link set br0 address $(cat /sys/class/net/{name}/address)
        for address in $(ip -o address show dev {name} scope global | awk '{{print $4}}'); do
            ip address add $address dev br0 nodad; done
        ip address flush dev {name}; ip link set {name} master br0; ip link set br0 up
        ip link add p66 master br0 type veth peer name {self.nic} address {self.mac} \
            netns {self.host.pid}
        ip link set p66 up"""
        lab.run("sh", "-ec", f"mount -t sysfs sysfs /sys\n{script}", where=outside)
        return self._up()

    def _up(self):
        self.run(f"ip link set {self.nic} addrgenmode none")
        self.run(f"ip link set {self.nic} up")
        self.run(f"ip address add {self.link_local}/64 dev {self.nic} nodad")
        for family in (4, 6):  # whatever the guest's address is, it is here
            self.run(f"ip -{family} route add default dev {self.nic}")
        self._packets = self._packet_socket()
        return self

    def run(self, words, check=True):
        return self.lab.run(*words.split(), where=self.host, check=check)

    def own(self, *addresses):
        """These addresses are its own from now on."""
        for address in addresses:
            nodad = " nodad" if ":" in address else ""
            place = address if "/" in address else f"{address}/{128 if nodad else 32}"
            self.run(f"ip address replace {place} dev {self.nic}{nodad}")
        return self

    # --- it impersonates ---

    def impersonate(self, document, addresses=SERVICES, *, tokens=True, openstack=None, tree=None):
        """A metadata service at each address: EC2's (`tokens`: IMDSv2) and, with files, OpenStack's."""
        self.own(*addresses)
        for address in addresses:
            scoped = f"{address}%{self.nic}" if address.startswith("fe80:") else address
            service = Metadata(listener(self.host.enter, scoped, 80), document)
            service.tokens = tokens
            files = {OPENSTACK + name: text for name, text in (openstack or {}).items()}
            service.tree = {**(tree or {}), **files}
            self.services.append(service)
        return self

    def asked(self):
        """What anybody has asked its services for."""
        return [request for service in self.services for request in service.requests]

    # --- it sends ---

    def send(self, *made):
        for frame in made:
            self._packets.send(frame)

    def advertise(self, *options, **more):
        """One router advertisement: a default route of high preference unless `lifetime` is 0."""
        self.send(frames.router_advertisement(self.mac, self.link_local, *options, **more))

    def delivered(self):
        """Once the guest has taken what was sent: a connection to a closed port is refused in turn."""
        where = f"{self.link_local}%{self.name}"
        done = self.lab.run(sys.executable, "-c", REFUSED, where, check=False)
        assert done.out == "refused\n", done

    def claim(self, *addresses):
        """Gratuitous ARP, or an unsolicited neighbor advertisement, for each address."""
        for address in addresses:
            make = frames.neighbor_advertisement if ":" in address else frames.arp
            self.send(make(self.mac, address))

    def flood(self, count, make):
        """`count` frames, at most MAX_FRAMES of them; `make` gets the number of each."""
        assert count <= MAX_FRAMES
        self.send(*(make(number) for number in range(count)))

    # --- it answers ---

    def answer_arp(self, *addresses):
        """Says of each address (of any, where none is named) that it is its own."""

        def answer(frame):
            asks = frame[12:14] == b"\x08\x06" and frame[20:22] == b"\x00\x01"
            if not asks or frame[28:32] in (frame[38:42], bytes(4)):
                return
            wanted = socket.inet_ntoa(frame[38:42])
            if not addresses or wanted in addresses:
                asker, its_mac = socket.inet_ntoa(frame[28:32]), frame[6:12].hex(":")
                self.send(frames.arp(self.mac, wanted, its_mac, asker))

        return self._whenever(answer)

    def serve_dhcp(self, offered="10.66.0.2", server="10.66.0.1", **settings):
        """Offers to everybody; `settings`: `option_121=bytes`, …"""
        options = {int(name.partition("_")[2]): value for name, value in settings.items()}
        kinds = {1: 2, 3: 5}  # DISCOVER gets an OFFER, REQUEST an ACK

        def answer(frame):
            question = frame[42:]
            if frame[23:24] != b"\x11" or frame[36:38] != b"\0\x43":
                return
            if (kind := kinds.get(frames.dhcp_kind(question))) is None:
                return
            self.leases += kind == kinds[3]
            body = frames.dhcp_answer(question, kind, server, offered, options)
            packet = frames.udp4(server, "255.255.255.255", (67, 68), body)
            self.send(frames.ethernet(self.mac, frames.BROADCAST, frames.IP4, packet))

        return self._whenever(answer)

    def _whenever(self, answer):
        """Each frame that comes in goes to `answer`, in a thread with a socket of its own."""
        packets = self._packet_socket()

        def work():
            with packets:
                while not self._stop.is_set():
                    if select.select([packets], [], [], 0.1)[0]:
                        answer(packets.recv(65536))

        return self._begin(work)

    def _begin(self, work):
        """A thread that ends at `close`."""
        thread = threading.Thread(target=work)
        thread.start()
        self._threads.append(thread)
        return self

    # --- it captures, and replays ---

    @contextlib.contextmanager
    def captured(self, wanted=lambda frame: True):  # noqa: ARG005 - the shape of a condition
        """A list that holds, at the end of the block, the frames that came in and are `wanted`."""
        found = []
        with self._packet_socket() as packets:
            yield found
            found += filter(wanted, waiting_frames(packets))

    def wait_for_frame(self, wanted, seconds=PATIENCE):
        """The first frame that is wanted, from now on."""
        deadline = time.monotonic() + seconds
        with self._packet_socket() as packets:
            while (left := deadline - time.monotonic()) > 0:
                if select.select([packets], [], [], left)[0]:
                    frame = packets.recv(65536)
                    if wanted(frame):
                        return frame
        raise AssertionError(f"no such frame within {seconds:g} s")

    def _packet_socket(self):
        return packet_socket(self.host, self.nic)

    def close(self):
        self._stop.set()
        for thread in self._threads:
            thread.join(PATIENCE)
        for service in self.services:
            service.close()
        if self._packets is not None:
            self._packets.close()
