"""The document in force: what a source says now, or the last good one, and what users other than root see of it."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import gzip
import hashlib

import pytest
from sources_server import Server, http
from sources_volumes import DRIVE, SEED, fill

from neuca_tools.model import Document
from neuca_tools.model.machine import Machine, MetadataService
from neuca_tools.model.rows import StoredDocument
from neuca_tools.sources import Session, Surroundings, metadata_hosts, parse_source
from neuca_tools.state.active_document import (
    Intake,
    fetch_document,
    keep_document,
    last_confirmed,
    last_good,
)
from neuca_tools.state.records import TRIAL, load_document, save_document, save_machine
from neuca_tools.state.store import read_state, save_state

PATIENCE = 60.0  # seconds: an EC2 service has a share of it for each of its answers

TEXT = "[global]\nhost_name = Node0\n[users]\njoe = yes:ssh-rsa AAAA\n[storage]\nsda = iscsi:10.0.0.5:3260:1:joe:hush:yes\n"
OTHER = "[global]\nhost_name = Node1\n"


class StateDirectories:
    """A file as a source, a state directory and a run directory."""

    def __init__(self, base):
        self.file, self.state, self.run = base / "document", base / "state", base / "run"

    def ask(self, content=None):
        """One look; `content` None: the file is as it was."""
        if content is not None:
            self.file.write_bytes(content if isinstance(content, bytes) else content.encode())
        return fetch_document([parse_source(f"file:{self.file}")], PATIENCE, Session(), self.state)

    def take(self, content=None):
        intake = self.ask(content)
        keep_document(intake, self.state, self.run)
        return intake


@pytest.fixture
def place(tmp_path):
    return StateDirectories(tmp_path)


def said(intake):
    return intake.stale, intake.none_for_us, intake.reason, intake.refused


def test_a_good_document_is_fresh(place):
    intake = place.take(TEXT)
    assert said(intake) == (False, False, "", "")
    assert (intake.document.hostname, intake.stored.source, intake.stored.text) == (
        "Node0",
        f"file:{place.file}",
        TEXT,
    )
    assert intake.sha256 == intake.stored.sha256 != ""


def test_a_poll_leaves_the_file_of_a_trial_alone(place):
    # A poll does not hold the lock of a pass, and may fall into a running "neuca apply --try".
    save_state(place.state, TRIAL, {"boot_id": "a"}, 0o644)
    place.take(TEXT)
    assert read_state(place.state, TRIAL)


def test_a_saved_part_that_is_no_text_is_no_defect(place):
    damaged = StoredDocument(f"file:{place.file}", "00", "2026-11-20T19:00:00Z", TEXT, "\ud800")
    save_document(place.state, damaged)
    assert "platform" in place.take(TEXT).refused


def test_the_time_is_that_of_the_first_look_at_it(place):
    before = StoredDocument(
        f"file:{place.file}", place.ask(TEXT).sha256, "2026-11-20T19:00:00Z", TEXT
    )
    save_document(place.state, before)
    assert place.take().stored == before
    assert place.take(OTHER).stored.fetched != before.fetched


def test_the_same_text_from_another_source_is_another_document(place):
    save_document(
        place.state, StoredDocument("ec2", place.ask(TEXT).sha256, "2026-11-20T19:00:00Z", TEXT)
    )
    assert place.take().stored.source == f"file:{place.file}"


def test_without_an_answer_the_last_good_document_stays_and_is_stale(place):
    place.take(TEXT)
    place.file.unlink()
    intake = place.ask()
    assert (intake.document.hostname, intake.stale, intake.sha256) == ("Node0", True, "")
    assert (
        intake.reason
        == f"no user-data from any source: file:{place.file}: cannot be read: No such file or directory"
    )


def test_without_an_answer_and_without_a_last_good_document_there_is_none(place):
    intake = place.ask()
    assert (intake.document, intake.stored, intake.stale, intake.none_for_us) == (
        None,
        None,
        False,
        False,
    )
    assert intake.reason


@pytest.mark.parametrize("content", ["#cloud-config\n", "#!/bin/sh\n", "", "   \n"])
def test_a_source_that_has_no_document_for_us_is_no_error_and_takes_nothing_away(place, content):
    intake = place.ask(content)
    assert (intake.document, intake.none_for_us, intake.stale) == (None, True, False)
    place.take(TEXT)
    kept = place.ask(content)
    assert (kept.document.hostname, kept.none_for_us, kept.stale) == ("Node0", True, True)
    assert kept.reason == f"file:{place.file} now has no NEuca document"


def test_a_configuration_without_a_source_is_a_reason_of_its_own(place):
    intake = fetch_document([parse_source("none")], PATIENCE, Session(), place.state)
    reason = "the configuration names no source (sources = none)"
    assert said(intake) == (False, True, reason, "")
    assert (intake.document, intake.sha256) == (Document(), hashlib.sha256(b"").hexdigest())


@pytest.mark.parametrize(
    "content", [b"\x00\x01\x02", b"no section at all", b"\xff\xfe[global]", b"\x1f\x8bbroken"]
)
def test_rubbish_is_refused_and_the_last_good_document_stays(place, content):
    place.take(TEXT)
    intake = place.take(content)
    assert (intake.document.hostname, intake.stale, intake.sha256) == ("Node0", True, "")
    assert intake.refused.startswith(f"document of file:{place.file}: cannot read the document: ")
    assert load_document(place.state).text == TEXT


def test_a_document_with_a_bad_line_is_taken_for_what_it_is_worth(place):
    intake = place.take("[global]\nhost_name = Node2\n[interfaces]\nnonsense = 1\n")
    assert (intake.document.hostname, intake.document.is_complete, said(intake)) == (
        "Node2",
        False,
        (False, False, "", ""),
    )


def test_a_packed_document_is_taken(place):
    assert place.take(gzip.compress(TEXT.encode())).stored.text == TEXT


# --- what is kept ---------------------------------------------------------------------------------------------------


def test_only_root_can_read_the_document_and_others_a_copy_without_secrets(place):
    place.take(TEXT)
    assert (place.state / "document.json").stat().st_mode & 0o777 == 0o600
    assert (place.run / "document.json").stat().st_mode & 0o777 == 0o644
    assert "hush" in (place.state / "document.json").read_text()
    copy = (place.run / "document.json").read_text()
    assert "hush" not in copy
    assert "AAAA" not in copy
    assert "Node0" in copy


def test_an_unchanged_document_costs_no_write(place):
    place.take(TEXT)
    paths = [
        place.state / "document.json",
        place.run / "document.json",
        place.run / "last-look.json",
    ]
    before = [path.stat().st_ino for path in paths]
    place.take()
    assert [path.stat().st_ino for path in paths] == before


def test_nothing_to_keep_is_no_document(place):
    keep_document(Intake(reason="no response"), place.state, place.run)
    assert load_document(place.state) is None
    assert last_confirmed(place.state, place.run).reason == "no response"


# --- after the look -------------------------------------------------------------------------------------------------


def test_what_was_confirmed_is_known_to_the_commands(place):
    place.take(TEXT)
    intake = last_confirmed(place.state, place.run)
    assert (intake.document.hostname, said(intake)) == ("Node0", (False, False, "", ""))


def test_before_the_first_look_after_a_boot_the_document_is_stale(place):
    place.take(TEXT)
    (place.run / "last-look.json").unlink()
    intake = last_confirmed(place.state, place.run)
    assert (intake.stale, intake.reason) == (True, "no source has responded since the boot")
    assert last_good(place.state, "because").stale


def test_a_look_without_an_answer_is_known_to_the_commands(place):
    place.take(TEXT)
    place.file.unlink()
    place.take()
    assert last_confirmed(place.state, place.run).stale
    place.take(b"rubbish")
    assert last_confirmed(place.state, place.run).refused.startswith("document of ")
    place.take("#cloud-config\n")
    assert last_confirmed(place.state, place.run).none_for_us
    place.take(TEXT)
    assert said(last_confirmed(place.state, place.run)) == (False, False, "", "")


def test_a_damaged_document_is_not_taken_for_none(place):
    place.take(TEXT)
    (place.state / "document.json").write_text("damaged")
    (place.run / "document.json").unlink()
    intake = last_confirmed(place.state, place.run)
    assert (intake.document, f'"{place.state}/document.json"' in intake.reason) == (None, True)


def test_users_other_than_root_get_the_copy(place):
    place.take(TEXT)
    (place.state / "document.json").unlink()
    intake = last_confirmed(place.state, place.run)
    assert (intake.document.hostname, intake.stored.sha256, intake.stale) == (
        "Node0",
        place.ask().sha256,
        False,
    )
    assert intake.document.storage == ()


@pytest.mark.parametrize(
    "content",
    [
        "{",
        '{"version": 1}',
        '{"version": 9}',
        '{"version": 1, "source": "", "sha256": "", "fetched": "", "text": "x"}',
    ],
)
def test_a_damaged_copy_counts_as_none_and_says_so(place, content):
    place.state.mkdir()
    (place.state / "document.json").write_text(content)
    intake = last_good(place.state, "no response")
    assert (intake.document, intake.stored) == (None, None)
    assert intake.reason.startswith("no response; ")


def test_a_damaged_copy_is_replaced_by_the_next_good_document(place):
    place.state.mkdir()
    (place.state / "document.json").write_text("{")
    assert place.take(TEXT).document.hostname == "Node0"
    assert load_document(place.state).text == TEXT


@pytest.mark.parametrize(
    ("sources", "hosts"),
    [
        (["auto"], []),
        (["ec2=http://203.0.113.5:8080"], ["203.0.113.5"]),
        (
            ["ec2=http://[fd00::5]", "file:/x", "bogus", "ec2"],
            ["fd00::5", "169.254.169.254", "fd00:ec2::254"],
        ),
        (["ec2=http://metadata.example"], []),
    ],
)
def test_metadata_services_are_known_by_address(tmp_path, sources, hosts):
    no_firmware = Surroundings(dmi=tmp_path)
    assert list(map(str, metadata_hosts(sources, no_firmware))) == hosts


# --- what the platform says beside it -------------------------------------------------------------------------------

NETWORK = '{"links": [{"id": "a", "type": "phy", "ethernet_mac_address": "02:00:00:00:00:02"}], "networks": []}'
OTHER_NETWORK = NETWORK.replace("00:02", "00:03")
NO_NETWORK = '{"links": [], "networks": []}'
META = '{"hostname": "node9", "random_seed": "SEED", "meta": {"colour": "hush"}}'


class Drive(StateDirectories):
    """A config drive as a source."""

    def ask(self, user_data=None, network=None, meta=META):
        """One look; None: there is no such file."""
        folder = self.file / "openstack" / "latest"
        folder.mkdir(parents=True, exist_ok=True)
        for name, content in (
            ("user_data", user_data),
            ("network_data.json", network),
            ("meta_data.json", meta),
        ):
            (folder / name).unlink(missing_ok=True)
            if content is not None:
                (folder / name).write_text(content)
        return fetch_document(
            [parse_source(f"configdrive={self.file}")],
            PATIENCE,
            Session(),
            self.state,
            Surroundings(self.run),
        )

    def take(self, *content, **more):
        intake = self.ask(*content, **more)
        keep_document(intake, self.state, self.run)
        return intake


@pytest.fixture
def drive(tmp_path):
    return Drive(tmp_path)


def macs(intake):
    return [link.key.mac[-2:] for link in intake.document.platform.links]


def test_both_documents_are_taken_and_kept(drive):
    intake = drive.take(TEXT, NETWORK)
    assert (intake.document.hostname, macs(intake), said(intake)) == (
        "Node0",
        ["02"],
        (False, False, "", ""),
    )
    again = last_confirmed(drive.state, drive.run)
    assert (again.document, again.stale, again.sha256) == (intake.document, False, intake.sha256)
    assert intake.sha256.partition(".")[0] == hashlib.sha256(TEXT.encode()).hexdigest()


def test_a_platform_s_document_alone_is_a_document(drive):
    intake = drive.take(None, NETWORK)
    assert (intake.document.hostname, macs(intake), intake.none_for_us, intake.stale) == (
        "node9",
        ["02"],
        False,
        False,
    )


def test_what_is_new_at_each_look_is_no_news(drive):
    first = drive.take(TEXT, NETWORK).stored
    assert drive.take(TEXT, NETWORK, meta=META.replace("SEED", "other")).stored == first


def test_others_get_a_copy_without_the_guest_s_own_metadata(drive):
    drive.take(TEXT, NETWORK)
    copy = (drive.run / "document.json").read_text()
    assert "02:00:00:00:00:02" in copy
    assert "hush" not in copy
    assert "hush" in (drive.state / "document.json").read_text()


@pytest.mark.parametrize("user_data", [None, "#cloud-config\n"])
def test_a_neuca_document_that_is_gone_stays_and_the_platform_s_is_news(drive, user_data):
    first = drive.take(TEXT, NETWORK)
    intake = drive.take(user_data, OTHER_NETWORK)
    assert (intake.document.hostname, macs(intake)) == ("Node0", ["03"])
    assert intake.reason == f"configdrive={drive.file} now has no NEuca document"
    assert intake.sha256 not in ("", first.sha256)


def test_a_platform_s_document_that_is_rubbish_costs_only_itself(drive):
    drive.take(TEXT, NETWORK)
    intake = drive.take(OTHER, "{", meta="{")
    assert (intake.document.hostname, macs(intake)) == ("Node1", ["02"])
    assert intake.refused.startswith(
        f"document of configdrive={drive.file}: cannot read meta_data.json: it is not JSON: "
    )


def test_a_neuca_document_that_is_rubbish_costs_only_itself(drive):
    drive.take(TEXT, NETWORK)
    intake = drive.take("rubbish", OTHER_NETWORK)
    assert (intake.document.hostname, macs(intake)) == ("Node0", ["03"])
    assert "has no section" in intake.refused


def test_a_document_that_loses_all_its_nics_has_to_say_so_twice(drive):
    first = drive.take(None, NETWORK)
    once = drive.take(None, NO_NETWORK)
    assert (macs(once), once.stale, once.sha256, once.doubted != "") == (["02"], True, "", True)
    assert (
        once.reason == f"the document of configdrive={drive.file} no longer has any NIC:"
        " it is used if the next query confirms it"
    )
    assert (macs(drive.take(None, NETWORK)), drive.take(None, NETWORK).sha256) == (
        ["02"],
        first.sha256,
    )
    assert macs(drive.take(None, NO_NETWORK)) == ["02"]
    keep_document(
        last_confirmed(drive.state, drive.run), drive.state, drive.run
    )  # a pass for an event comes between
    assert macs(drive.take(None, NO_NETWORK)) == []


def test_a_service_that_flips_between_two_documents_is_not_followed(tmp_path):
    texts = ["[global]\nhost_name = a\n", "[global]\nhost_name = b\n"]
    asked = []

    def play(request):
        if request.path != "/latest/user-data":
            return http(404)
        asked.append(request)
        return http(200, texts[len(asked) % 2].encode())

    with Server(play) as server:
        looks = []
        for _ in range(4):
            around = Surroundings(tmp_path / "run")
            intake = fetch_document(
                [parse_source(f"ec2={server.url}")], PATIENCE, Session(), tmp_path / "state", around
            )
            keep_document(intake, tmp_path / "state", tmp_path / "run")
            looks.append((intake.document.hostname, intake.reason))
    assert {name for name, _ in looks} == {"b"}
    assert f"ec2={server.url} gave two different documents in a row" in {
        reason for _, reason in looks
    }


def test_a_source_further_down_is_followed_while_the_one_above_fails_and_no_longer(tmp_path):
    """Each change is read twice; where the two say the same of a NIC, nothing changes for it."""
    state, around = tmp_path / "state", Surroundings(tmp_path / "run")
    well = True

    def above(request):
        found = b"[global]\nhost_name = above\n" if request.path == "/latest/user-data" else b""
        return (http(200, found) if found else http(404)) if well else http(500)

    with Server(above) as one, Server(lambda _: http(404)) as two:
        below = tmp_path / "below"
        below.write_text("[global]\nhost_name = below\n")
        specs = [
            parse_source(text) for text in (f"ec2={one.url}", f"ec2={two.url}", f"file:{below}")
        ]
        names = []
        for well in (True, False, False, True):  # noqa: B007 (`above` reads it)
            intake = fetch_document(specs, PATIENCE, Session(), state, around)
            keep_document(intake, state, around.run_directory)
            names.append((intake.document.hostname, intake.stale, intake.unanswered))
        below.unlink()
        well = False
        silent = fetch_document(specs, PATIENCE, Session(), state, around)
    assert names == [(name, False, False) for name in ("above", "below", "below", "above")]
    assert (silent.document.hostname, silent.stale, silent.unanswered) == ("above", True, True)


# --- whose document it is -------------------------------------------------------------------------------------------

MINE, YOURS = '{"uuid": "u-1", "hostname": "node9"}', '{"uuid": "u-2", "hostname": "node9"}'


def test_the_id_of_the_instance_is_what_the_platform_says(drive):
    assert drive.take(TEXT, NETWORK, MINE).instance == "openstack:u-1"
    assert drive.take(TEXT, NETWORK).instance == ""


def test_of_another_instance_s_document_no_part_stays(drive):
    drive.take(TEXT, NETWORK, MINE)
    save_machine(drive.state, Machine(instances={"openstack": "u-1"}))
    assert drive.ask(TEXT, NETWORK, MINE).other_machine == ""
    assert (
        drive.ask(None, OTHER_NETWORK, META).other_machine,
        drive.ask(None, OTHER_NETWORK, META).document.hostname,
    ) == ("", "Node0")
    intake = drive.ask(None, OTHER_NETWORK, YOURS)
    assert intake.other_machine == 'the id of the instance changed from "u-1" to "u-2"'
    assert (intake.document.hostname, macs(intake), intake.stored.text) == ("node9", ["03"], "")


def test_a_document_without_nics_is_believed_at_once_of_another_instance(drive):
    drive.take(None, NETWORK, MINE)
    save_machine(drive.state, Machine(instances={"openstack": "u-1"}))
    intake = drive.ask(None, NO_NETWORK, YOURS)
    assert (macs(intake), intake.stale, intake.doubted) == ([], False, "")


class Instances:
    """An EC2 service with this document, and one id after the other; the last one stays."""

    def __init__(self, document, *names):
        self.document, self.names = document, list(names)

    def __call__(self, request):
        if request.path == "/latest/meta-data/instance-id":
            return http(200, (self.names.pop(0) if len(self.names) > 1 else self.names[0]).encode())
        return http(200, self.document) if request.path == "/latest/user-data" else http(404)


@pytest.mark.parametrize(
    ("document", "stored"), [(TEXT.encode(), TEXT), (b"#cloud-config", None), (b"[]", None)]
)
def test_an_instance_id_that_two_looks_have_found_is_believed(tmp_path, document, stored):
    save_document(tmp_path, StoredDocument("ec2", "00", "", OTHER))
    save_machine(tmp_path, Machine(instances={"ec2": "i-1"}))
    with Server(Instances(document, "i-2")) as server:
        intake = fetch_document(
            [parse_source(f"ec2={server.url}")],
            PATIENCE,
            Session(),
            tmp_path,
            Surroundings(tmp_path / "run"),
        )
        assert sum("instance-id" in request for request in server.asked) == 2
    assert intake.other_machine == 'the id of the instance changed from "i-1" to "i-2"'
    assert (intake.stored and intake.stored.text) == stored
    assert intake.none_for_us is (document == b"#cloud-config")


def test_an_instance_id_that_the_next_look_takes_back_is_not_believed(tmp_path):
    save_document(tmp_path, StoredDocument("ec2", "00", "", TEXT))
    save_machine(tmp_path, Machine(instances={"ec2": "i-1"}))
    with Server(Instances(TEXT.encode(), "i-2", "i-1")) as server:
        intake = fetch_document(
            [parse_source(f"ec2={server.url}")],
            PATIENCE,
            Session(),
            tmp_path,
            Surroundings(tmp_path / "run"),
        )
        assert intake.reason == f"ec2={server.url} gave two different documents in a row"
    assert (intake.other_machine, intake.document.hostname, intake.stale) == ("", "Node0", True)


def test_a_service_that_does_not_answer_says_nothing_of_the_instance(tmp_path):
    save_document(tmp_path, StoredDocument("ec2", "00", "", TEXT))
    save_machine(tmp_path, Machine(instances={"ec2": "i-1"}))
    intake = fetch_document(
        [parse_source("ec2=http://127.0.0.1:9")],
        PATIENCE,
        Session(),
        tmp_path,
        Surroundings(tmp_path / "run"),
    )
    assert (intake.other_machine, intake.instance, intake.document.hostname) == ("", "", "Node0")


# --- volumes --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("source", "kind"), [("configdrive", "config-2"), ("nocloud", "cidata"), ("auto", "config-2")]
)
def test_what_was_read_from_a_volume_counts_until_a_metadata_service_has_answered(
    tmp_path, source, kind
):
    files = {"config-2": DRIVE, "cidata": SEED}[kind]
    copy = fill(tmp_path / "run" / "drives" / kind, files)
    around = Surroundings(tmp_path / "run", dmi=tmp_path / "dmi")

    def ask(text):
        state = tmp_path / "state"
        found = fetch_document([parse_source(text)], PATIENCE, Session(), state, around)
        return found.stored.source if found.stored else ""

    assert ask(source) != ""
    save_machine(
        tmp_path / "state", Machine(origin=MetadataService("ec2", "http://169.254.169.254"))
    )
    assert ask(source) == ""
    explicit = "nocloud" if kind == "cidata" else "configdrive"
    assert ask(f"{explicit}={copy}") == f"{explicit}={copy}"
