"""`neuca collect-logs`: what somebody else needs to find out what happened here, and no secret of the document."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import json
import shutil
import tarfile

import pytest
from lab import mac

DOCUMENT = f"""[global]
host_name = node7
management_token = Sesame-1
[interface {mac(1)}]
addresses = 172.16.1.1/24
[users]
alice = no:ssh-ed25519 Sesame-2
[scripts]
bootscript = #!/bin/sh
    echo Sesame-3
"""


def collected(lab, *words, code=0):
    """The parts of the tar by name, and what was said about those that could not be had."""
    file = lab.folder / "logs.tar.gz"
    done = lab.neuca("collect-logs", "--output", file, *words)
    assert (done.code, done.out) == (code, f"{file}\n")
    assert file.stat().st_mode & 0o777 == 0o600
    with tarfile.open(file) as tar:
        assert {name.partition("/")[0].startswith("neuca-logs-") for name in tar.getnames()} == {
            True
        }
        return {
            name.partition("/")[2]: tar.extractfile(name).read().decode() for name in tar.getnames()
        }, done.err


def test_it_has_the_stages_the_files_and_what_the_kernel_says_and_no_secret(lab):
    lab.veth("dp1", 1)
    assert lab.once(DOCUMENT).code == 0
    lab.ip("link set dp1 mtu 1400")
    parts, said = collected(lab)
    status = json.loads(parts["status.json"])
    assert [one["name"] for one in status["interfaces"] if one["mac"] == mac(1)] == ["dp1"]
    assert json.loads(parts["plan.json"]) == {"version": 1, "operations": []}
    assert json.loads(parts["desired.json"])["hostname"] == "node7"
    assert "172.16.1.1" in parts["observed.json"]
    assert "172.16.1.1/24" in parts["links.txt"]
    assert "proto" in parts["routes.txt"]
    assert all("from all lookup main" in parts[name] for name in ("rules.txt", "rules6.txt"))
    assert parts["version.txt"].startswith("NEuca version ")
    assert parts[f"files{lab.config_file}"] == lab.config_file.read_text()
    for name in ("state/record.json", "run/last-pass.json", "run/document.json"):
        assert json.loads(parts[f"files{lab.folder / name}"])
    assert f"files{lab.folder}/state/document.json" not in parts
    assert [name for name, text in parts.items() if "Sesame" in text] == []
    assert "Sesame" not in said


def test_what_cannot_be_had_says_why_and_costs_only_itself(lab):
    lab.veth("dp1", 1)
    assert lab.once(DOCUMENT).code == 0
    record = lab.folder / "state" / "record.json"
    before = record.read_text()
    record.write_text("{")
    parts, said = collected(lab)
    assert parts["status.json"].startswith(f'read "{record}": it is not JSON: ')
    assert f'neuca: collect status.json: read "{record}": it is not JSON: ' in said
    assert "172.16.1.1/24" in parts["links.txt"]
    record.write_text(before)


@pytest.mark.parametrize("name", ["guest-users.json", "guest-storage.json"])
def test_no_record_that_only_root_may_read_is_needed(lab, name):
    """Other users may collect logs, and a record that is damaged is a reason to collect them."""
    lab.veth("dp1", 1)
    assert lab.once(DOCUMENT).code == 0
    record = lab.folder / "state" / name
    record.write_text("{")
    parts, said = collected(lab)
    assert f"files{lab.folder}/state/record.json" in parts
    assert name not in said
    record.unlink()


@pytest.mark.parametrize(
    ("status", "part"),
    [
        (0, "states\n"),
        (3, "states\n"),
        (4, "collect services.txt: systemctl ended with status 4: states\n"),
    ],
)
def test_the_services_are_known_although_one_of_them_does_not_run(lab, status, part):
    """systemctl(1) ends with status 3 then."""
    stub = lab.folder / "systemctl"
    stub.write_text(f"#!/bin/sh\necho states\nexit {status}\n")
    stub.chmod(0o755)
    lab.run("mount", "--bind", stub, shutil.which("systemctl"))
    parts, said = collected(lab)
    assert parts["services.txt"] == part
    assert ("services.txt" in said) == (status == 4)


def test_a_directory_that_cannot_be_listed_costs_only_its_files(lab):
    log = f"{lab.folder}/{'x' * 300}"
    text = lab.config_file.read_text()
    lab.config_file.write_text(text.replace(f"{lab.folder}/log\n", f"{log}\n"))
    parts, said = collected(lab)
    assert parts["files.txt"] == f'list "{log}": File name too long\n'
    assert f"neuca: collect files.txt: {parts['files.txt']}" in said
    assert f"files{lab.config_file}" in parts


def test_a_place_that_cannot_be_written_to_is_an_error(lab):
    done = lab.neuca("collect-logs", "--output", lab.config_file / "logs.tar.gz")
    assert (done.code, done.out) == (1, "")
    assert done.err.splitlines()[-1].startswith("neuca: write ")


def test_a_link_and_a_file_of_roots_own_are_not_collected(lab):
    drop_in = lab.config_file.parent / "config.d"
    drop_in.mkdir()
    (drop_in / "10-secret.conf").write_text("# Sesame\n")
    (drop_in / "10-secret.conf").chmod(0o600)
    (lab.folder / "run").mkdir(exist_ok=True)
    (lab.folder / "run" / "last-pass.json").symlink_to("/etc/hostname")
    parts, _ = collected(lab)
    assert f"files{drop_in}/10-secret.conf" not in parts
    assert f"files{lab.folder}/run/last-pass.json" not in parts
    assert f"files{lab.config_file}" in parts


def test_what_scripts_say_stays_out_whatever_the_mode_and_the_agents_own_log_is_in(lab):
    """As on a host without systemd, after an earlier version that made these files readable for everybody."""
    lab.veth("dp1", 1)
    assert lab.once(DOCUMENT).code == 0
    secrets = (
        "log/neuca-guest.out",
        "log/script-bootscript-0.log",
        "state/scripts/bootscript-0",
        "state/scripts/bootscript-0.json",
        "state/document.json",
        "state/set-aside/document.json",
        "state/guest-storage.json",
        "run/unsaved/document.json",
    )
    for name in secrets:
        path = lab.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if not path.exists():
            path.write_text("Sesame-4\n")
        path.chmod(0o644)  # the next pass makes it 0600 again
    own = lab.folder / "log" / "neucad.out"
    own.write_text("bring dp1 up\n")
    own.chmod(0o600)
    (lab.folder / "state" / "guest-storage.json").write_text('{"version": 1, "disks": {}}')
    parts, _ = collected(lab)
    assert [name for name in secrets if f"files{lab.folder}/{name}" in parts] == []
    assert [name for name, text in parts.items() if "Sesame" in text] == []
    assert parts[f"files{own}"] == "bring dp1 up\n"
    for name in secrets:
        if name != "state/document.json":
            (lab.folder / name).unlink()
    own.unlink()
    assert lab.once().code == 0
