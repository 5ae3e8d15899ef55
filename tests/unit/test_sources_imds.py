"""The source `imds`, with the server of tests/imdsd.py, which says why it is no real systemd-imdsd."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import base64
import socket
from ipaddress import ip_address

import pytest
from imdsd import Imdsd

from neuca_tools.errors import SourceError
from neuca_tools.model.machine import Outlet
from neuca_tools.sources import (
    Session,
    Surroundings,
    ask_sources,
    metadata_hosts,
    parse_source,
    uses_network,
)

DATA = b"[global]\n[interfaces]\nfe:16:3e:00:6d:af = up:ipv4:192.0.2.1/24\n"
LOOPBACK = Outlet("lo", "", ())


@pytest.fixture
def imdsd(tmp_path):
    """Asks a service with these keys through these interfaces; returns the answer and the calls."""

    def ask(keys, answer=b"", outlets=(LOOPBACK,), budget=30):
        path = tmp_path / "socket"
        path.unlink(missing_ok=True)
        with Imdsd(path, keys, answer) as service:
            spec = parse_source(f"imds={path}")
            return ask_sources(
                [spec], budget, Session(), Surroundings(outlets=outlets)
            ), service.calls

    return ask


def test_the_user_data_is_requested_through_the_management_nic_and_not_from_the_cache(imdsd):
    answer, calls = imdsd({"userdata": DATA, "hostname": b"vm1"})
    assert (answer.data, dict(answer.parts), answer.origin, answer.outlet) == (
        DATA,
        {},
        None,
        LOOPBACK,
    )
    parameters = {"wellKnown": "userdata", "interface": socket.if_nametoindex("lo"), "cache": False}
    assert calls == [{"method": "io.systemd.InstanceMetadata.Get", "parameters": parameters}]


def test_the_user_data_of_a_platform_that_encodes_it_is_decoded(imdsd):
    answer, calls = imdsd({"userdata_base64": base64.encodebytes(DATA)})
    assert answer.data == DATA
    assert [call["parameters"]["wellKnown"] for call in calls] == ["userdata", "userdata_base64"]


@pytest.mark.parametrize(
    "keys", [{}, {"userdata": None}, {"userdata": None, "userdata_base64": None}, {"userdata": b""}]
)
def test_an_instance_without_user_data_has_none(imdsd, keys):
    assert imdsd(keys)[0].is_empty


DAMAGED = {
    b'{"error":"io.systemd.InstanceMetadata.NotSupported","parameters":{}}\0':
        "it failed with io.systemd.InstanceMetadata.NotSupported",
    b'{"error":"io.systemd.InstanceMetadata.CommunicationFailure"}\0':
        "it failed with io.systemd.InstanceMetadata.CommunicationFailure",
    b'{"error":"io.systemd.System","parameters":{"errno":110}}\0': "it failed with io.systemd.System",
    b'{"parameters":{"data":"YQ==","interface":4711}}\0': "the response came through another interface",
    b'{"parameters":{"data":"YQ=","interface":1}}\0': "the data is not base64: Incorrect padding",
    b'{"parameters":{"data":"\xc3\xa9"}}\0': "the data is not base64: ",
    b'{"parameters":{"data":17}}\0': "the response has no data",
    b'{"parameters":[]}\0': "the response has no data",
    b"[]\0": "the response has no data",
    b"\xff\0": "the response is not JSON",
    b"[" * 100_000 + b"\0": "the response is not JSON",
    b'{"parameters":{"data":"YQ=="}}': "the connection was closed without a complete response",
    b'{"parameters":{"data":"' + b"YWFh" * 350_000 + b'"}}\0': "the data is larger than 1048576 bytes",
    b"x" * 2_100_000: "the response is larger than 2097152 bytes",
}  # fmt: skip


def test_an_unusable_response_is_an_error_and_never_an_empty_document(imdsd):
    for response, reason in DAMAGED.items():
        with pytest.raises(SourceError) as caught:
            imdsd({}, response)
        assert f"through lo: {reason}" in str(caught.value), response[:80]


def test_a_service_that_is_silent_is_given_up_at_the_deadline(imdsd):
    with pytest.raises(SourceError) as caught:
        imdsd({}, None, budget=0.5)
    assert "through lo: no complete response within 0.5 s" in str(caught.value)


def test_no_nic_is_asked_that_is_not_believed_to_be_for_management(imdsd):
    unlikely, doubtful = LOOPBACK._replace(is_likely=False), LOOPBACK._replace(is_vouched=False)
    with pytest.raises(SourceError) as caught:
        imdsd({"userdata": DATA}, outlets=(unlikely, doubtful))
    assert "no NIC that may be for management has a route to it" in str(caught.value)


def test_a_host_without_the_service_or_the_nic_is_an_error(imdsd, tmp_path):
    with pytest.raises(SourceError) as caught:
        ask_sources(
            [parse_source(f"imds={tmp_path}/none")], 1, Session(), Surroundings(outlets=(LOOPBACK,))
        )
    assert f"userdata from {tmp_path}/none through lo: No such file or directory" in str(
        caught.value
    )
    with pytest.raises(SourceError) as caught:
        imdsd({"userdata": DATA}, outlets=(LOOPBACK._replace(name="gone0"),))
    assert "through gone0: " in str(caught.value)


def test_the_service_that_it_asks_is_protected_and_needs_the_network(tmp_path):
    specs = [parse_source("imds")]
    assert uses_network(specs)
    (tmp_path / "sys_vendor").write_text("Amazon EC2\n")
    assert ip_address("169.254.169.254") in metadata_hosts(["imds"], Surroundings(dmi=tmp_path))


def test_auto_does_not_ask_it(tmp_path):
    with pytest.raises(SourceError) as caught:
        ask_sources([parse_source("auto")], 1, Session(), Surroundings(dmi=tmp_path))
    assert "imds" not in str(caught.value)
