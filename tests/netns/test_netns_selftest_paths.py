"""`neuca-selftest compare-paths` with real iperf3: host to host, over a VXLAN on the same NIC, and from a macvlan elsewhere.

Rates are capped: what a busy machine does to them is no subject here, that each path is the one that was asked for is.
"""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import sys

import pytest
from ends import FAR, MAIN, NEAR

OVER, UNDER = "10.9.0.1", "10.9.0.2"
BLUE = "172.16.0.3"


@pytest.fixture
def paths(ends):
    """A VXLAN between the two ends, and a namespace of the guest with a macvlan; the agent makes none of them."""
    lab = ends.lab
    for kind in ("vxlan id 1 dstport 4789", "macvlan"):
        lab.run(*f"ip link add link dp1 name probe type {kind}".split(), check=False)
        if lab.run("ip", "link", "del", "probe", check=False).code:
            pytest.skip(f"this kernel has no {kind.split()[0]}")
    for where, ours, theirs, inner in (
        (lab.guest, NEAR, FAR, OVER),
        (lab.outside, FAR, NEAR, UNDER),
    ):
        lab.run(
            *f"ip link add vx0 type vxlan id 42 local {ours} remote {theirs} dstport 4789 dev dp1".split(),
            where=where,
        )
        lab.run(*f"ip address add {inner}/24 dev vx0".split(), where=where)
        lab.run(*"ip link set vx0 up".split(), where=where)
    lab.run(
        "sh",
        "-ec",
        "mount -t tmpfs tmpfs /run; ip netns add blue; ip link add mv0 link dp1 type macvlan mode bridge\n"
        f"ip link set mv0 netns blue; ip -n blue address add {BLUE}/24 dev mv0; ip -n blue link set mv0 up",
    )
    yield ends
    # A user may unmount what was mounted here, and not what was below before.
    lab.run("sh", "-ec", "ip netns del blue; umount /run/netns /run; ip link del vx0")


def compared(ends, *words):
    return ends.lab.run(
        sys.executable,
        "-c",
        MAIN,
        "compare-paths",
        "--config",
        ends.lab.config_file,
        "--secret-file",
        ends.secret,
        "--time",
        "1",
        "--rate",
        "20M",
        *words,
        check=False,
    )


@pytest.mark.long
def test_what_each_path_costs(paths):
    paths.serve("--for", "120")
    done = compared(
        paths,
        "--rounds",
        "2",
        "--only",
        "latency,path-mtu,tcp",
        "--json",
        f"host={FAR}",
        f"vxlan={UNDER}",
        f"macvlan={FAR},netns=blue",
    )
    report = done.json
    assert (done.code, report["baseline"], report["exit_code"]) == (
        report["exit_code"],
        "host",
        done.code,
    ), done
    rows = {
        (row["name"], row["direction"]): {value["label"]: value for value in row["values"]}
        for row in report["rows"]
    }
    assert {label: value["median"] for label, value in rows["path MTU", ""].items()} == {
        "host": 1500,
        "vxlan": 1450,
        "macvlan": 1500,
    }
    tcp = rows["tcp", "forward"]
    assert list(tcp) == ["host", "vxlan", "macvlan"]
    assert all(value["count"] == 2 and value["median"] > 1e6 for value in tcp.values())
    assert "tax" not in tcp["host"]
    assert all(
        abs(1 - value["median"] / tcp["host"]["median"] - value["tax"]) < 1e-6
        for value in list(tcp.values())[1:]
    )
    for path, source in zip(report["paths"], (NEAR, OVER, BLUE)):
        assert len(path["reports"]) == 2
        evidence = path["reports"][0]["evidence"]
        connection = evidence["phases"][0]["run"]["connections"][0]
        assert (evidence["label"], connection["local"]) == (path["label"], source)
        assert not {one["id"] for one in path["findings"] if one["severity"] != "info"} & {
            "D29",
            "D46",
        }
    assert [
        link["parent"]
        for link in report["paths"][1]["reports"][0]["evidence"]["local"]["links"]
        if link["name"] == "vx0"
    ] == ["dp1"]
    assert list((paths.lab.folder / "state").glob("selftest-*.json.gz")) == []


def test_a_path_that_leads_nowhere_does_not_hide_the_others(paths):
    paths.serve("--for", "120")
    done = compared(paths, "--rounds", "1", "--only", "tcp", f"host={FAR}", "gone=172.16.0.77")
    assert done.code == 8, done
    lines = done.out.splitlines()
    assert [line.split()[4] for line in lines[:2]] == ["host", "gone"]
    assert "reach failed: " in lines[1]
    assert lines[2].split()[:2] == ["tcp", "host"]
    assert lines[-1].startswith("VERDICT     peer unreachable")
    missing = compared(paths, f"host={FAR}", f"red={FAR},netns=red")
    assert (missing.code, missing.out, missing.err) == (
        *(1, ""),
        'neuca-selftest: enter the network namespace "/run/netns/red": No such file or directory\n',
    )


def test_no_path_is_tested_if_one_of_them_must_not_be(ends):
    done = compared(ends, f"host={FAR}", "management=192.0.2.1")
    assert (done.code, done.out) == (2, "")
