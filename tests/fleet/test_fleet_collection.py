"""The Ansible collection: its linters, its modules on this machine, and its roles on hosts that are namespaces."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from programs import script

ROOT = Path(__file__).parents[2]
BOTH = pytest.mark.parametrize(
    "ansible",
    ["requirements.txt", pytest.param("requirements-oldest.txt", marks=pytest.mark.long)],
    indirect=True,
)
LINT = pytest.mark.parametrize("ansible", ["requirements-lint.txt"], indirect=True)
SECRET = "a secret of sixteen bytes and more"
PLAY = """
- hosts: localhost
  connection: local
  gather_facts: false
  tasks:
    - neuca.guest.config:
        path: "{{ place }}"
        state: "{{ state | default('present') }}"
        options: "{{ options | default({}) }}"
        links:
          - section: interface fe:16:3e:00:6d:af
            settings: {mtu: "{{ mtu }}"}
"""


def recap(output):
    """The numbers of the last lines of a playbook's output, by host."""
    lines = re.findall(r"^(\S+) +: (ok=.*)$", output, re.MULTILINE)
    return {host: dict(re.findall(r"(\w+)=(\d+)", words)) for host, words in lines}


@pytest.fixture
def config(ansible, tmp_path):
    """Runs the module neuca.guest.config on this machine, where `neuca` is this checkout."""
    (tmp_path / "bin").mkdir()
    neuca = tmp_path / "bin" / "neuca"
    neuca.write_text(script("neuca"))
    neuca.chmod(0o755)
    (tmp_path / "play.yml").write_text(PLAY)

    def run(*words, **given):
        values = {"place": str(tmp_path / "file"), "mtu": 9000, **given}
        values["ansible_python_interpreter"] = sys.executable
        path = f"{tmp_path}/bin:{ansible.programs}:/usr/bin:/bin"
        words = ["-e", json.dumps(values), *words, tmp_path / "play.yml"]
        return ansible("ansible-playbook", *words, PATH=path)

    return run


@BOTH
def test_the_configuration_is_written_once_checked_and_removed(config, tmp_path):
    file = tmp_path / "file"
    options = {"network": {"drift": "enforce"}, "metadata": {"poll_interval": 5}}
    would = config("--check", "--diff", options=options)
    assert (recap(would.stdout)["localhost"]["changed"], file.exists()) == ("1", False)
    assert "+drift = enforce" in would.stdout.splitlines()
    done = config("--diff", options=options)
    assert recap(done.stdout)["localhost"]["changed"] == "1"
    text = file.read_text()
    assert "[metadata]\npoll-interval = 5\n\n[network]\ndrift = enforce\n" in text
    assert file.stat().st_mode & 0o7777 == 0o644
    assert recap(config(options=options).stdout)["localhost"]["changed"] == "0"
    wrong = config(options=options, mtu="wide")
    assert wrong.returncode == 2
    assert (
        'would not be valid: [interface fe:16:3e:00:6d:af] \\"mtu\\" = \\"wide\\"' in wrong.stdout
    )
    unknown = config(options={"network": {"drifts": "enforce"}})
    assert (unknown.returncode, "network.drifts" in unknown.stdout) == (2, True)
    other = config(options={"network": {"drift": "never"}})
    assert (other.returncode, "must be one of" in other.stdout) == (2, True)
    assert file.read_text() == text
    assert recap(config(state="absent").stdout)["localhost"]["changed"] == "1"
    assert not file.exists()
    assert recap(config(state="absent").stdout)["localhost"]["changed"] == "0"


MEASURE = """
- hosts: localhost
  connection: local
  gather_facts: false
  tasks:
    - neuca.guest.selftest: {peer: 127.0.0.1}
"""


@BOTH
def test_a_self_test_that_cannot_start_says_why(config, tmp_path):
    (tmp_path / "play.yml").write_text(MEASURE)
    done = config()
    assert done.returncode == 2
    said = '"msg": "neuca-selftest: test 127.0.0.1: it is an address of this host"'
    assert said in done.stdout, done.stdout


@BOTH
def test_the_collection_is_installed_from_the_file_that_is_built(ansible, tmp_path):
    """As its README says, without a network, and into the home of a user."""
    built = ansible("ansible-galaxy", "collection", "build", "--output-path", tmp_path)
    assert built.returncode == 0, built.stdout
    (file,) = tmp_path.glob("neuca-guest-*.tar.gz")
    place = tmp_path / "home"
    own = {"ANSIBLE_COLLECTIONS_PATH": str(place)}
    installed = ansible("ansible-galaxy", "collection", "install", "--offline", file, **own)
    assert installed.returncode == 0, installed.stdout
    (found,) = place.glob("ansible_collections/neuca/guest")
    assert not list(found.glob(".*")), "files of the work tree are no part of the collection"
    assert (found / "examples" / "three_hosts" / "ssh").stat().st_mode & 0o111
    listed = ansible("ansible-doc", "--list", "neuca.guest", **own)
    assert re.findall(r"^neuca\.guest\.(\w+)", listed.stdout, re.MULTILINE) == [
        *("apply", "config", "plan_info", "selftest", "status_info"),
    ]


@pytest.mark.long
@LINT
def test_the_production_profile_of_ansible_lint_is_content(ansible):
    done = ansible("ansible-lint", "--offline", "--profile", "production", "--nocolor")
    assert (done.returncode, done.stdout[-2000:]) == (0, done.stdout[-2000:])
    assert "Profile 'production' was required, and it passed." in done.stdout


# ansible-test makes virtual environments, and downloads what puts pip into them unless it is here.
BOOTSTRAP = """import runpy, sys
sys.argv = ["ensurepip", "--default-pip"]
runpy.run_module("ensurepip", run_name="__main__")
"""


@pytest.mark.long
@LINT
def test_the_sanity_tests_of_ansible_are_content(ansible):
    cache = ansible.home / ".ansible" / "test" / "cache"
    cache.mkdir(parents=True)
    (cache / "get_pip_24_2.py").write_text(BOOTSTRAP)
    done = ansible("ansible-test", "sanity", "--python", "default", "--color", "no")
    if done.returncode:
        pytest.fail(done.stdout[-8000:], pytrace=False)


@pytest.mark.long
@LINT
def test_the_integration_tests_of_the_collection_pass(ansible):
    words = ("integration", "--python", "default", "--color", "no", "config")
    done = ansible("ansible-test", *words)
    if done.returncode:
        pytest.fail(done.stdout[-8000:], pytrace=False)


LOOK = """
- hosts: localhost
  connection: local
  gather_facts: false
  tasks:
    - neuca.guest.status_info: {config: "{{ place }}"}
      register: found
    - neuca.guest.plan_info: {config: "{{ place }}"}
      register: planned
    - debug: {msg: "codes {{ found.rc }} {{ planned.rc }}"}
"""


@BOTH
def test_a_host_that_is_not_as_requested_does_not_fail_the_modules_that_look(config, tmp_path):
    text = f"[runtime]\nstate-directory = {tmp_path}\nrun-directory = {tmp_path}\n"
    text += "[linux]\nmanagers = none\n[metadata]\nsources = none\n[network]\ndrift = never\n"
    (tmp_path / "file").write_text(text)
    (tmp_path / "play.yml").write_text(LOOK)
    done = config()
    assert done.returncode == 0, done.stdout
    assert '"msg": "codes 78 78"' in done.stdout


APPLY = """
- hosts: localhost
  connection: local
  gather_facts: false
  tasks:
    - neuca.guest.apply: {config: "{{ place }}"}
"""


def test_a_pass_that_has_nothing_to_do_has_the_result_of_neuca_apply(config, tmp_path):
    text = f"[runtime]\nstate-directory = {tmp_path}\nrun-directory = {tmp_path}\n"
    text += "".join(
        f"[linux]\n{name}-directory = {tmp_path}\n"
        for name in ("udev", "networkmanager", "networkd", "sysctl")
    )
    text += "[linux]\nmanagers = none\n[metadata]\nsources = none\n[network]\ndrift = never\n[tuning]\nprofile = none\n"
    (tmp_path / "file").write_text(text)
    (tmp_path / "play.yml").write_text(APPLY)
    neuca = tmp_path / "bin" / "neuca"
    neuca.rename(tmp_path / "neuca")
    words = f"unshare --user --map-root-user --net {tmp_path}/neuca"
    neuca.write_text(f'#!/bin/sh\nexec {words} "$@"\n')  # a network of its own, without NICs
    neuca.chmod(0o755)
    assert config("--check").returncode == 0
    done = config()
    assert done.returncode == 2, done.stdout
    assert '"operations": [], "rc": 78' in done.stdout


@pytest.fixture(scope="session")
def package(tmp_path_factory):
    place = tmp_path_factory.mktemp("package")
    subprocess.run([ROOT / "packaging" / "build-deb", place], check=True, timeout=1200)
    return next(place.glob("*.deb"))


@pytest.fixture
def hosts(tmp_path):
    """The three hosts of the documentation."""
    example = ROOT / "ansible" / "examples" / "three_hosts"
    environment = {**os.environ, "NEUCA_LAB": str(tmp_path / "lab")}

    def lab(*words):
        return subprocess.run(
            [example / "lab", *words], env=environment, capture_output=True, text=True,
            timeout=600, check=False,
        )  # fmt: skip

    assert lab("up").returncode == 0
    yield lab
    lab("down")
    assert not (tmp_path / "lab").exists()


@pytest.mark.long
@BOTH
def test_the_roles_install_configure_apply_and_test_three_hosts(ansible, hosts, package, tmp_path):
    example = ansible.collection / "examples" / "three_hosts"
    before = subprocess.run(["ip", "address"], capture_output=True, text=True, check=True).stdout

    def play(name, *words):
        return ansible(
            "ansible-playbook", "-i", example / "hosts.yml", *words, example / name,
            NEUCA_PACKAGE=f"{package.parent}/neuca-guest-tools_*_all.deb", NEUCA_LAB=str(tmp_path / "lab"),
        )  # fmt: skip

    fresh = play("site.yml", "--check", "--diff")
    assert fresh.returncode == 0, fresh.stdout
    assert hosts("enter", "h1", "sh", "-c", "command -v neuca").returncode != 0
    first = play("site.yml", "--diff")
    assert first.returncode == 0, first.stdout
    assert "+add the address 172.16.0.1/24 to data0" in first.stdout.splitlines()
    text = hosts("enter", "h1", "neuca", "status").stdout
    assert "no document (the configuration names no source (sources = none))" in text
    for number in (1, 2, 3):
        status = json.loads(hosts("enter", f"h{number}", "neuca", "status", "--json").stdout)
        assert status["state"] == "ok"
    second = play("site.yml", "--diff")
    assert {host["changed"] for host in recap(second.stdout).values()} == {"0"}
    hosts("enter", "h2", "ip", "link", "set", "data0", "mtu", "1500")
    would = play("site.yml", "--check", "--diff")
    assert "+set the MTU of data0 from 1500 to 1400" in would.stdout.splitlines()
    assert [one["changed"] for one in recap(would.stdout).values()] == ["0", "1", "0"]
    assert [one["changed"] for one in recap(play("site.yml").stdout).values()] == ["0", "1", "0"]
    absent = [{"section": "interface fe:16:3e:00:02:99", "settings": {"state": "up"}}]
    given = {"neuca_configure_links": absent, "neuca_apply_require": ["degraded"]}
    degraded = play("site.yml", "--limit", "h3", "-e", json.dumps(given))
    assert degraded.returncode == 0, degraded.stdout
    given["neuca_apply_require"] = ["ok"]
    refused = play("site.yml", "--limit", "h3", "-e", json.dumps(given)).stdout
    assert "neuca status is degraded: no NIC has the MAC" in refused
    assert play("site.yml").returncode == 0
    words = [
        "--diff",
        "-vvv",
        "-e",
        json.dumps({"neuca_selftest_secret": SECRET, "neuca_selftest_rate": "20M"}),
    ]
    measured = play("selftest.yml", *words)
    assert measured.returncode == 0, measured.stdout
    # The command line of this very run shows the variables that it was given.
    assert SECRET not in measured.stdout
    assert re.search(r'"neuca_selftest_result.summary": "pass: tcp [0-9.]+ Mbit/s', measured.stdout)
    assert hosts("enter", "h1", "pgrep", "--full", "neuca-selftest serve").returncode == 1
    healthy = play("mesh.yml", "-e", json.dumps({"neuca_mesh_secret": SECRET}))
    assert healthy.returncode == 0, healthy.stdout
    assert "MESH pass: 3 of 3 tests" in healthy.stdout
    assert re.search(r"PAIRS +3 of 3 pass, at [0-9.]+ Mbit/s to [0-9.]+ Mbit/s", healthy.stdout)
    assert "RETRYING" not in healthy.stdout
    assert SECRET not in healthy.stdout
    shape = "tc qdisc add dev data0 root tbf rate 10mbit burst 16kb latency 50ms"
    assert hosts("enter", "h2", *shape.split()).returncode == 0
    slow = play("mesh.yml", "-e", json.dumps({"neuca_mesh_expect": "50M"}))
    # Three hosts are too few for a retest against others that are cleared: it is only suspected.
    assert "The mesh: " in slow.stdout
    assert re.findall(r"SUSPECTED +(.*): what it sends", slow.stdout) == ["slow-egress h2 (out)"]
    assert re.search(r"rate [0-9.]+ Mbit/s \(expected 50.0 Mbit/s\)", slow.stdout)
    words[-1] = json.dumps({"neuca_selftest_expect": "20M"})
    limited = play("selftest.yml", *words)
    assert limited.returncode == 2, limited.stdout
    assert '"msg": "the self-test to 172.16.0.1: below threshold: tcp ' in limited.stdout
    words = ("--limit", "h3", "-e", json.dumps({"dataplane_address": "172.16.0.9"}))
    moved = play("site.yml", "--diff", *words).stdout.splitlines()
    assert "+add the address 172.16.0.9/24 to data0" in moved
    after = subprocess.run(["ip", "address"], capture_output=True, text=True, check=True).stdout
    assert re.sub(r"valid_lft \w+", "", after) == re.sub(r"valid_lft \w+", "", before)
