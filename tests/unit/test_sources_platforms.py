"""OpenStack's service, EC2's tree of NICs, config drives and NoCloud seeds: what each answers, and what is an error there."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import json
import os

import pytest
from platforms import combined, links, made
from sources_server import Server, http
from sources_volumes import DRIVE, META, NETWORK, SEED, fill

from neuca_tools.errors import SourceError
from neuca_tools.sources import Session, Surroundings, ask_sources, parse_source

LONG = 300


def serving(paths, other=404):
    """A server that has these paths: a body, or a status."""

    def play(request):
        found = paths.get(request.path, other)
        return http(found) if isinstance(found, int) else http(200, found)

    return Server(play)


def ask(text, run_directory=None, session=None):
    around = Surroundings() if run_directory is None else Surroundings(run_directory)
    return ask_sources([parse_source(text)], LONG, session or Session(), around)


def reason(text, run_directory=None):
    with pytest.raises(SourceError) as caught:
        ask(text, run_directory)
    beginning = f"no user-data from any source: {text}: "
    assert str(caught.value).startswith(beginning)
    return str(caught.value)[len(beginning) :]


# --- OpenStack ------------------------------------------------------------------------------------------------------


def test_openstack_answers_with_all_three_documents():
    with serving({f"/{path}": data for path, data in DRIVE.items()}) as server:
        answer = ask(f"openstack={server.url}")
        assert (answer.source, answer.data) == (f"openstack={server.url}", b"[global]\n")
        assert answer.parts == {"meta_data.json": META, "network_data.json": NETWORK}
        assert server.asked == [
            f"GET /openstack/latest/{name}"
            for name in ("meta_data.json", "network_data.json", "user_data")
        ]


def test_openstack_may_begin_a_document_with_a_byte_order_mark():
    paths = {f"/{path}": b"\xef\xbb\xbf" + data for path, data in DRIVE.items()}
    with serving(paths) as server:
        parts = ask(f"openstack={server.url}").parts
    assert combined.reduce_documents(parts) == combined.reduce_documents(
        {"meta_data.json": META, "network_data.json": NETWORK}
    )


@pytest.mark.parametrize("status", [401, 404])
def test_a_service_that_is_no_openstack_has_nothing(status):
    with serving({}, other=status) as server:
        assert ask(f"openstack={server.url}").is_empty
        assert server.asked == ["GET /openstack/latest/meta_data.json"]


def test_an_openstack_without_user_data_and_network_still_says_who_the_guest_is():
    with serving({"/openstack/latest/meta_data.json": META}) as server:
        answer = ask(f"openstack={server.url}")
        assert (answer.data, list(answer.parts)) == (None, ["meta_data.json"])


@pytest.mark.parametrize("path", DRIVE)
@pytest.mark.parametrize("status", [403, 500, 503])
def test_an_openstack_that_fails_at_one_document_is_an_error(path, status):
    with serving(
        {**{f"/{name}": data for name, data in DRIVE.items()}, f"/{path}": status}
    ) as server:
        assert reason(f"openstack={server.url}") == f"GET {server.url}/{path}: HTTP {status}"


def test_a_service_that_answers_every_path_alike_is_no_openstack():
    with Server(lambda _: http(200, b"[global]\n")) as server:
        path = f"{server.url}/openstack/latest/meta_data.json"
        assert reason(f"openstack={server.url}") == f"GET {path}: the response is not a JSON object"


def test_an_openstack_that_cuts_a_document_short_is_an_error():
    with Server(lambda _: http(200, META)[:-1]) as server:
        assert "the body ends after" in reason(f"openstack={server.url}")


# --- EC2 ------------------------------------------------------------------------------------------------------------

MACS = "/latest/meta-data/network/interfaces/macs/"
ONE, TWO = "02:00:00:00:00:01", "02:00:00:00:00:02"
TREE = {
    "/latest/user-data": b"[global]\n", "/latest/meta-data/mac": ONE.encode(), MACS: f"{ONE}/\n{TWO}/\nother\n".encode(),
    f"{MACS}{ONE}/": b"device-number\nowner-id\nlocal-ipv4s", f"{MACS}{ONE}/device-number": b"0",
    f"{MACS}{ONE}/local-ipv4s": b"10.0.0.5",
    f"{MACS}{TWO}/": b"device-number\nlocal-ipv4s\nsubnet-ipv4-cidr-block\nipv4-associations/",
    f"{MACS}{TWO}/device-number": b"1", f"{MACS}{TWO}/local-ipv4s": b"10.0.1.5\n10.0.1.6",
    f"{MACS}{TWO}/subnet-ipv4-cidr-block": b"10.0.1.0/24"}  # fmt: skip


def test_ec2_gathers_the_leaves_that_are_listed_and_no_other():
    with serving(TREE) as server:
        answer = ask(f"ec2={server.url}")
        assert json.loads(answer.parts["EC2 network"]) == {
            "mac": ONE,
            "macs": {
                ONE: {"device-number": "0", "local-ipv4s": "10.0.0.5"},
                TWO: {
                    "device-number": "1",
                    "local-ipv4s": "10.0.1.5\n10.0.1.6",
                    "subnet-ipv4-cidr-block": "10.0.1.0/24",
                },
            },
        }
        assert not [path for path in server.asked if "owner-id" in path or "associations" in path]
        assert links(made("EC2 network", answer.parts["EC2 network"]))[TWO] == (
            "up",
            None,
            None,
            ["10.0.1.5/24", "10.0.1.6/24"],
        )


def test_a_tree_without_user_data_is_an_answer():
    with serving({**TREE, "/latest/user-data": 404}) as server:
        answer = ask(f"ec2={server.url}")
        assert (answer.data, list(answer.parts)) == (None, ["EC2 network"])


def test_a_tree_that_fails_costs_the_user_data_nothing():
    with serving({**TREE, f"{MACS}{TWO}/local-ipv4s": 500}) as server:
        answer = ask(f"ec2={server.url}")
        assert (answer.data, answer.parts) == (b"[global]\n", {})


def test_without_user_data_a_tree_that_fails_is_an_error():
    with serving({**TREE, "/latest/user-data": 404, MACS: 500}) as server:
        assert reason(f"ec2={server.url}") == f"GET {server.url}{MACS}: HTTP 500"


KEYS = "/latest/meta-data/public-keys/"
KEY, OTHER = (
    "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIK01 mine",
    "ssh-rsa AAAAB3NzaC1yc2EAAAADAQABAAABgQC02 c@d é",
)
KEYED = {
    KEYS: b"0=mine\n1=my other = key\n../x=no\n",
    f"{KEYS}0/openssh-key": f"{KEY}\n".encode(),
    f"{KEYS}1/openssh-key": OTHER.encode(),
}


@pytest.mark.parametrize(
    "tree",
    [TREE, {"/latest/user-data": b"[global]\n"}, {}],
    ids=["nics", "user-data", "keys alone"],
)
def test_ec2_s_public_keys_come_with_whatever_else_there_is(tree):
    with serving({**tree, **KEYED}) as server:
        answer = ask(f"ec2={server.url}")
        assert json.loads(answer.parts["EC2 network"])["public-keys"] == [KEY, OTHER]
        items = [item[:3] for item in made("EC2 network", answer.parts["EC2 network"]).items]
        assert items == [("public-keys", "0", KEY), ("public-keys", "1", OTHER)]
        leaves = [f"GET {KEYS}{number}/openssh-key" for number in range(2)]
        assert [request for request in server.asked if KEYS in request] == [f"GET {KEYS}", *leaves]


def test_keys_are_for_root_alone():
    kept = combined.reduce_documents(
        {"EC2 network": json.dumps({"mac": ONE, "macs": {}, "public-keys": [KEY]}).encode()}
    )
    assert KEY in kept
    assert json.loads(combined.redacted_text(kept)) == {"EC2 network": {"mac": ONE, "macs": {}}}


@pytest.mark.parametrize("path", [KEYS, f"{KEYS}0/openssh-key"])
def test_keys_that_cannot_be_read_are_not_taken_for_none(path):
    with serving({**TREE, **KEYED, path: 500}) as server:
        answer = ask(f"ec2={server.url}")
        assert (answer.data, answer.parts) == (b"[global]\n", {})


@pytest.mark.parametrize(
    ("broken", "message"),
    [
        ({f"{KEYS}1/openssh-key": 404}, f"{KEYS}1/openssh-key: HTTP 404, but the service lists it"),
        ({f"{KEYS}1/openssh-key": b"\n"}, f"{KEYS}1/openssh-key: an empty response, but the service lists it"),
    ],
)  # fmt: skip
def test_a_listed_key_that_the_service_does_not_give_is_an_error(broken, message):
    with serving({**TREE, "/latest/user-data": 404, **KEYED, **broken}) as server:
        assert reason(f"ec2={server.url}") == f"GET {server.url}{message}"


@pytest.mark.parametrize("listing", [404, b""])
def test_a_listing_of_keys_that_the_service_lists_and_does_not_give_is_an_error(listing):
    root = "/latest/meta-data/"
    tree = {**TREE, **KEYED, root: b"mac\npublic-keys/\n", KEYS: listing, "/latest/user-data": 404}
    with serving(tree) as server:
        problem = "the service lists public-keys/, but gives nothing for it"
        assert reason(f"ec2={server.url}") == f"GET {server.url}{root}: {problem}"


def test_a_service_without_nics_and_keys_is_asked_for_them_once():
    with serving({"/latest/user-data": b"[global]\n"}) as server:
        session = ask(f"ec2={server.url}").session
        for _ in range(3):
            session = ask(f"ec2={server.url}", session=session).session
        assert (server.asked.count(f"GET {MACS}"), server.asked.count(f"GET {KEYS}")) == (1, 1)
        assert server.asked.count("GET /latest/user-data") == 4


# --- Directories ----------------------------------------------------------------------------------------------------


def test_a_config_drive_answers_with_all_three_documents(tmp_path):
    answer = ask(f"configdrive={fill(tmp_path, DRIVE)}")
    assert (answer.source, answer.data) == (f"configdrive={tmp_path}", b"[global]\n")
    assert answer.parts == {"meta_data.json": META, "network_data.json": NETWORK}


def test_the_copy_of_a_volume_is_below_the_run_directory(tmp_path):
    fill(tmp_path / "drives" / "config-2", DRIVE)
    fill(tmp_path / "drives" / "cidata", SEED)
    assert ask("configdrive", tmp_path).data == b"[global]\n"
    assert list(ask("nocloud", tmp_path).parts) == ["meta-data", "network-config"]


def test_a_config_drive_without_latest_has_its_newest_version_read(tmp_path):
    old = {name.replace("latest", "2012-08-10"): b"{}" for name in DRIVE}
    fill(
        tmp_path,
        {**old, **{name.replace("latest", "2018-08-27"): data for name, data in DRIVE.items()}},
    )
    fill(tmp_path, {"openstack/content/0000": b"x"})
    assert ask(f"configdrive={tmp_path}").parts["network_data.json"] == NETWORK


def test_a_config_drive_that_cannot_be_listed_is_not_taken_for_empty(tmp_path):
    (tmp_path / "openstack").symlink_to("openstack")
    assert "Too many levels of symbolic links" in reason(f"configdrive={tmp_path}")


def test_the_user_data_of_the_ec2_tree_of_a_drive_is_the_second_choice(tmp_path):
    fill(tmp_path, {**DRIVE, "ec2/latest/user-data": b"second"})
    assert ask(f"configdrive={tmp_path}").data == b"[global]\n"
    (tmp_path / "openstack/latest/user_data").unlink()
    assert ask(f"configdrive={tmp_path}").data == b"second"


@pytest.mark.parametrize("kind", ["configdrive", "nocloud"])
def test_a_directory_that_was_named_is_expected_and_one_that_was_not_may_be_missing(tmp_path, kind):
    assert "does not exist" in reason(f"{kind}={tmp_path}/nowhere")
    assert ask(kind, tmp_path).is_empty


def test_a_seed_needs_both_files(tmp_path):
    (fill(tmp_path, SEED) / "meta-data").unlink()
    assert reason(f"nocloud={tmp_path}") == "cannot be read: user-data or meta-data does not exist"


def test_a_seed_that_says_nothing_leaves_the_word_to_other_sources(tmp_path):
    place = fill(tmp_path / "seed", {"user-data": b"\n", "meta-data": b"instance-id: i\n"})
    (tmp_path / "document").write_bytes(b"[global]\n")
    answer = ask_sources(
        [parse_source(f"nocloud={place}"), parse_source(f"file:{tmp_path}/document")],
        LONG,
        Session(),
    )
    assert answer.source == f"file:{tmp_path}/document"


def test_a_file_that_is_none_or_too_large_is_an_error(tmp_path):
    place = fill(tmp_path, SEED)
    (place / "network-config").write_bytes(b"x" * 1048577)
    assert reason(f"nocloud={place}") == '"network-config" is larger than 1048576 bytes'
    (place / "network-config").unlink()
    os.mkfifo(place / "network-config")
    assert reason(f"nocloud={place}") == '"network-config" is not a regular file'
    (place / "network-config").unlink()
    (place / "network-config").mkdir()
    assert reason(f"nocloud={place}") == '"network-config" cannot be read: Is a directory'


def test_none_asks_nobody():
    assert ask("none").is_empty
