"""Azure, Oracle Cloud, Compute Engine, Hetzner and Alibaba: services that refuse what the real ones refuse."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import base64
import contextlib
import gzip
import itertools
import json
import os
import socket
import threading
from pathlib import Path

import pytest
from cloudmocks import FORWARDED, Strict
from platforms import combined, faults, hints, links, made, routes
from sources_server import Server, http

from neuca_tools.documents import find_document, parse
from neuca_tools.errors import DocumentError, SourceError, UsageError
from neuca_tools.model import PlatformDocument
from neuca_tools.model.routing import Traits
from neuca_tools.sources import (
    Session,
    Surroundings,
    ask_sources,
    hypervisors,
    metadata_hosts,
    parse_source,
)
from neuca_tools.sources.base import Deadline
from neuca_tools.state.active_document import fetch_document, keep_document

LONG = 300
DATA = b"[global]\n"
BASE64 = base64.b64encode(DATA).decode()


def azure(address, prefix, subnet, mac, **ipv6):
    ipv4 = {
        "ipAddress": [{"privateIpAddress": one, "publicIpAddress": ""} for one in address],
        "subnet": [{"address": subnet, "prefix": prefix}],
    }
    return {"macAddress": mac, "ipv4": ipv4, "ipv6": {"ipAddress": [], **ipv6}}


AZURE = {
    "compute": {"vmId": "5c08b38e-4d57-4c23-ac45-aca61037f084", "userData": BASE64},
    "network": {
        "interface": [
            azure(["10.1.2.4"], "24", "10.1.2.0", "000D3A0A0B0C"),
            azure(
                ["10.1.3.4", "10.1.3.5"],
                "24",
                "10.1.3.0",
                "000D3A0A0B0D",
                ipAddress=[{"privateIpAddress": "ace:cab:deca::4"}],
            ),
            azure([], "16", "10.2.0.0", "000D3A0A0B0E"),
        ]
    },
}
ORACLE_NICS = [
    {
        "privateIp": "10.0.0.5",
        "vlanTag": 1036,
        "macAddr": "02:00:17:05:D1:DB",
        "virtualRouterIp": "10.0.0.1",
        "subnetCidrBlock": "10.0.0.0/24",
    },
    {
        "privateIp": "10.0.4.5",
        "vlanTag": 1,
        "macAddr": "02:00:17:AA:BB:CC",
        "virtualRouterIp": "10.0.4.1",
        "subnetCidrBlock": "10.0.4.0/24",
        "ipv6Addresses": ["2603:c020:400d:5dbb::7"],
        "ipv6SubnetCidrBlock": "2603:c020:400d:5dbb::/64",
        "ipv6VirtualRouterIp": "fe80::200:17ff:feaa:bbcc",
    },
    {
        "macAddr": "02:00:17:AA:BB:CD",
        "subnetCidrBlock": "<null>",
        "virtualRouterIp": "<null>",
        "ipv6Addresses": ["2603:c020:400d:5dcc::7"],
    },
]
ORACLE = {"id": "ocid1.instance.oc1.phx.abc", "metadata": {"user_data": BASE64}}
GCE = {
    "id": 8812345678901234567,
    "attributes": {"user-data": DATA.decode(), "ssh-keys": "me:ssh-ed25519 AAAA"},
    "networkInterfaces": [
        {"mac": "42:01:0a:02:00:03", "ip": "10.2.0.3", "gateway": "10.2.0.1", "mtu": 1460},
        {
            "mac": "42:01:0a:03:00:03",
            "ip": "10.3.0.3",
            "subnetmask": "255.255.240.0",
            "gateway": "10.3.0.1",
            "mtu": 8896,
            "ipAliases": ["10.24.3.0/24", "10.24.4.7/32"],
            "forwardedIps": ["203.0.113.9"],
            "ipv6s": ["2600:1900:4000:1::"],
        },
    ],
    "vlanNetworkInterfaces": {
        "1": {"5": {"mac": "42:01:0a:04:00:03", "vlan": 5, "mtu": 1460, "ip": "10.4.0.3"}}
    },
}
HETZNER = b"""
- ip: 10.0.0.2
  alias_ips: [10.0.0.3, 10.0.0.4]
  interface_num: 1
  mac_address: 86:00:00:2a:7d:e0
  network_id: 1234
  network_name: nw-test1
  network: 10.0.0.0/8
  subnet: 10.0.0.0/24
  gateway: 10.0.0.1
"""


def serving(play):
    """A server for one of the services of `cloudmocks`."""
    return Server(lambda request: answer(play, request))


def answer(play, request):
    status, body, lines = play.reply(request.method, request.path, request.headers)
    return http(status, body, *lines)


def services(**more):
    return {
        "azure": Strict(
            {"/metadata/instance?api-version=2021-08-01": AZURE}, {"Metadata": "true"}, **more
        ),
        "oracle": Strict(
            {"/opc/v2/instance/": ORACLE, "/opc/v2/vnics/": ORACLE_NICS},
            {"Authorization": "Bearer Oracle"},
            404,
            **more,
        ),
        "gce": Strict(
            {"/computeMetadata/v1/instance/?recursive=true&alt=json": GCE},
            {"Metadata-Flavor": "Google"},
            403,
            ("Metadata-Flavor: Google",),
            **more,
        ),
        "hetzner": Strict(
            {
                "/hetzner/v1/metadata/instance-id": b"41234567",
                "/hetzner/v1/metadata/private-networks": HETZNER,
                "/hetzner/v1/userdata": DATA,
            },
            **more,
        ),
    }


IDS = {
    "azure": "azure:5c08b38e-4d57-4c23-ac45-aca61037f084",
    "oracle": "oracle:ocid1.instance.oc1.phx.abc",
    "gce": "gce:8812345678901234567",
    "hetzner": "hetzner:41234567",
}


def ask(text):
    return ask_sources([parse_source(text)], LONG, Session())


def document(answer):
    return combined.parse(combined.reduce_documents(answer.parts))


def serve(kind, **more):
    return serving(services(**more)[kind])


@pytest.mark.parametrize("kind", IDS)
def test_each_service_gets_the_headers_that_it_demands(kind):
    with serve(kind) as server:
        answer = ask(f"{kind}={server.url}")
    assert (answer.data, answer.instance) == (DATA, IDS[kind])
    assert not document(answer).faults or kind == "gce"


@pytest.mark.parametrize("header", FORWARDED)
@pytest.mark.parametrize("kind", IDS)
def test_each_mock_refuses_what_a_proxy_sent_on(kind, header):
    play = services()[kind]
    path, headers = next(iter(play.paths)), dict(play.needs)
    assert play.reply("GET", path, headers)[0] == 200
    assert play.reply("GET", path, {**headers, header: "10.0.0.1"})[0] == play.refusal


@pytest.mark.parametrize("status", [404, 410, 429, 500, 503])
@pytest.mark.parametrize("kind", IDS)
def test_a_service_that_is_busy_is_an_error_and_not_empty(kind, status):
    with serve(kind, status=status) as server, pytest.raises(SourceError) as caught:
        ask(f"{kind}={server.url}")
    assert f"HTTP {status}" in str(caught.value)


@pytest.mark.parametrize("body", [b"", b"{", b"[" * 100_000, b"no"])
@pytest.mark.parametrize("kind", ["azure", "oracle", "gce"])
def test_an_answer_that_is_not_json_is_an_error(kind, body):
    play = services()[kind]
    play.paths = dict.fromkeys(play.paths, body)
    with serving(play) as server, pytest.raises(SourceError) as caught:
        ask(f"{kind}={server.url}")
    assert "the response is not JSON" in str(caught.value)


def test_azure_is_asked_for_an_older_version_where_the_newer_is_unknown():
    class Older(Strict):
        def reply(self, method, path, headers):
            return super().reply(method, path, headers) if "2019" in path else (400, b"", ())

    old = {"compute": {"vmId": "x"}, "network": AZURE["network"]}
    play = Older({"/metadata/instance?api-version=2019-06-01": old}, {"Metadata": "true"})
    with serving(play) as server:
        answer = ask(f"azure={server.url}")
    assert (answer.data, answer.instance, len(document(answer).links)) == (None, "azure:x", 3)


@pytest.mark.parametrize("text", ["%%%", "A"])
def test_user_data_that_is_not_base64_is_an_error(text):
    play = services()["azure"]
    play.paths = {path: {"compute": {"userData": text}} for path in play.paths}
    with serving(play) as server, pytest.raises(SourceError) as caught:
        ask(f"azure={server.url}")
    assert "the user-data of azure is not base64" in str(caught.value)


@pytest.mark.parametrize("identity", ["null", "{}", "[7]", "1.5"])
def test_an_instance_id_is_a_text_or_a_number(identity):
    """Otherwise the next answer, with the real one, would be that of another machine."""
    body = b'{"instance-v2-id": %s, "droplet_id": 7}' % identity.encode()
    with Server(lambda _: http(200, body)) as server:
        assert ask(f"vultr={server.url}").instance == ""
        assert ask(f"digitalocean={server.url}").instance == "digitalocean:7"


def test_an_answer_without_the_header_of_google_is_not_google_s():
    play = services()["gce"]
    play.headers = ()
    with serving(play) as server, pytest.raises(SourceError) as caught:
        ask(f"gce={server.url}")
    assert "the response lacks Metadata-Flavor: Google" in str(caught.value)


def test_hetzner_without_private_networks_and_user_data():
    play = services()["hetzner"]
    play.paths = {**play.paths, "/hetzner/v1/metadata/private-networks": b""}
    del play.paths["/hetzner/v1/userdata"]
    with serving(play) as server:
        answer = ask(f"hetzner={server.url}")
    assert (answer.data, dict(answer.parts), answer.instance) == (None, {}, IDS["hetzner"])


# --- what the documents mean ------------------------------------------------------------------------------------------


def read(kind) -> PlatformDocument:
    with serve(kind) as server:
        return document(ask(f"{kind}={server.url}"))


def test_no_nic_of_azure_is_the_primary_one_by_its_position():
    found = read("azure")
    assert {hint.firm for hint in found.management} == {False}
    assert hints(found).keys() == links(found).keys()
    assert links(found) == {
        "00:0d:3a:0a:0b:0c": ("up", None, None, ["10.1.2.4/24"]),
        "00:0d:3a:0a:0b:0d": (
            "up",
            None,
            None,
            ["10.1.3.4/24", "10.1.3.5/24", "ace:cab:deca::4/128"],
        ),
        "00:0d:3a:0a:0b:0e": ("up", None, None, []),
    }


def test_oracle_s_vlan_tags_of_virtual_machines_mean_nothing():
    found = read("oracle")
    assert hints(found) == {"02:00:17:05:d1:db": "it is the primary NIC of the instance"}
    assert {key: addresses for key, (*_, addresses) in links(found).items()} == {
        "02:00:17:05:d1:db": [],
        "02:00:17:aa:bb:cc": ["10.0.4.5/24", "2603:c020:400d:5dbb::7/64"],
        "02:00:17:aa:bb:cd": ["2603:c020:400d:5dcc::7/64"],
    }


def test_on_oracle_s_bare_metal_a_vlan_tag_is_a_vlan_of_the_nic_with_that_index():
    nics = [
        {**ORACLE_NICS[0], "nicIndex": 0, "vlanTag": 0},
        {**ORACLE_NICS[1], "nicIndex": 0, "vlanTag": 3},
        {**ORACLE_NICS[1], "nicIndex": 1, "vlanTag": 4, "macAddr": "02:00:17:AA:BB:CE"},
    ]
    found = combined.parse(
        combined.reduce_documents({"OCI VNICs": json.dumps({"vnics": nics}).encode()})
    )
    assert [str(one.key) for one in found.links] == ["02:00:17:05:d1:db", "02:00:17:05:d1:db.3"]
    assert [link.mtu for link in found.links] == [9000, 9000]
    assert found.links[1].virtual.option("mac") == "02:00:17:aa:bb:cc"
    assert faults(found) == [
        'error: OCI VNICs "vnics[2].nicIndex" = "1": no VNIC is the physical NIC, ignoring the VLAN'
    ]


HOST_BITS = {
    "Azure instance": {
        "network": {"interface": [azure(["10.1.3.4"], "24", "10.1.3.7", "000D3A0A0B0D")]}
    },
    "EC2 network": {
        "macs": {
            "02:00:00:00:00:01": {
                "local-ipv4s": "10.1.3.4",
                "subnet-ipv4-cidr-block": "10.1.3.7/24",
            }
        }
    },
    "OCI VNICs": {"vnics": [ORACLE_NICS[0], {**ORACLE_NICS[1], "subnetCidrBlock": "10.0.4.9/24"}]},
}


@pytest.mark.parametrize("kind", HOST_BITS)
def test_host_bits_of_a_subnet_are_masked(kind):
    found = made(kind, json.dumps(HOST_BITS[kind]))
    *_, (*_, addresses) = links(found).values()
    assert addresses[0] in ("10.1.3.4/24", "10.0.4.5/24")
    assert faults(found) == []


def test_an_address_of_compute_engine_has_its_full_length():
    found = read("gce")
    assert hints(found) == {"42:01:0a:02:00:03": "it is the primary NIC of the instance"}
    assert links(found) == {
        "42:01:0a:02:00:03": ("up", None, 1460, []),
        "42:01:0a:03:00:03": (
            "up",
            None,
            8896,
            ["10.3.0.3/32", "2600:1900:4000:1::/128", "10.24.4.7/32", "203.0.113.9/32"],
        ),
        "42:01:0a:03:00:03.5": ("up", None, 1460, ["10.4.0.3/32"]),
    }
    assert ["10.24.3.0/24 is a range" in text for text in faults(found)] == [True]


def test_the_subnet_of_a_nic_of_compute_engine_is_reached_through_its_gateway():
    found = read("gce")
    assert routes(found) == [("10.3.0.0/20", "10.3.0.1", "42:01:0a:03:00:03")]
    assert found.routes[0].traits == Traits(onlink=True)


def test_the_ipv6_range_of_a_nic_of_compute_engine_is_no_news():
    nic = {"mac": "42:01:0a:03:00:03", "ipv6s": ["fd20:ce:1:0:0:1:0:0"]}
    nics = [{"mac": "42:01:0a:02:00:03"}, {**nic, "ipv6": ["fd20:ce:1:0:0:1::/96"]}]
    found = made("GCE instance", json.dumps({"networkInterfaces": nics}))
    assert links(found)["42:01:0a:03:00:03"][3] == ["fd20:ce:1::1:0:0/128"]
    assert faults(found) == []


def test_hetzner_s_private_networks_are_routed_through_their_gateway():
    found = read("hetzner")
    addresses = ["10.0.0.2/32", "10.0.0.3/32", "10.0.0.4/32"]
    assert links(found) == {"86:00:00:2a:7d:e0": ("up", None, 1450, addresses)}
    assert routes(found) == [("10.0.0.0/8", "10.0.0.1", "86:00:00:2a:7d:e0")]


def test_no_secret_of_a_document_is_kept():
    with serve("gce") as server:
        assert "ssh-ed25519" not in combined.reduce_documents(ask(f"gce={server.url}").parts)
    with serve("azure") as server:
        assert BASE64 not in combined.reduce_documents(ask(f"azure={server.url}").parts)


# --- Alibaba ----------------------------------------------------------------------------------------------------------

PRIMARY, SECOND = "00:16:3e:08:2b:f0", "00:16:3e:08:2b:f1"
MACS = "network/interfaces/macs"
TREE = {
    "instance-id": "i-bp13k0ajbmxxx",
    "mac": PRIMARY,
    f"{MACS}/": f"{PRIMARY}/\n{SECOND}/",
    f"{MACS}/{PRIMARY}/": "private-ipv4s\n",
    f"{MACS}/{PRIMARY}/private-ipv4s": '["172.16.101.215"]',
    f"{MACS}/{SECOND}/": "gateway\nnetmask\nprivate-ipv4s\nvswitch-cidr-block\n",
    f"{MACS}/{SECOND}/private-ipv4s": '["172.16.102.215", "172.16.102.216"]',
    f"{MACS}/{SECOND}/vswitch-cidr-block": "172.16.102.0/24",
    f"{MACS}/{SECOND}/gateway": "172.16.102.253",
}


def alibaba(request):
    if request.method == "PUT":
        assert request.headers["X-aliyun-ecs-metadata-token-ttl-seconds"] == "21600"
        return http(200, b"secret")
    if request.headers.get("X-aliyun-ecs-metadata-token") != "secret":
        return http(403)
    found = TREE.get(request.path[len("/latest/meta-data/") :])
    return http(404) if found is None else http(200, found.encode())


def test_alibaba_s_tree_has_its_own_names_and_tokens():
    with Server(alibaba) as server:
        answer = ask(f"alibaba={server.url}")
    assert answer.instance == "alibaba:i-bp13k0ajbmxxx"
    found = document(answer)
    assert hints(found) == {PRIMARY: "it is the primary NIC of the instance"}
    assert links(found)[SECOND][3] == ["172.16.102.215/24", "172.16.102.216/24"]


# --- the hypervisor's own channels --------------------------------------------------------------------------------------

RPCTOOL = """#!/bin/sh
case "$1" in
"info-get "*) key=${1#info-get };;
*) exit 2;;
esac
test -e "$0.$key" || { echo "No value found" >&2; exit 1; }
cat "$0.$key"
echo
"""
ABOUT = b"instance-id: vm-1\nlocal-hostname: guest\n"
NETPLAN = b"version: 2\nethernets:\n  nic1:\n    match: {macaddress: '00:50:56:00:00:01'}\n    addresses: [10.9.0.2/24]\n"


@pytest.fixture
def guestinfo(tmp_path, monkeypatch):
    """Sets keys of guestinfo: a stand-in for vmware-rpctool, because the tool needs VMware's backdoor port."""
    program = tmp_path / "vmware-rpctool"
    program.write_text(RPCTOOL)
    program.chmod(0o755)
    monkeypatch.setattr(hypervisors.VMware, "program", str(program))

    def fill(**values):
        for name, value in values.items():
            place = tmp_path / f"vmware-rpctool.guestinfo.{name.replace('_', '.')}"
            place.write_bytes(value)

    return fill


@pytest.mark.parametrize(
    ("encoding", "pack"),
    [
        (b"base64", base64.b64encode),
        (b"b64\n", base64.b64encode),
        (b"gzip+base64", lambda data: base64.b64encode(gzip.compress(data))),
        (b"gz+b64", lambda data: base64.b64encode(gzip.compress(data))),
        (b"", lambda data: data),
    ],
)
def test_guestinfo_is_read_in_each_of_its_encodings(guestinfo, encoding, pack):
    network = base64.b64encode(NETPLAN)
    about = ABOUT + b"network: " + network + b"\nnetwork.encoding: base64\n"
    guestinfo(metadata=pack(about), metadata_encoding=encoding)
    guestinfo(userdata=pack(DATA), userdata_encoding=encoding)
    answer = ask("vmware")
    assert answer.data == DATA
    assert links(document(answer)) == {"00:50:56:00:00:01": ("up", None, None, ["10.9.0.2/24"])}
    assert combined.instance_id(combined.reduce_documents(answer.parts)) == "nocloud:vm-1"


def test_a_network_inside_the_metadata_of_guestinfo(guestinfo):
    indented = b"".join(b"  " + line + b"\n" for line in NETPLAN.splitlines())
    guestinfo(metadata=ABOUT + b"network:\n" + indented)
    assert len(document(ask("vmware")).links) == 1


@pytest.mark.parametrize(("line", "errors"), [(b"network:", 1), (b"network: ''", 1), (b"", 0)])
def test_a_network_that_a_template_left_empty_requests_no_removal(guestinfo, line, errors):
    """Unlike a key that is not set, it is an error, with which nothing is removed."""
    guestinfo(metadata=ABOUT + line + b"\n")
    faults = document(ask("vmware")).faults
    assert [fault.severity for fault in faults] == ["error"] * errors


def test_a_value_of_guestinfo_may_be_as_large_as_any_document(guestinfo):
    guestinfo(userdata=b"x" * (1 << 20))  # the tool appends a newline
    assert ask("vmware").data == b"x" * (1 << 20)


@pytest.mark.parametrize("value", [b"---", b"", b"\n"])
def test_guestinfo_that_is_not_set(guestinfo, value):
    assert ask("vmware").is_empty
    guestinfo(metadata=value, userdata=value)
    assert ask("vmware").is_empty


@pytest.mark.parametrize(
    ("values", "reason"),
    [
        ({"userdata": b"x", "userdata_encoding": b"rot13"}, 'the encoding "rot13" is unknown'),
        ({"userdata": b"!", "userdata_encoding": b"gz+b64"}, "it is not gz+b64"),
        (
            {
                "userdata": base64.b64encode(gzip.compress(b"\0" * (2 << 20))),
                "userdata_encoding": b"gz+b64",
            },
            "it is larger than 1048576 bytes",
        ),
        ({"metadata": b"a: [", "userdata": b"x"}, "guestinfo.metadata"),
    ],
)
def test_guestinfo_that_cannot_be_read_is_an_error(guestinfo, values, reason):
    guestinfo(**values)
    with pytest.raises(SourceError) as caught:
        ask("vmware")
    assert reason in str(caught.value)


@pytest.mark.parametrize(
    ("script", "reason"),
    [
        ("yes", f"the value is larger than {1 << 20} bytes"),
        (f"head -c {(1 << 20) + 2} /dev/zero", f"the value is larger than {1 << 20} bytes"),
        ("exec sleep 300", "no response within 1 s"),
        ("exec >&-; exec sleep 300", "no response within 1 s"),
        ("exit 3", "vmware-rpctool ended with status 3"),
        # What rpctool.c of open-vm-tools prints if the hypervisor did not get the request.
        (
            "echo RpcOut: Unable to open the communication channel >&2; exit 1",
            "vmware-rpctool ended with status 1: RpcOut: Unable to open the communication channel",
        ),
        ("echo NULL >&2; exit 1", "vmware-rpctool ended with status 1: NULL"),
        ("exit 1", "vmware-rpctool ended with status 1"),
    ],
)
@pytest.mark.usefixtures("guestinfo")
def test_a_tool_that_fails_or_has_no_end_is_an_error(script, reason):
    Path(hypervisors.VMware.program).write_text(f"#!/bin/sh\n{script}\n")
    budget = 1 if "sleep" in script else LONG
    with pytest.raises(SourceError) as caught:
        ask_sources([parse_source("vmware")], budget, Session())
    assert str(caught.value).endswith(f"info-get guestinfo.metadata: {reason}")


@pytest.mark.usefixtures("guestinfo")
def test_the_tool_is_killed_once_its_answer_is_not_needed():
    receive, send = os.pipe()
    os.close(send)
    Path(hypervisors.VMware.program).write_text("#!/bin/sh\nexec sleep 300\n")
    with pytest.raises(SourceError) as caught:
        hypervisors.VMware("", Surroundings()).documents(Deadline.after(LONG, receive), Session())
    os.close(receive)
    assert str(caught.value).endswith("the response is no longer needed")


def test_a_guest_without_vmware_s_tool(monkeypatch, tmp_path):
    monkeypatch.setattr(hypervisors.VMware, "program", str(tmp_path / "none"))
    with pytest.raises(SourceError) as caught:
        ask("vmware")
    assert str(caught.value).endswith("none: No such file or directory")


LXD = {
    "/1.0/meta-data": b"#cloud-config\ninstance-id: c-1\nlocal-hostname: c1\n",
    "/1.0/config/cloud-init.user-data": DATA,
    "/1.0/config/cloud-init.network-config": NETPLAN,
}


@pytest.fixture
def lxd(tmp_path):
    """Starts a server of these paths at a socket, and returns the path of the socket."""
    place = tmp_path / "sock"
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(str(place))
    listener.listen()
    paths: dict[str, object] = {}

    def serve():
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            with connection:
                path = connection.recv(4096).split()[1].decode()
                found = paths.get(path, 404)
                connection.sendall(http(found) if isinstance(found, int) else http(200, found))

    thread = threading.Thread(target=serve)
    thread.start()

    def start(found):
        paths.update(found)
        return place

    yield start
    listener.shutdown(socket.SHUT_RDWR)
    thread.join()
    listener.close()


def test_a_key_of_lxd_that_is_not_set_any_more_requests_nothing(lxd, tmp_path):
    """Unlike a file, it cannot be lost: the daemon says that it is not set."""
    paths, state = dict(LXD), tmp_path / "state"
    place, around = lxd(paths), Surroundings(tmp_path / "run")
    counts = []
    for _ in range(4):
        intake = fetch_document([parse_source(f"lxd={place}")], LONG, Session(), state, around)
        keep_document(intake, state, around.run_directory)
        counts.append(len(intake.document.platform.links))
        lxd({"/1.0/config/cloud-init.network-config": 404})
    assert counts == [1, 1, 0, 0]


def test_lxd_s_socket(lxd):
    answer = ask(f"lxd={lxd(LXD)}")
    assert answer.data == DATA
    assert len(document(answer).links) == 1
    assert combined.instance_id(combined.reduce_documents(answer.parts)) == "nocloud:c-1"


def test_the_older_names_of_lxd_s_keys_are_used_where_the_others_are_not_set(lxd):
    older = {path.replace("cloud-init.", "user."): value for path, value in LXD.items()}
    place = lxd(older)
    answer = ask(f"lxd={place}")
    assert (answer.data, len(document(answer).links)) == (DATA, 1)
    lxd({"/1.0/config/cloud-init.user-data": b"newer"})
    assert ask(f"lxd={place}").data == b"newer"


def test_incus_has_the_socket_of_lxd_at_another_place(lxd, monkeypatch, tmp_path):
    of_lxd, of_incus = hypervisors.Lxd.sockets
    assert (str(of_lxd), str(of_incus)) == ("/dev/lxd/sock", "/dev/incus/sock")
    monkeypatch.setattr(hypervisors.Lxd, "sockets", (tmp_path / "none", lxd(LXD)))
    assert ask("lxd").data == DATA


def test_lxd_without_documents_and_a_host_without_lxd(lxd, tmp_path):
    assert ask(f"lxd={lxd({})}").is_empty
    assert ask("lxd").is_empty
    with pytest.raises(SourceError):
        ask(f"lxd={tmp_path}/none")


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("/1.0/config/cloud-init.user-data", 403),
        ("/1.0/config/cloud-init.user-data", 500),
        ("/1.0/meta-data", 404),  # every instance has some
    ],
)
def test_lxd_that_fails_is_an_error(lxd, path, status):
    place = lxd({**LXD, path: status})
    with pytest.raises(SourceError) as caught:
        ask(f"lxd={place}")
    assert f"HTTP {status}" in str(caught.value)


def test_a_socket_of_lxd_that_drips_is_given_up_at_the_deadline(tmp_path):
    over = threading.Event()
    place = tmp_path / "sock"
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(str(place))
    listener.listen()

    def drip():
        connection, _ = listener.accept()
        with connection, contextlib.suppress(OSError):
            for byte in itertools.chain(b"HTTP/1.1 200 OK\r\n", itertools.repeat(120)):
                connection.sendall(bytes((byte,)))
                if over.wait(0.02):
                    return

    thread = threading.Thread(target=drip)
    thread.start()
    with pytest.raises(SourceError) as caught:
        ask_sources([parse_source(f"lxd={place}")], 1, Session())
    over.set()
    thread.join()
    listener.close()
    assert str(caught.value).endswith(
        f"GET /1.0/config/cloud-init.user-data from {place}: no complete response within 1 s"
    )


# --- what no document may take over --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("dmi", "hosts"),
    [
        ({}, set()),
        ({"chassis_asset_tag": "OracleCloud.com"}, {"169.254.169.254", "fd00:c1::a9fe:a9fe"}),
        (
            {"chassis_asset_tag": "7783-7084-3265-9085-8269-3286-77"},
            {"169.254.169.254", "168.63.129.16"},
        ),
        ({"product_name": "Alibaba Cloud ECS"}, {"100.100.100.200"}),
    ],
)
def test_the_addresses_of_the_platform_s_services_are_guarded(tmp_path, dmi, hosts):
    for name, text in dmi.items():
        (tmp_path / name).write_text(text)
    assert {str(host) for host in metadata_hosts(["auto"], Surroundings(dmi=tmp_path))} == hosts


def test_vmware_takes_no_argument():
    with pytest.raises(UsageError):
        parse_source("vmware=x")


@pytest.mark.parametrize("kind", ["gce", "hetzner"])
def test_user_data_that_the_platform_gives_in_base64_is_decoded(kind):
    text = "[interfaces]\n"
    encoded = base64.b64encode(text.encode()).decode()
    play = services()[kind]
    if kind == "gce":
        about = {"user-data": encoded, "user-data-encoding": "base64"}
        play.paths = {path: {**GCE, "attributes": about} for path in play.paths}
    else:
        play.paths = {**play.paths, "/hetzner/v1/userdata": f"{encoded}\n".encode()}
    with serving(play) as server:
        assert find_document(ask(f"{kind}={server.url}").data) == text


@pytest.mark.parametrize("kind", ["azure", "oracle", "gce"])
def test_user_data_in_base64_may_have_lines(kind):
    # As base64(1) prints it, and as cloud-init accepts it.
    data = 20 * DATA
    text = base64.encodebytes(data).decode()
    assert text.count("\n") > 1
    play = services()[kind]
    tree = {
        "azure": {**AZURE, "compute": {"vmId": "x", "userData": text}},
        "oracle": {"id": "x", "metadata": {"user_data": text}},
        "gce": {**GCE, "attributes": {"user-data": text, "user-data-encoding": "base64"}},
    }[kind]
    play.paths = {path: tree if "vnics" not in path else body for path, body in play.paths.items()}
    with serving(play) as server:
        assert ask(f"{kind}={server.url}").data == data


@pytest.mark.parametrize("word", [b"true", b"noop", b"hello+world="])
def test_a_word_as_the_user_data_of_hetzner_stays_as_it_is(word):
    play = services()["hetzner"]
    play.paths = {**play.paths, "/hetzner/v1/userdata": word}
    with serving(play) as server:
        data = ask(f"hetzner={server.url}").data
    assert data == word
    with pytest.raises(DocumentError, match="it has no section"):
        parse(find_document(data))


def test_the_mtu_of_every_vnic_of_oracle_is_9000():
    assert {link.mtu for link in read("oracle").links} == {9000}


def test_a_vlan_nic_of_compute_engine_has_its_own_mac():
    vlan = next(link for link in read("gce").links if link.key.vlan_id)
    assert vlan.virtual.option("mac") == "42:01:0a:04:00:03"
