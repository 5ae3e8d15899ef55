"""Scripts after a pass: once for each instance, shown in status, and nothing of the network waits for them."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import subprocess
import sys

import pytest
from lab import mac

MAIN = "import sys; from neuca_tools.commands.{} import main; sys.exit(main())"
TEXT = f"[interface {mac(1)}]\naddresses = 172.16.1.1/24\n[scripts]\n"


@pytest.fixture
def host(lab):
    lab.veth("dp1", 1)
    return lab


def says(host, word, then="exit 0"):
    return f"{TEXT}bootscript = #!/bin/sh\n    echo {word} >> {host.folder}/said; {then}\n"


def said(host):
    place = host.folder / "said"
    return place.read_text().split() if place.exists() else []


def guest(host):
    return host.command("neucad", "--guest", "--config", host.config_file).code


def finding(host):
    return next(one for feature in host.status()[1]["guest"] for one in feature["findings"])


def test_a_script_runs_after_the_pass_once_and_its_end_is_in_status(host):
    assert host.once(says(host, "one", "exit 3")).code == 0
    assert (host.addresses("dp1"), said(host)) == ({"172.16.1.1/24"}, [])
    assert guest(host) == 0
    assert said(host) == ["one"]
    code, status = host.status()
    assert (code, status["state"]) == (1, "failed")
    assert finding(host)["text"].startswith("bootscript: exit status 3 after ")
    host.once()
    assert (guest(host), said(host)) == (0, ["one"])
    assert host.once(says(host, "two")).code == 0
    assert (guest(host), said(host), host.status()[0]) == (0, ["one", "two"], 0)


def test_another_instance_runs_the_same_script_again(host):
    service = host.service(says(host, "one"), "127.0.0.1", 8080)
    service.tokens, service.tree = False, {"/latest/meta-data/instance-id": "i-1"}
    host.configure(sources="ec2=http://127.0.0.1:8080")
    for _ in range(2):
        assert (host.once().code, guest(host), said(host)) == (0, 0, ["one"])
    service.tree = {"/latest/meta-data/instance-id": "i-2"}
    assert (host.once().code, guest(host), said(host)) == (0, 0, ["one", "one"])


def test_by_hand_it_runs_at_once_and_not_again(host):
    assert host.once(says(host, "one", "exit 3")).code == 0
    done = host.neuca("run-scripts")
    assert (done.code, done.out.partition(" after ")[0], said(host)) == (
        1,
        "bootscript: exit status 3",
        ["one"],
    )
    assert (guest(host), host.neuca("run-scripts").out, said(host)) == (0, done.out, ["one"])


def test_switched_off_nothing_runs_but_by_hand(host):
    host.configure("[guest]\nscripts = no")
    assert (host.once(says(host, "one")).code, guest(host), said(host)) == (0, 0, [])
    assert (host.neuca("run-scripts").code, said(host)) == (0, ["one"])


def test_the_network_waits_for_no_script_and_status_inside_one_shows_the_network(host):
    """A pass is made, and asked for, while it runs."""
    look = f"{sys.executable} -c '{MAIN.format('neuca')}' status --wait --timeout 60 --config {host.config_file}"
    host.run("mkfifo", host.folder / "go")
    text = says(host, "one", f"PYTHONPATH=$(cat {host.folder}/go) {look}")
    assert host.once(text).code == 0
    before = host.neuca("status").code
    agent = [
        *host.guest.enter,
        sys.executable,
        "-c",
        MAIN.format("neucad"),
        "--guest",
        "--config",
        str(host.config_file),
    ]
    runs = subprocess.Popen(agent, env=host.environment, cwd="/")
    host.wait("it runs", lambda: said(host) == ["one"])
    assert host.status()[1]["state"] == "pending"
    assert host.once(text.replace("172.16.1.1", "172.16.2.1")).code == 0
    assert host.addresses("dp1") == {"172.16.2.1/24"}
    (host.folder / "go").write_text(host.environment["PYTHONPATH"])
    assert runs.wait(60) == 0
    assert before == 3
    assert [
        one["state"] for feature in host.status()[1]["guest"] for one in feature["findings"]
    ] == ["ok"]
