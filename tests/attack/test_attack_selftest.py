"""A hostile host at the other end of a self-test, as client and as server; it has no secret."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import contextlib
import os
import sys
from pathlib import Path

import hostile_peer
import pytest
import stranger
from ends import FAR, LONG, MAIN, PORT, SECRET, TCP

UNREACHABLE, BUSY = 8, 9  # neuca-selftest(1)
DEEP = b'{"nonce":' + b"[" * 2000 + b"]" * 2000 + b"}"
LINES = {
    "surrogate": b'{"nonce":"\\ud800","proof":"x"}',
    "proof": b'{"nonce":"x","proof":"\\udfff"}',
    "list": b'{"nonce":["x"],"proof":{"a":1}}',
    "number": b'{"nonce":1e999,"proof":-1}',
    "huge": b'{"nonce":' + b"9" * 4000 + b"}",
    "deep": DEEP,
    "bytes": bytes(range(256)).replace(b"\n", b""),
    "nul": b"\0" * 100,
    "long": b"x" * 100_000,
    "null": b"null",
    "empty": b"",
}


SERVED = (0, 4, 6)  # neuca-selftest(1)


@pytest.mark.parametrize("line", LINES.values(), ids=LINES)
def test_no_line_ends_the_server(ends, line):
    helper = ends.serve()
    for _ in range(2):
        stranger.say(ends.lab.guest.enter, FAR, line + b"\n")
    assert helper.poll() is None
    code, report = ends.helped(*TCP)
    assert helper.poll() is None
    # A busy machine may leave the measurement inconclusive; it was carried out.
    assert (code in SERVED, [one["rate"] > 0 for one in report["phases"]]) == (True, [True])


SECRETLESS = {
    "surrogate": (b'{"neuca-selftest":1,"nonce":"\\ud800"}', b'{"proof":"\\ud800"}'),
    "list": (b'{"neuca-selftest":1,"nonce":[]}', b'{"proof":[]}'),
    "deep": (DEEP,),
    "bytes": (bytes(range(255, 0, -1)).replace(b"\n", b""),),
    "long": (b"x" * 100_000,),
    "version": (b'{"neuca-selftest":true,"nonce":"' + b"0" * 64 + b'"}', b'{"proof":1}'),
    "busy": (b'{"busy":"\\ud800"}',),
    "escape": (b'{"neuca-selftest":1,"nonce":"\\u001b[2J"}', b'{"proof":"\\u001b[2J"}'),
    "silence": (),
}


@pytest.mark.parametrize("lines", SECRETLESS.values(), ids=SECRETLESS)
def test_no_line_ends_the_client(ends, lines):
    """It reports what it can: no traceback, an exit code of its own, no escape on a terminal."""
    server = stranger.HostileServer(ends.lab.outside.enter, FAR, *lines)
    with contextlib.closing(server):
        done = ends.test("--secret-file", ends.secret, *TCP)
    assert "Traceback" not in done.out + done.err
    assert "\x1b[2J" not in done.out + done.err
    assert done.code in (UNREACHABLE, BUSY), done


def test_idle_connections_do_not_lock_anybody_out(ends):
    ends.serve()
    with contextlib.ExitStack() as stack:
        for _ in range(32):
            stack.enter_context(stranger.connection(ends.lab.outside.enter, FAR))
        assert ends.helped(*TCP)[0] == 0


THIRD = "172.16.0.99"


def test_iperf3_of_a_helper_runs_without_privileges_and_takes_nobody_else(ends):
    """While a test is under way a third host connects to iperf3's port."""
    if os.geteuid():
        pytest.skip("a user namespace may not be left by iperf3")
    ends.serve("--for", "120")
    lab = ends.lab
    lab.run("ip", "address", "add", f"{THIRD}/24", "dev", "dp1", where=lab.outside)
    test = ends.start(sys.executable, "-c", MAIN, "--config", lab.config_file, "--secret-file",
                      ends.secret, "--only", "tcp", "--time", "8", "--expect", "1M", "--rate",
                      "20M", FAR, where=lab.guest)  # fmt: skip
    ends.until(lambda: PORT in ends.listening())
    found = lab.run("sh", "-c", IPERF3, where=lab.outside).out.split()
    assert found
    assert {int(one) for one in found} & {0} == set()
    test.wait(LONG)


HARMFUL = {
    "net.ipv4.tcp_rmem": "1 1 1",
    "net.ipv4.tcp_wmem": "4096 16384 65535",
    "net.ipv4.tcp_max_syn_backlog": "1",
    "net.core.somaxconn": "128",
    "net.ipv4.tcp_mtu_probing": "9",
}


def test_a_peer_with_the_secret_sets_no_sysctl(ends):
    ends.serve()
    paths = [f"/proc/sys/{name.replace('.', '/')}" for name in HARMFUL]
    before = ends.lab.run("cat", *paths, where=ends.lab.outside).out
    script = (
        f"import sys; sys.path.insert(0, {str(Path(hostile_peer.__file__).parent)!r}); import hostile_peer\n"
        f"client = hostile_peer.client({FAR!r}, {PORT + 1}, {SECRET.strip().encode()!r})\n"
        f"for name, value in {HARMFUL!r}.items():\n"
        "    client.send({'ask': 'set', 'sysctls': {name: value}}); print(client.receive())\n"
    )
    out = ends.lab.run(sys.executable, "-c", script).out.splitlines()
    assert [one for one in out if "error" not in one] == []
    assert ends.lab.run("cat", *paths, where=ends.lab.outside).out == before


IPERF3 = """for place in /proc/[0-9]*; do
    [ "$(cat $place/comm)" = iperf3 ] && [ "$(readlink $place/ns/net)" = "$(readlink /proc/self/ns/net)" ] &&
    awk '/^Uid:/ { print $3 }' $place/status
done 2>/dev/null; true"""
