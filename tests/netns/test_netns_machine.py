"""A disk that was another machine's: what that one left is set aside, before any document and with one; and never for a doubt."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import json

import pytest
from lab import mac

TWO = f"""[interface {mac(1)}]
name = data1
addresses = 172.16.1.1/24
[interface {mac(2)}]
name = data2
addresses = 172.16.2.1/24
"""
ID = "/latest/meta-data/instance-id"


@pytest.fixture
def host(lab):
    """A host whose NICs have the names that a document gave them, and which is about to boot without any source."""
    for number in (1, 2):
        lab.veth(f"dp{number}", number)
    assert lab.once(TWO).code == 0
    lab.document_file.unlink()
    return lab


def another_machine(lab):
    """As if all of the state had been written where the machine id and the UUID were others."""
    place = lab.folder / "state" / "machine.json"
    data = json.loads(place.read_text())
    del data["crc32"]
    place.write_text(
        json.dumps({**data, "machine_id": "0" * 32, "uuid": "0" * 32 if data["uuid"] else ""})
    )


def replace_nics(lab, *numbers):
    for name in ("data1", "data2"):
        lab.ip(f"link del {name}")
    for number in numbers:
        lab.veth(f"eth{number}", number)


def aside(lab):
    return sorted(path.name for path in (lab.folder / "state" / "set-aside").glob("*"))


def rules(lab):
    return sorted(path.name for path in (lab.folder / "udev").glob("*neuca*"))


def boot(lab):
    return lab.command("neucad", "--names", "--config", lab.config_file)


RULES = [f"10-neuca-persistent-{mac(number).replace(':', '')}.rules" for number in (1, 2)]
ALL = sorted([*RULES, "document.json", "machine.json", "record.json"])


def test_on_other_hardware_with_other_nics_state_is_set_aside_before_any_metadata(host):
    another_machine(host)
    replace_nics(host, 7, 8)
    assert boot(host).code == 0
    assert (aside(host), rules(host)) == (ALL, [])
    host.configure(sources="ec2=http://127.0.0.1:9")
    code, status = host.status()
    assert (code, status["state"], status["document"]["source"]) == (3, "pending", None)
    note = next(note for note in status["notes"] if "another machine" in note)
    assert (
        f'is in "{host.folder}/state/set-aside", and is not applied: none of its NICs is present, and the '
        in note
    )
    host.configure()
    assert (
        host.once(f"[interface {mac(7)}]\nname = data1\n").code == 0
    )  # no name is kept for a NIC of the other machine
    assert host.link("data1")["address"] == mac(7)


def test_a_daemon_that_nobody_has_started_at_boot_sets_it_aside_too(host):
    another_machine(host)
    replace_nics(host, 7, 8)
    (host.folder / "run" / "last-pass.json").unlink()
    host.start()
    host.wait("it has made a pass", (host.folder / "run" / "last-pass.json").exists)
    assert aside(host) == ALL


def test_a_host_whose_nics_were_all_replaced_is_the_same(host):
    replace_nics(host, 7, 8)
    boot(host)
    assert (aside(host), len(rules(host))) == ([], 2)
    host.once(TWO)


@pytest.mark.parametrize("left", [1, 2])
def test_one_nic_that_is_known_is_enough(host, left):
    """On a reboot with no metadata, whatever else has been removed or replaced."""
    another_machine(host)
    host.ip(f"link del data{3 - left}")
    host.veth("eth7", 7)
    host.ip(f"link set data{left} name tmp")
    assert boot(host).code == 0
    assert (aside(host), host.addresses(f"data{left}")) == ([], {f"172.16.{left}.1/24"})
    host.once(TWO)


def test_names_that_were_permuted_at_a_reboot_without_metadata_are_given_back(host):
    for old, new in (("data1", "tmp"), ("data2", "data1"), ("tmp", "data2")):
        host.ip(f"link set {old} name {new}")
    assert boot(host).code == 0
    assert (aside(host), host.link("data1")["address"], host.link("data2")["address"]) == (
        [],
        mac(1),
        mac(2),
    )
    host.once(TWO)


# --- with a document ------------------------------------------------------------------------------------------------


@pytest.fixture
def cloud(lab):
    """A host whose EC2 service says that it is instance i-1."""
    for number in (1, 2):
        lab.veth(f"dp{number}", number)
    service = lab.service(TWO, "127.0.0.1", 8080)
    service.tokens, service.tree = False, {ID: "i-1"}
    lab.configure(sources="ec2=http://127.0.0.1:8080")
    assert lab.once().code == 0
    return lab


def test_another_instance_id_is_a_first_boot_and_what_was_applied_meanwhile_goes(cloud):
    cloud.ip("address add 10.99.0.1/24 dev data1")
    cloud.metadata.tree = {ID: "i-2"}
    cloud.document(f"[interface {mac(2)}]\naddresses = 172.16.3.1/24\n")
    assert cloud.once().code == 0
    assert aside(cloud) == ALL
    assert (cloud.addresses("data1"), cloud.addresses("data2")) == (
        {"10.99.0.1/24"},
        {"172.16.3.1/24"},
    )
    assert len(rules(cloud)) == 1
    notes = cloud.status()[1]["notes"]
    assert (
        f'what another machine left here is in "{cloud.folder}/state/set-aside", and is not applied:'
        in " ".join(notes)
    )
    assert cloud.metadata.seen(ID) == 3  # a new id is one that two looks have found


def test_nics_that_the_document_of_another_instance_does_not_name_lose_everything_at_once(
    cloud, daemons
):
    both = TWO + "[bridge br0]\naddresses = 172.16.4.1/24\n"
    cloud.document(both.replace("172.16.1.1/24", "172.16.1.1/24\nmtu = 1400\ntxqueuelen = 77"))
    daemons.append(cloud.start())
    cloud.wait("the bridge", lambda: cloud.run("ip", "link", "show", "br0", check=False).code == 0)
    cloud.wait("the MTU", lambda: cloud.link("data1")["mtu"] == 1400)
    cloud.metadata.tree = {ID: "i-2"}
    cloud.document(f"[interface {mac(2)}]\naddresses = 172.16.3.1/24\n")
    cloud.wait("the other document", lambda: cloud.addresses("data2") == {"172.16.3.1/24"})
    cloud.wait("nothing of the first one", lambda: not cloud.addresses("data1"))
    assert (cloud.link("data1")["mtu"], cloud.link("data1")["txqlen"]) == (1500, 1000)
    assert cloud.run("ip", "link", "show", "br0", check=False).code
    cloud.wait("the status", lambda: cloud.status()[1]["state"] == "ok")


def test_no_document_for_another_instance_means_unknown_and_removes_no_address(cloud):
    cloud.metadata.tree = {ID: "i-2"}
    cloud.metadata.document = "#cloud-config\n"
    assert cloud.once().code == 0
    assert (aside(cloud), cloud.addresses("data1"), rules(cloud)) == (ALL, {"172.16.1.1/24"}, [])


@pytest.mark.parametrize("tree", [{ID: "i-1"}, {ID: "<html>"}, {}])
def test_the_same_id_or_none_is_the_same_instance(cloud, tree):
    cloud.metadata.tree = tree
    assert cloud.once().code == 0
    assert (aside(cloud), cloud.addresses("data1")) == ([], {"172.16.1.1/24"})


def test_a_service_that_is_silent_says_nothing_of_the_instance(cloud):
    cloud.metadata.mode = "500"
    cloud.once()
    assert (aside(cloud), cloud.addresses("data1")) == ([], {"172.16.1.1/24"})
    cloud.metadata.recover()
    assert cloud.once().code == 0
