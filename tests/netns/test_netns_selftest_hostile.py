"""neuca-selftest between namespaces, with hosts on the same network that mean harm.

What they do is in `hostile_peer`, which knows the protocol from its description alone.
"""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import json
import os
import sys
from contextlib import suppress
from pathlib import Path

import pytest
from ends import FAR, NEAR6, PORT, SECRET, TCP, findings, steps

HOSTILE = Path(__file__).with_name("hostile_peer.py")
THIRD = "172.16.0.66"
OLD = (
    "greet the peer: it speaks protocol 1 of neuca-selftest, this host protocol 2:"
    " install the same version of neuca-guest-tools on both"
)
SURROGATE = rb'{"nonce":"\ud800","proof":"x"}' + b"\n"


@pytest.fixture
def third(ends):
    """A host of its own on the same network, which does not know the secret."""
    (host,) = ends.bridge((f"{THIRD}/24",))
    return host


def hostile(ends, *words, where):
    return ends.start(sys.executable, HOSTILE, *words, where=where)


def long_test(ends):
    """A test from the guest that goes on until it is ended."""
    return ends.begin("--secret-file", ends.secret, seconds=60)


def iperf3s(parent):
    """The iperf3 of a process, by their ids; a child may end while it is looked at."""
    children = Path(f"/proc/{parent.pid}/task/{parent.pid}/children").read_text().split()
    return [one for one in children if name_of(one) == "iperf3\n"]


def name_of(process):
    with suppress(FileNotFoundError, ProcessLookupError):
        return Path(f"/proc/{process}/comm").read_text()
    return ""


def status(process):
    lines = Path(f"/proc/{process}/status").read_text().splitlines()
    return dict(line.split(":\t", 1) for line in lines if ":\t" in line)


# --- the control port -----------------------------------------------------------------------------


def test_no_line_and_no_crowd_of_a_stranger_stops_the_server(ends, third):
    helper = ends.serve()
    said = hostile(ends, "send", FAR, PORT + 1, SURROGATE.hex(), where=third)
    assert said.stdout.readline() == "b''\n"
    crowd = hostile(ends, "idle", FAR, PORT + 1, "8", where=third)
    assert crowd.stdout.readline() == "connected 8\n"
    _, report = ends.helped(*TCP)
    assert steps(report) == {"reach": "pass", "tcp": "pass"}
    assert helper.poll() is None


@pytest.mark.parametrize(
    ("line", "note"),
    [
        (
            rb'{"neuca-selftest":2,"nonce":"\ud800"}' + b"\n",
            "greet the peer: what listens there is not neuca-selftest --serve",
        ),
        (b"\x1b[2J" * 1000, "greet the peer: what listens there is not neuca-selftest --serve"),
        (
            b'{"neuca-selftest":1,"nonce":"%s"}\n' % (b"0" * 64),
            OLD,
        ),
    ],
)
def test_a_fake_server_ends_no_client(ends, line, note):
    fake = hostile(ends, "serve", FAR, PORT + 1, line.hex(), where=ends.lab.outside)
    assert fake.stdout.readline() == "listening\n"
    ends.iperf("-1")
    _, report = ends.helped(*TCP)
    assert steps(report)["tcp"] == "pass"
    reach = next(one["text"] for one in report["evidence"]["steps"] if one["name"] == "reach")
    assert reach.endswith(f"no helper ({note}): evidence of one host only")


# --- iperf3 ---------------------------------------------------------------------------------------


def test_iperf3_accepts_its_peer_alone(ends, third):
    if os.geteuid():
        pytest.skip("the kernel filters for root alone")
    ends.serve()
    test = long_test(ends)
    ends.transferring()
    stranger = hostile(ends, "connect", FAR, PORT, where=third)
    assert stranger.stdout.readline() == "timed out\n"
    assert test.poll() is None


def test_iperf3_is_nobody_on_both_hosts(ends):
    if os.geteuid():
        pytest.skip("there is no other user here than the one of the test")
    helper = ends.serve()
    test = long_test(ends)
    ends.transferring()
    for parent in (helper, test):
        (found,) = iperf3s(parent)
        seen = status(found)
        assert seen["Uid"].split() == seen["Gid"].split() == ["65534"] * 4
        assert (seen["Groups"].strip(), seen["NoNewPrivs"]) == ("", "1")
        assert {seen[name] for name in ("CapPrm", "CapEff", "CapInh", "CapAmb")} == {"0" * 16}
        inside = Path(f"/proc/{found}/root")
        assert [list((inside / name).iterdir()) for name in ("var", "run", "root", "home")] == [
            []
        ] * 4
        assert (
            Path(f"/proc/{found}/ns/mnt").readlink()
            != Path(f"/proc/{parent.pid}/ns/mnt").readlink()
        )
    groups = Path(f"/proc/{iperf3s(helper)[0]}/cgroup").read_text()
    assert f"neuca-selftest.{helper.pid}." in groups
    test.kill()
    ends.until(lambda: not iperf3s(helper))


# --- who knows the secret, and lies ---------------------------------------------------------------

LIES = {
    "a token that is none": {"token": "\ud800", "host": {}},
    "a token that is too long": {"token": "00" * 4096, "host": {}},
    "no object": {"token": "00" * 16, "host": []},
    "a number beyond all": {"token": "00" * 16, "host": {"memory": 10**400}},
    "a name as long as a book": {"token": "00" * 16, "host": {"name": "x" * 100_000}},
    "links without end": {"token": "00" * 16, "host": {"links": [{"name": "a"}] * 6000}},
}


OF_THE_MACHINE = {"D05", "D06", "D09", "D10", "D11", "D13", "D24"}


@pytest.mark.parametrize("name", LIES)
def test_what_a_peer_says_of_itself_is_checked(ends, name):
    lie = json.dumps(LIES[name])
    words = ("lie", FAR, PORT + 1, SECRET.strip(), lie)
    fake = hostile(ends, *words, where=ends.lab.outside)
    assert fake.stdout.readline() == "listening\n"
    ends.iperf("-1")
    done = ends.test("--secret-file", ends.secret, "--json", *TCP)
    assert (done.err, "Traceback" in done.out) == ("", False)
    assert steps(done.json)["tcp"] == "pass"
    reach = next(one["text"] for one in done.json["evidence"]["steps"] if one["name"] == "reach")
    assert "no helper (the peer's response to hello: " in reach
    # A busy machine may slow the test down, which is a finding; a lie may not become one.
    assert findings(done.json) <= OF_THE_MACHINE


def test_escapes_of_a_peer_reach_no_terminal(ends):
    escape = "\x1b]0;owned\x07\x9b2J\u202e"
    answers = [{"token": "00" * 16, "host": {"name": escape, "kernel": escape}}]
    answers += [{"error": escape}] * 20
    words = ("lie", FAR, PORT + 1, SECRET.strip(), *map(json.dumps, answers))
    fake = hostile(ends, *words, where=ends.lab.outside)
    assert fake.stdout.readline() == "listening\n"
    page = ends.lab.folder / "page.html"
    done = ends.test("--secret-file", ends.secret, "--html", page, *TCP)
    for text in (done.out, done.err, page.read_text()):
        assert not set(escape) & set("\x1b\x07\x9b\u202e") & set(text)
    assert "\\x1b]0;owned\\x07\\x9b2J\\u202e" in done.out


HOSTILE_REQUESTS = (
    b'{"ask":[]}',
    b'{"ask":{}}',
    b'{"ask":"\\ud800"}',
    b'{"ask":"begin","seconds":1' + b"0" * 400 + b"}",
    b'{"ask":"begin","seconds":1e999,"udp":[]}',
    b'{"ask":"begin","seconds":NaN}',
    b'{"ask":"set","sysctls":{"kernel.core_pattern":"|/bin/sh"}}',
    b'{"ask":"hello","client":"fe80::1%;reboot"}',
)


def test_a_client_that_knows_the_secret_ends_no_server_and_runs_nothing(ends):
    helper = ends.serve()
    script = (
        f"import sys; sys.path.insert(0, {str(HOSTILE.parent)!r}); import hostile_peer\n"
        f"client = hostile_peer.client({FAR!r}, {PORT + 1}, {SECRET.strip().encode()!r})\n"
        f"for request in {HOSTILE_REQUESTS!r}:\n"
        "    client.send(request); print(client.receive(), flush=True)\n"
    )
    out = ends.lab.run(sys.executable, "-c", script).out.splitlines()
    assert len(out) == len(HOSTILE_REQUESTS)
    assert all("error" in one or "token" in one for one in out), out
    assert helper.poll() is None
    _, report = ends.helped(*TCP)
    assert steps(report) == {"reach": "pass", "tcp": "pass"}


FILTERED = """import os, socket, subprocess, sys
from ipaddress import ip_address
from neuca_tools.backends.peerfilter import PeerFilter
address, peer, *sources = sys.argv[1:]
family = socket.AF_INET6 if ":" in address else socket.AF_INET
restriction = PeerFilter(ip_address(peer))
said, saying = os.pipe()
if os.fork() == 0:  # what a process in the group listens at
    os.write(restriction.joining, b"0")
    listener = socket.create_server((address, 4444), family=family)
    os.write(saying, b"1")
    while True:
        listener.accept()[0].close()
os.read(said, 1)
for source in sources:
    try:
        socket.create_connection((address, 4444), 1.0, (source, 0)).close()
        print("connected")
    except OSError as error:
        print(error.strerror or "timed out")
os.kill(int(open(f"/proc/self/task/{os.getpid()}/children").read()), 9)
os.wait()
restriction.close()
print("closed", restriction.joining)
"""


@pytest.mark.parametrize(
    ("address", "peer", "other"),
    [("127.0.0.1", "127.0.0.7", "127.0.0.9"), (NEAR6, NEAR6, "::1")],
)
def test_the_kernel_drops_what_is_not_of_the_peer(ends, address, peer, other):
    if os.geteuid():
        pytest.skip("the kernel filters for root alone")
    words = (sys.executable, "-c", FILTERED, address, peer, other, peer)
    assert ends.lab.run(*words).out.splitlines() == ["timed out", "connected", "closed -1"]


ABANDONED = """import os
from ipaddress import ip_address
from neuca_tools.backends.peerfilter import PeerFilter
def groups(restriction):
    names = os.listdir(restriction._parent)
    return sum(name.startswith(f"neuca-selftest.{child or os.getpid()}.") for name in names)
child = os.fork()
if child == 0:  # as if it were killed
    print(groups(PeerFilter(ip_address("127.0.0.7"))), flush=True)
    os._exit(0)
os.waitpid(child, 0)
print(groups(PeerFilter(ip_address("127.0.0.7"))))
"""


def test_the_group_of_a_test_that_was_killed_is_removed_by_the_next_one(ends):
    if os.geteuid():
        pytest.skip("the kernel filters for root alone")
    assert ends.lab.run(sys.executable, "-c", ABANDONED).out.split() == ["1", "0"]
