"""neuca-selftest between two namespaces, with real iperf3: with a helper and without, and what can go wrong.

What a busy machine does to a rate, or to a receive buffer, is no failure here: of tests that work, the evidence is looked at.
"""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import gzip
import json
import os
import re
import signal
import sys
from pathlib import Path

import pytest
from ends import DOCUMENT, FAR, FAR6, LONG, MAIN, NEAR, NEAR6, PORT, TCP, findings, steps
from firstline import first_line
from lab import PATIENCE, ROOT

# --- What a test finds ----------------------------------------------------------------------------------------------------


def test_a_test_with_a_helper_sees_both_ends(ends):
    helper = ends.serve()
    code, report = ends.helped(
        "--plan", "quick", "--time", "1", "--expect", "20M", "--rate", "20M", "--label", "first"
    )
    assert code == report["exit_code"]
    assert steps(report) == dict.fromkeys(
        ("as-planned", "reach", "latency", "path-mtu", "tcp", "loaded", "tcp-reverse"), "pass"
    )
    evidence = report["evidence"]
    forward, reverse = evidence["phases"]
    for phase in (forward, reverse):
        sockets = [one for sample in phase["sender"] for one in sample.get("sockets", [])]
        assert max(one["bytes_acked"] for one in sockets) > 500_000
        assert (
            phase["receiver"][0]["counters"]["Tcp.InSegs"]
            < phase["receiver"][-1]["counters"]["Tcp.InSegs"]
        )
    assert evidence["path_mtu"] == {"forward": 1500, "backward": 1500, "told": False}
    assert [evidence[end]["iperf3"] for end in ("local", "peer")] == [
        ends.lab.run("iperf3", "--version").out.split()[1]
    ] * 2
    assert evidence["idle"]["count"] >= 3
    assert min(evidence[name]["p50"] for name in ("idle", "idle_tcp", "loaded")) > 0
    assert len(evidence["reach"]["macs"]) == 1
    assert (evidence["local"]["planned"], evidence["local"]["path"], evidence["peer"]["path"]) == (
        "dp1",
        ["dp1"],
        ["dp1"],
    )
    (link,) = (one for one in evidence["local"]["links"] if one["name"] == "dp1")
    shown = ends.lab.link("dp1")
    assert {name: link[name] for name in ("mtu", "qdisc", "txqueuelen", "mac")} == {
        "mtu": shown["mtu"],
        "qdisc": shown["qdisc"],
        "txqueuelen": shown["txqlen"],
        "mac": shown["address"],
    }
    assert ends.listening() == {PORT + 1}
    helper.terminate()
    kept = list((ends.lab.folder / "state").glob("selftest-*.json.gz"))
    reports = [json.loads(gzip.decompress(path.read_bytes())) for path in kept]
    assert [report["evidence"]["label"] for report in reports] == ["first"]


def test_without_a_helper_there_is_one_ends_evidence(ends):
    ends.iperf("-1")
    code, report = ends.report(*TCP)
    assert code == report["exit_code"]
    assert steps(report)["tcp"] == "pass"
    phase = report["evidence"]["phases"][0]
    assert "receiver" not in phase
    assert len(phase["sender"]) >= 2


@pytest.mark.long
def test_every_other_step(ends):
    ends.serve()
    done = ends.test(
        "--secret-file",
        ends.secret,
        "--time",
        "1",
        "--parallel",
        "4",
        "--rate",
        "20M",
        "--only",
        "tcp-parallel,tcp-bidir,udp,connections",
    )
    lines = [line.split()[:2] for line in done.out.splitlines()]
    for name in ("tcp-parallel", "tcp-bidir", "udp", "connections"):
        assert [name, "pass"] in lines, done.out
    assert "loss-free up to" in done.out
    assert "\nVERDICT     " in done.out


def totals(raw):
    """What iperf3 itself says of each direction, as received. Before 3.10 UDP has what was sent, and what of it was lost."""
    end = json.loads(raw)["end"]
    if "sum_received" not in end:
        return [
            end["sum"]["bits_per_second"] * (1 - end["sum"]["lost_packets"] / end["sum"]["packets"])
        ]
    return [
        end[name]["bits_per_second"]
        for name in ("sum_received", "sum_received_bidir_reverse")
        if name in end
    ]


def test_the_rates_are_those_of_iperf3_itself(ends):
    """Within a hundredth, in the same run: nothing but the machine limits these."""
    ends.serve()
    _, report = ends.helped(
        "--only", "tcp,tcp-reverse,tcp-parallel", "--parallel", "4", "--time", "3"
    )
    own = [rate for phase in report["evidence"]["phases"] for rate in totals(phase["raw"])]
    assert [one["name"] for one in report["phases"]] == ["tcp", "tcp", "tcp-parallel"]
    assert [one["rate"] for one in report["phases"]] == pytest.approx(own, rel=0.01)
    _, report = ends.helped("--only", "udp", "--time", "2", "--rate", "20M")
    own = [rate for phase in report["evidence"]["phases"] for rate in totals(phase["raw"])]
    assert [one["rate"] for one in report["phases"]] == pytest.approx(own, rel=0.01)


@pytest.mark.long
def test_so_are_those_of_both_ways_at_once(ends):
    """iperf3 before 3.11 itself loses one of the two."""
    ends.serve()
    _, report = ends.helped("--only", "tcp-bidir", "--time", "2")
    own = totals(report["evidence"]["phases"][0]["raw"])
    assert ([one["rate"] for one in report["phases"]], len(own)) == (
        pytest.approx(own, rel=0.01),
        2,
    )


def test_ipv6(ends):
    ends.serve()
    _, report = ends.helped("--only", "latency,path-mtu,tcp", *TCP[2:], peer=FAR6)
    assert steps(report) == {"reach": "pass", "latency": "pass", "path-mtu": "pass", "tcp": "pass"}
    assert report["evidence"]["path_mtu"]["backward"] == 1500


def test_the_other_end_by_ssh(ends):
    """ssh itself is a shell script here: it starts what it is told in the other namespace."""
    enter = " ".join(ends.lab.outside.enter_from_inside)
    folder = ends.lab.folder / "bin"
    folder.mkdir()
    (folder / "ssh").write_text(
        f'#!/bin/sh\nwhile [ "$1" != -- ]; do shift; done\n[ "$2" = far ] || exit 255\nshift 3\n'
        f"exec {enter} env PYTHONPATH={ROOT} {sys.executable} -c '{MAIN}' --config {ends.far} \"$@\"\n"
    )
    (folder / "ssh").chmod(0o755)
    ends.lab.environment["PATH"] = f"{folder}:{os.environ['PATH']}"
    _, report = ends.report("--ssh", "far", *TCP)
    assert steps(report)["tcp"] == "pass"
    assert len(report["evidence"]["phases"][0]["receiver"]) >= 2
    ends.until(lambda: ends.listening() == set())
    done = ends.test("--ssh", "nowhere", *TCP)
    assert (done.code, done.err) == (
        1,
        'neuca-selftest: start neuca-selftest on "nowhere" by ssh: it exited with 255\n',
    )


ELSEWHERE = """
from pathlib import Path
from neuca_tools.backends.namespace import enter_network, namespaces_restored
from neuca_tools.backends.kernel_state import read_world

def show():
    addresses = read_world().addresses.values()
    print(*[address.ip for several in addresses for address in several])
    print(*Path("/sys/class/net").iterdir())

with namespaces_restored():
    enter_network(Path("/proc/{process}/ns/net"))
    show()
show()
"""


def test_a_test_from_another_namespace_of_the_host(ends):
    script = ELSEWHERE.format(process=ends.lab.outside.pid)
    there, devices, here, _ = ends.lab.run(sys.executable, "-c", script).out.splitlines()
    assert (FAR in there.split(), NEAR in there.split()) == (True, False)
    assert "/sys/class/net/dp1" in devices.split()
    assert (FAR in here.split(), NEAR in here.split()) == (False, True)


def test_namespaces_that_are_not_there(ends):
    done = ends.test("--netns", "none")
    assert (done.code, done.err) == (
        1,
        'neuca-selftest: enter the network namespace "/run/netns/none": No such file or directory\n',
    )
    done = ends.test("--container", "none")
    assert done.code == 1
    assert done.err.startswith('neuca-selftest: enter the container "none": docker: ')
    assert ends.test("--netns", "../../etc").code == 2


# --- What it finds wrong --------------------------------------------------------------------------------------------------


def test_a_host_that_is_not_as_planned(ends):
    ends.lab.ip("link set dp1 mtu 1400")
    ends.lab.document(DOCUMENT + "mtu = 1500\n")
    ends.lab.once()
    ends.lab.ip("link set dp1 mtu 1400")
    ends.iperf("-1")
    code, report = ends.report("--only", "as-planned,tcp", *TCP[2:])
    assert (code, findings(report)) == (5, {"D46"})
    assert report["evidence"]["local"]["drift"] == ["set the MTU of dp1 from 1400 to 1500"]
    ends.lab.ip("link set dp1 mtu 1500")


def test_a_route_that_leaves_elsewhere(ends):
    ends.lab.veth("dp2", 2, up=True)
    ends.lab.ip(f"route add {FAR}/32 dev dp2")
    code, report = ends.report(*TCP)
    assert (code, findings(report)) == (5, {"D29"})
    assert ends.lab.run("cat", "/proc/net/dev").out.count("dp2") == 1
    ends.lab.ip(f"route del {FAR}/32 dev dp2")


def test_never_over_the_management_nic_unless_told_so(ends):
    done = ends.test(*TCP, peer="192.0.2.1")
    assert (done.code, done.out) == (2, "")
    assert done.err == (
        "neuca-selftest: test 192.0.2.1: the route to it leaves through mgmt0, the management NIC\n"
        "       --interface mgmt0 permits this\n"
    )
    ends.iperf("-1")
    assert "tcp          pass" in ends.test("--interface", "mgmt0", *TCP, peer="192.0.2.1").out


def test_no_peer_is_tested_if_one_of_them_must_not_be(ends):
    ends.iperf("-1")
    done = ends.test(*TCP, "--json", FAR, peer="192.0.2.1")
    assert (done.code, done.out) == (2, "")
    assert not (ends.lab.folder / "state" / "selftests.jsonl").exists()


@pytest.mark.parametrize("peer", [NEAR, "127.0.0.1", "172.16.0.255", "224.0.0.1"])
def test_never_to_what_is_no_peer(ends, peer):
    done = ends.test(*TCP, peer=peer)
    assert (done.code, done.out) == (2, "")
    assert f"test {peer}: it is" in done.err


def test_two_that_have_the_peers_address(ends):
    lab = ends.lab
    lab.run(
        "ip",
        "link",
        "add",
        "link",
        "dp1",
        "name",
        "twin",
        "type",
        "macvlan",
        "mode",
        "bridge",
        where=lab.outside,
        check=False,
    )
    if lab.run("ip", "link", "show", "twin", where=lab.outside, check=False).code:
        pytest.skip("this kernel has no macvlan")
    lab.run("ip", "link", "set", "twin", "up", where=lab.outside)
    lab.run("ip", "address", "add", f"{FAR}/24", "dev", "twin", where=lab.outside)
    _, report = ends.report("--only", "reach")
    assert "D43" in findings(report)


@pytest.mark.long
def test_a_rate_that_is_worse_than_before(ends):
    """A shaper appears on the path. Tests under another load of this machine are not compared, and are repeated."""
    ends.serve("--for", "600")
    words = ("--secret-file", ends.secret, "--only", "tcp", "--time", "2", "--rate", "40M")
    for _ in range(5):
        ends.test(*words)
    ends.lab.run(*"tc qdisc add dev dp1 root tbf rate 8mbit burst 32k latency 50ms".split())
    for _ in range(5):
        done = ends.test(*words)
        if "WORSE" in done.out:
            break
    ends.lab.run(*"tc qdisc del dev dp1 root".split())
    assert "WORSE" in done.out, done
    assert " ± " in done.out, "the usual variation is stated"
    assert done.code in (4, 7), "a queue that drops is a fault as well"


@pytest.mark.long
def test_a_test_with_another_limit_is_not_worse(ends):
    ends.serve()
    assert ends.helped("--only", "tcp", "--time", "1", "--rate", "40M")[0] in (0, 6)
    done = ends.test("--secret-file", ends.secret, *TCP)
    assert done.code in (0, 6), done
    assert "WORSE" not in done.out


# --- What goes wrong ------------------------------------------------------------------------------------------------------


def test_nobody_listens(ends):
    code, report = ends.report(*TCP)
    assert (code, report["verdict"], findings(report)) == (8, "peer unreachable", {"D33"})


def test_no_host_has_the_address(ends):
    code, report = ends.report(*TCP, peer="172.16.0.77")
    assert (code, findings(report)) == (8, {"D31"})
    assert "phases" not in report["evidence"]


def test_no_route(ends):
    ends.lab.ip("route add unreachable 198.51.100.0/24")
    code, report = ends.report(*TCP, peer="198.51.100.1")
    assert (code, report["verdict"]) == (8, "peer unreachable")


def test_somebody_else_is_being_served(ends):
    ends.iperf()
    ends.start("iperf3", "-c", FAR, "-p", PORT, "-t", "20", "-b", "1M", where=ends.lab.guest)
    ends.until(lambda: " 01 " in ends.lab.run("cat", "/proc/net/tcp").out)
    code, report = ends.report(*TCP)
    assert (code, report["verdict"]) == (9, "peer busy")
    assert "D34" in findings(report)


def test_the_helper_is_busy(ends):
    ends.serve()
    first = ends.begin("--secret-file", ends.secret, seconds=60)
    assert first.stdout.readline().startswith("reach ")
    code, report = ends.helped(*TCP)
    assert (code, report["verdict"]) == (9, "peer busy")
    assert "phases" not in report["evidence"]


def test_an_iperf3_of_somebody_else_has_the_port_of_the_helper(ends):
    """It listens on all addresses of both families."""
    ends.serve()
    ends.iperf()
    code, report = ends.helped(*TCP)
    assert (code, report["verdict"]) == (6, "inconclusive")
    assert findings(report) == {"D47"}
    assert report["findings"][0]["text"] == "another program already uses the port"


def test_a_server_that_dies_in_the_midst(ends):
    server = ends.iperf("-1")
    test = ends.begin("--json")
    ends.transferring()
    server.kill()
    out = test.communicate(timeout=LONG)[0]
    assert (test.returncode, json.loads(out)["verdict"]) == (6, "inconclusive"), out
    assert json.loads(out)["unknown"].startswith("iperf did not finish: ")


def test_a_client_that_is_killed_in_the_midst(ends):
    ends.iperf("-1")
    test = ends.begin("--json")
    ends.transferring()
    (client,) = Path(f"/proc/{test.pid}/task/{test.pid}/children").read_text().split()
    os.kill(int(client), signal.SIGKILL)
    report = json.loads(test.communicate(timeout=LONG)[0])
    assert (test.returncode, report["verdict"], report["unknown"]) == (
        6,
        "inconclusive",
        "iperf did not finish: iperf3 was terminated by signal 9",
    )


def test_a_client_that_has_vanished_does_not_keep_others_out_for_the_time_of_its_test(ends):
    helper = ends.serve()
    test = ends.begin("--secret-file", ends.secret, seconds=3600)
    ends.transferring()
    assert "a test begins" in helper.stdout.readline()
    ends.lab.run("ip", "link", "set", "dp1", "down", where=ends.lab.outside)
    assert f"{NEAR}: query the peer: " in helper.stdout.readline()
    test.kill()


def test_a_connection_that_gets_no_answer_at_all(ends):
    """The other end answers ARP, and has no way back for anything else."""
    ends.iperf("-1")
    ends.lab.run("ip", "route", "add", "blackhole", f"{NEAR}/32", where=ends.lab.outside)
    code, report = ends.report(*TCP)
    assert (code, report["verdict"], findings(report)) == (8, "peer unreachable", {"D33"})
    assert report["evidence"]["reach"]["ping"] is False


BANNER = r"""import socket, sys
listener = socket.create_server((sys.argv[1], int(sys.argv[2])))
while True:
    connection, _ = listener.accept()
    connection.sendall(b"SSH-2.0-something else\r\n")
    while connection.recv(4096):
        pass
"""


def test_something_else_that_listens_there(ends):
    ends.start(sys.executable, "-c", BANNER, FAR, PORT)
    ends.until(lambda: PORT in ends.listening())
    code, report = ends.report(*TCP)
    version = re.findall(r"\d+", ends.lab.run("iperf3", "--version").out)[:2]
    if [int(number) for number in version] >= [3, 22]:  # it ignores what it does not know
        assert (code, report["verdict"]) == (6, "inconclusive")
        assert "another program listens on the port" in str(report["unknown"])
        return
    assert (code, report["verdict"]) == (4, "fault found"), report["unknown"]
    assert findings(report) == {"D35"}


# An iperf3 that serves one test, after a connection that is closed once iperf3 listens.
CLOSED_FIRST = r"""import socket, subprocess, sys
address, port = sys.argv[1:]
with socket.create_server((address, int(port))) as listener:
    connection, _ = listener.accept()
words = ["iperf3", "-s", "-1", "--forceflush", "-B", address, "-p", port]
server = subprocess.Popen(words, stdout=subprocess.PIPE, text=True)
next(line for line in server.stdout if "listening" in line)
connection.close()
server.communicate()
"""


def test_a_udp_test_that_did_not_begin_is_repeated(ends):
    """As one does not whose first datagram is lost: iperf3 does not send it again."""
    ends.start(sys.executable, "-c", CLOSED_FIRST, FAR, PORT)
    ends.until(lambda: PORT in ends.listening())
    _, report = ends.report("--only", "udp", "--time", "1", "--rate", "1M")
    phases = report["evidence"]["phases"]
    assert "error" not in phases[0]["run"]
    assert phases[0]["run"]["flows"][0]["received"]["datagrams"] > 0


def test_many_streams_that_did_not_begin_do_not_end_the_test(ends):
    """The peer responded to one stream; here, its server is gone then."""
    ends.iperf("-1")
    words = ("--only", "tcp,tcp-parallel,udp", "--time", "1", "--rate", "1M", "--parallel", "2")
    _, report = ends.report(*words)
    found = {one["name"]: one["verdict"] for one in report["evidence"]["steps"]}
    assert (found["tcp"], found["tcp-parallel"]) == ("pass", "fail")
    assert found["udp"] == "unknown"  # it was tried


def test_a_server_that_hangs(ends):
    """`conduct` itself, for its patience is shorter then."""
    server = ends.iperf("-1")
    script = (
        "import sys; from ipaddress import ip_address; from neuca_tools.selftest.measure.iperf import command, conduct\n"
        f"test = command.Test(ip_address('{FAR}'), {PORT}, 2, ip_address('{NEAR}'), rate=1e6)\n"
        "print(conduct.run_test('tcp', test, grace=1.0)[0].run.error)"
    )
    test = ends.start(sys.executable, "-c", script, where=ends.lab.guest)
    ends.transferring()
    server.send_signal(signal.SIGSTOP)
    out = test.communicate(timeout=LONG)[0]
    assert out == (
        "iperf3 did not end in time and was terminated: the peer may have stopped responding, or "
        "another program listens on the port\n"
    )
    assert f":{PORT:04X} 01" not in ends.lab.run("cat", "/proc/net/tcp").out


def test_a_helper_that_dies_leaves_nothing(ends):
    helper = ends.serve()
    test = ends.begin("--secret-file", ends.secret, "--json", steps="tcp,tcp-reverse")
    ends.transferring()
    helper.kill()
    out = test.communicate(timeout=LONG)[0]
    report = json.loads(out)
    assert (test.returncode, report["verdict"]) == (6, "inconclusive")
    assert "tcp-reverse" not in steps(report) or steps(report)["tcp-reverse"] == "fail"
    ends.until(lambda: ends.listening() == set())


def test_connections_to_a_helper_that_has_ended_are_not_the_fault_of_the_path(ends):
    helper = ends.serve()
    test = ends.begin("--secret-file", ends.secret, steps="latency,connections")
    assert test.stdout.readline().startswith("reach ")
    helper.kill()
    out = test.communicate(timeout=LONG)[0]
    assert "connections  unknown  query the peer: " in out
    assert test.returncode != 4, out


def test_a_client_that_dies_leaves_nothing(ends):
    helper = ends.serve()
    test = ends.begin("--secret-file", ends.secret, seconds=30)
    ends.transferring()
    test.kill()
    assert [helper.stdout.readline() for _ in range(2)] == [
        f"neuca-selftest: {NEAR}: a test begins\n",
        f"neuca-selftest: {NEAR}: query the peer: it closed the connection\n",
    ]
    ends.until(lambda: ends.listening() == {PORT + 1})
    ends.until(lambda: f":{PORT:04X} 01" not in ends.lab.run("cat", "/proc/net/tcp").out)


def test_a_helper_ends_with_its_time(ends):
    helper = ends.serve("--for", "1")
    assert helper.wait(PATIENCE) == 0
    assert ends.listening() == set()


def test_a_helper_with_another_secret_is_not_believed(ends):
    helper = ends.serve(secret=ends.write("other", "the secret of somebody else"))
    code, report = ends.helped(*TCP)
    assert (code, findings(report)) == (4, {"D35"})
    assert "phases" not in report["evidence"]
    assert helper.stdout.readline() == f"neuca-selftest: {NEAR}: refused, a different secret\n"


def test_a_secret_that_others_can_read_is_none(ends):
    ends.secret.chmod(0o644)
    done = ends.test("--secret-file", ends.secret, *TCP)
    assert (done.code, done.err) == (
        2,
        f'neuca-selftest: read the secret "{ends.secret}": others can read it\n       chmod 600 {ends.secret}\n',
    )


def test_a_helper_serves_the_dataplane_alone(ends):
    """In the guest, where there is a management NIC."""
    done = ends.lab.run(
        sys.executable,
        "-c",
        MAIN,
        "--serve",
        "--config",
        ends.lab.config_file,
        "--secret-file",
        ends.secret,
        "--address",
        "192.0.2.10",
        check=False,
    )
    assert done.code == 2
    assert done.err == (
        "neuca-selftest: serve on 192.0.2.10: it is on mgmt0, the management NIC\n"
        "       to serve there, add --interface mgmt0\n"
    )
    helper = ends.start(
        sys.executable,
        "-c",
        MAIN,
        "--serve",
        "--config",
        ends.lab.config_file,
        "--secret-file",
        ends.secret,
        "--for",
        "1",
        where=ends.lab.guest,
    )
    assert first_line(helper.stdout) == (
        f"neuca-selftest: serving tests for 1 s at {NEAR}, {NEAR6}, ports 45678 to 45680\n"
    )
