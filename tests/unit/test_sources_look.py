"""What a SOURCE may be, local files, and several sources within one budget."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sources_server import Server, http

from neuca_tools.errors import SourceError, UsageError
from neuca_tools.model.clouds import CLOUDS
from neuca_tools.sources import Session, SourceSpec, Token, ask_sources, fetch_path, parse_source

LONG = 300
KNOWN = (
    "it must be one of auto, file:PATH, configdrive[=PATH], nocloud[=PATH],"
    f" {', '.join(cloud.usage for cloud in CLOUDS)}, lxd[=SOCKET], imds[=SOCKET], none"
)


def ask(*texts, budget=LONG, session=None):
    return ask_sources([parse_source(text) for text in texts], budget, session or Session())


def reason(*texts, budget=LONG):
    with pytest.raises(SourceError) as caught:
        ask(*texts, budget=budget)
    begin = "no user-data from any source: "
    assert str(caught.value).startswith(begin)
    return str(caught.value)[len(begin) :]


# --- SOURCE ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "spec"),
    [
        ("auto", SourceSpec("auto")),
        ("ec2", SourceSpec("ec2")),
        ("ec2=http://127.0.0.1:8080", SourceSpec("ec2", "http://127.0.0.1:8080")),
        ("ec2=http://[fd00:ec2::254]", SourceSpec("ec2", "http://[fd00:ec2::254]")),
        (
            "ec2=http://[fe80::a9fe:a9fe%eth0]:80/x",
            SourceSpec("ec2", "http://[fe80::a9fe:a9fe%eth0]:80/x"),
        ),
        ("none", SourceSpec("none")),
        ("nocloud", SourceSpec("nocloud")),
        ("configdrive=/mnt/x", SourceSpec("configdrive", "/mnt/x")),
        ("openstack=http://[::1]:80", SourceSpec("openstack", "http://[::1]:80")),
        ("file:/a=b:c", SourceSpec("file", "/a=b:c")),
        ("file:relative/é", SourceSpec("file", "relative/é")),
    ],
)
def test_a_source_is_read_and_written_alike(text, spec):
    assert parse_source(text) == spec
    assert str(spec) == text


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", KNOWN),
        ("pigeon", KNOWN),
        ("EC2", KNOWN),
        ("auto=x", KNOWN),
        ("ec2:http://127.0.0.1", KNOWN),
        ("file=/x", KNOWN),
        ("ec2=", 'nothing follows "="'),
        ("none=x", '"none" takes no argument'),
        ("configdrive=", 'nothing follows "="'),
        ("nocloud=a\0b", 'a path of printable characters must follow "nocloud="'),
        ("openstack=http://metadata", '"metadata" is not a literal address'),
        ("file:", 'nothing follows ":"'),
        ("file", 'a path of printable characters must follow "file:"'),
        ("file:a\0b", 'a path of printable characters must follow "file:"'),
        ("ec2=127.0.0.1", '"127.0.0.1" is not http://ADDRESS[:PORT][/PATH]'),
        ("ec2=https://127.0.0.1", '"https://127.0.0.1" is not http://ADDRESS[:PORT][/PATH]'),
        (
            "ec2=http://user@127.0.0.1",
            '"http://user@127.0.0.1" is not http://ADDRESS[:PORT][/PATH]',
        ),
        ("ec2=http://127.0.0.1/?x", '"http://127.0.0.1/?x" is not http://ADDRESS[:PORT][/PATH]'),
        ("ec2=http://127.0.0.1/a b", '"http://127.0.0.1/a b" is not http://ADDRESS[:PORT][/PATH]'),
        ("ec2=http://127.0.0.1\n", '"http://127.0.0.1\n" is not http://ADDRESS[:PORT][/PATH]'),
        ("ec2=http://::1", '"http://::1" is not http://ADDRESS[:PORT][/PATH]'),
        ("ec2=http://127.0.0.1:65536", "port 65536 is not from 1 to 65535"),
        ("ec2=http://127.0.0.1:0", "port 0 is not from 1 to 65535"),
        ("ec2=http://metadata", '"metadata" is not a literal address'),
        ("ec2=http://127.1", '"127.1" is not a literal address'),
        ("ec2=http://[127.0.0.1]", '"127.0.0.1" is not a literal address'),
        ("ec2=http://[::g]", '"::g" is not a literal address'),
    ],
)
def test_a_bad_source_is_refused_with_its_reason(text, why):
    with pytest.raises(UsageError) as caught:
        parse_source(text)
    expected = f'invalid source "{text}": {why}'
    assert str(caught.value) == expected.replace("\0", r"\x00").replace("\n", r"\n")


def test_a_name_for_an_address_is_refused_with_a_hint():
    with pytest.raises(UsageError) as caught:
        parse_source("ec2=http://metadata.example/")
    assert caught.value.hint == "Names are not looked up: without a network yet, DNS costs minutes."


@given(
    start=st.sampled_from(
        ["", "auto", "file:", "ec2=", "ec2=http://", "ec2=http://[", "ec2=http://1.2.3.4"]
    ),
    rest=st.text(),
)
def test_any_text_is_a_source_or_a_usage_error(start, rest):
    try:
        spec = parse_source(start + rest)
    except UsageError:
        return
    assert str(spec) == start + rest


# --- file:PATH ------------------------------------------------------------------------------------------------------


def test_a_file_is_its_bytes(tmp_path):
    path = tmp_path / "document"
    path.write_bytes(b"\xff\r\n\0")
    answer = ask(f"file:{path}")
    assert (answer.source, answer.data) == (f"file:{path}", b"\xff\r\n\0")


def test_an_empty_file_is_empty_and_not_none(tmp_path):
    (tmp_path / "empty").touch()
    assert ask(f"file:{tmp_path}/empty").data == b""


def test_an_absent_file_is_an_error_and_not_none(tmp_path):
    assert (
        reason(f"file:{tmp_path}/x")
        == f"file:{tmp_path}/x: cannot be read: No such file or directory"
    )


def test_a_directory_is_refused(tmp_path):
    assert reason(f"file:{tmp_path}") == f"file:{tmp_path}: cannot be read: Is a directory"


def test_a_fifo_is_refused_without_waiting_for_a_writer(tmp_path):
    os.mkfifo(tmp_path / "fifo")
    assert reason(f"file:{tmp_path}/fifo") == f"file:{tmp_path}/fifo: is not a regular file"


def test_a_device_is_refused():
    assert reason("file:/dev/zero") == "file:/dev/zero: is not a regular file"


def test_a_file_over_the_limit_is_refused(tmp_path):
    (tmp_path / "fits").write_bytes(b"x" * 1048576)
    (tmp_path / "large").write_bytes(b"x" * 1048577)
    assert len(ask(f"file:{tmp_path}/fits").data) == 1048576
    assert (
        reason(f"file:{tmp_path}/large") == f"file:{tmp_path}/large: is larger than 1048576 bytes"
    )


def descriptors():
    return sorted(Path("/proc/self/fd").iterdir())


def test_a_refused_file_leaves_no_descriptor_open(tmp_path):
    before = descriptors()
    reason(f"file:{tmp_path}")
    reason("file:/dev/zero")
    assert descriptors() == before


def test_a_file_has_no_metadata():
    with pytest.raises(SourceError) as caught:
        fetch_path(parse_source("file:/x"), "/latest/meta-data/public-ipv4", LONG, Session())
    assert str(caught.value) == (
        "no /latest/meta-data/public-ipv4 from any source: file:/x: it has no"
        " /latest/meta-data/public-ipv4: only ec2 and alibaba have paths"
    )


def test_a_file_is_read_without_the_http_client():
    code = (
        "import sys; from neuca_tools.sources import *; ask_sources([parse_source('file:/etc/passwd')], 1, Session());"
        "print({'http.client', 'socket', 'email', 'urllib.request'} & set(sys.modules))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=LONG
    )
    assert done.stdout == "set()\n"


# --- Several --------------------------------------------------------------------------------------------------------


@pytest.fixture
def document(tmp_path):
    path = tmp_path / "document"
    path.write_bytes(b"from the file")
    return f"file:{path}"


def test_the_first_source_that_has_data_answers(document):
    with Server(lambda _: http(200, b"never")) as server:
        assert ask(document, f"ec2={server.url}").data == b"from the file"
        assert server.asked == []


def test_none_lets_the_next_source_answer(document):
    with Server(lambda _: http(404)) as server:
        answer = ask(f"ec2={server.url}", document)
        assert (answer.source, answer.data) == (document, b"from the file")
        assert answer.session.token(server.url) is not None


def test_a_failure_lets_the_next_source_answer(document):
    assert ask("file:/nowhere", document).data == b"from the file"


def test_none_from_everyone_is_none():
    with Server(lambda _: http(404)) as one, Server(lambda _: http(404)) as two:
        assert ask(f"ec2={one.url}", f"ec2={two.url}").data is None


@pytest.mark.parametrize("order", [1, -1])
def test_none_beside_a_failure_is_an_error_that_names_both(order):
    with Server(lambda _: http(404)) as server:
        said = [
            f"ec2={server.url}: none",
            "file:/nowhere: cannot be read: No such file or directory",
        ]
        assert reason(*[f"ec2={server.url}", "file:/nowhere"][::order]) == "; ".join(said[::order])


def test_a_silent_source_leaves_time_for_the_next(document):
    began = time.monotonic()
    with Server(lambda _: None) as server:
        assert ask(f"ec2={server.url}", document, budget=1).data == b"from the file"
    assert time.monotonic() - began < LONG


def test_silent_sources_share_one_budget():
    began = time.monotonic()
    with Server(lambda _: None) as one, Server(lambda _: None) as two:
        assert reason(f"ec2={one.url}", f"ec2={two.url}", budget=4) == "; ".join(
            f"ec2={url}: GET {url}/latest/user-data: no complete response within 4 s"
            for url in (one.url, two.url)
        )
    assert 3.6 <= time.monotonic() - began < LONG


def test_a_source_that_is_named_twice_is_asked_once():
    with Server(lambda _: http(404)) as server:
        ask(f"ec2={server.url}", f"ec2={server.url}")
        assert server.asked.count("GET /latest/user-data") == 1


def test_without_any_source_there_is_no_answer():
    assert reason() == "there is no source"


# --- Session --------------------------------------------------------------------------------------------------------


def test_a_session_survives_json():
    session = Session({"http://a": Token("secret", 12.5), "http://b": Token("", 3.0)})
    assert Session.from_json(json.loads(json.dumps(session.tokens))) == session
