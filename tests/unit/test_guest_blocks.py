"""Marked lines in a file of others: every other byte stays, and so do its mode, its attributes and its links."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import codecs
import os
import re
import stat
from pathlib import Path

import pytest

from neuca_tools.errors import ApplyError
from neuca_tools.guest import blocks, version1
from neuca_tools.guest.hostname import hosts_lines

BEGIN, END = blocks.BEGIN.decode(), blocks.END.decode()
HOSTS = b"127.0.0.1\tlocalhost\n\n# mine, with a trailing blank \n::1 ip6-localhost\r\n\xff\xfe no text\nlast line without an end"


def test_the_whole_name_comes_before_the_short_one():
    assert hosts_lines("node0.example.org", "127.0.1.1") == ["127.0.1.1\tnode0.example.org node0"]
    assert hosts_lines("node0", "127.0.1.1") == ["127.0.1.1\tnode0"]


@pytest.mark.parametrize("name", ["localhost", "Localhost.localdomain"])
def test_the_name_of_every_host_keeps_its_address(name):
    assert hosts_lines(name, "127.255.255.1") == []


@pytest.mark.parametrize("content", [b"", HOSTS, b"\n", b"one line", b"\r\n\r\n", b"\x00"])
def test_what_was_there_comes_back_to_the_byte(content):
    one = blocks.edited_content(content, ["one"])
    two = blocks.edited_content(one, ["two", "three"])
    assert two == f"{BEGIN}\ntwo\nthree\n{END}\n".encode() + content
    assert blocks.edited_content(two, ["two", "three"]) == two
    assert blocks.edited_content(two, []) == content


def test_lines_that_somebody_put_above_stay_above():
    block = f"{BEGIN}\nours\n{END}\n".encode()
    assert (
        blocks.edited_content(b"above\n" + block + b"below", ["new"])
        == f"above\n{BEGIN}\nnew\n{END}\nbelow".encode()
    )


def test_a_byte_order_mark_that_an_editor_put_before_the_block_does_not_hide_it():
    marked = codecs.BOM_UTF8 + blocks.edited_content(HOSTS, ["ours"])
    assert blocks.edited_content(marked, ["new"]) == blocks.edited_content(HOSTS, ["new"])
    assert blocks.edited_content(marked, []) == HOSTS
    with_mark = codecs.BOM_UTF8 + HOSTS
    assert blocks.edited_content(blocks.edited_content(with_mark, ["ours"]), []) == with_mark


@pytest.mark.parametrize(
    "content",
    [
        f"{BEGIN}\nours\n",
        f"ours\n{END}\n",
        f"{END}\n{BEGIN}\n",
        f"{BEGIN}\n{BEGIN}\n{END}\n",
        f"{BEGIN}\n{END}\n{END}\n",
    ],
)
def test_marks_that_are_not_one_pair_are_left_alone(content, tmp_path):
    (tmp_path / "hosts").write_text(content)
    with pytest.raises(ApplyError) as caught:
        blocks.edit_file(tmp_path / "hosts", ["new"])
    assert caught.value.text == (
        f'edit "{tmp_path}/hosts": its marked lines are damaged: it does not have exactly one'
        " BEGIN and one END of neuca-guest-tools"
    )
    assert (tmp_path / "hosts").read_text() == content


def test_mode_attributes_and_links_stay(tmp_path):
    real, link = tmp_path / "real", tmp_path / "hosts"
    real.write_bytes(HOSTS)
    real.chmod(0o640)
    link.symlink_to("real")
    os.setxattr(real, "user.note", b"kept")
    assert blocks.edit_file(link, ["new"])
    assert link.readlink() == Path("real")
    assert stat.S_IMODE(real.stat().st_mode) == 0o640
    assert os.getxattr(real, "user.note") == b"kept"
    assert real.read_bytes().endswith(HOSTS)
    assert {path.name for path in tmp_path.iterdir()} == {"real", "hosts"}


def test_a_missing_file_is_made_only_for_lines(tmp_path):
    assert not blocks.edit_file(tmp_path / "hosts", [])
    assert not (tmp_path / "hosts").exists()
    assert blocks.edit_file(tmp_path / "hosts", ["new"])
    assert stat.S_IMODE((tmp_path / "hosts").stat().st_mode) == 0o644


@pytest.mark.parametrize(
    ("make", "why"),
    [
        (lambda path: path.mkdir(), "it is not a regular file"),
        (os.mkfifo, "it is not a regular file"),
        # The text of the first call that fails, which depends on Python's version.
        (
            lambda path: path.symlink_to(path.name),
            f"Symlink loop|[Tt]oo many levels|{blocks.LINK}",
        ),
        (
            lambda path: (path.touch(), os.link(path, path.with_name("other"))),
            r"it has several names \(hard links\), which an atomic edit cannot keep",
        ),
    ],
    ids=["directory", "fifo", "circle", "hard link"],
)
def test_what_is_no_file_of_one_name_is_refused(tmp_path, make, why):
    make(tmp_path / "hosts")
    with pytest.raises(ApplyError) as caught:
        blocks.edit_file(tmp_path / "hosts", ["new"])
    assert caught.value.text.startswith(f'edit "{tmp_path}/hosts": ')
    assert re.search(why, caught.value.text)


def test_what_a_crash_left_beside_it_is_not_written_through(tmp_path):
    (tmp_path / "foreign").write_text("mine")
    (tmp_path / "hosts.neuca-new").symlink_to("foreign")
    assert blocks.edit_file(tmp_path / "hosts", ["new"])
    assert (tmp_path / "foreign").read_text() == "mine"
    assert not (tmp_path / "hosts.neuca-new").exists()


OLD = (version1.HOSTS_BEGIN, version1.HOSTS_END)
BEFORE, AFTER = b"127.0.0.1 localhost\n\n", b"\n10.0.0.1 a\n"
BLOCK = b"%s\n127.255.255.1\tnode0\n%s\n" % OLD


def test_the_block_of_version_1_7_is_replaced_by_ours():
    content = blocks.edited_content(BEFORE + BLOCK + AFTER, ["127.255.255.1 node0"], OLD)
    ours = b"%s\n127.255.255.1 node0\n%s\n" % (blocks.BEGIN, blocks.END)
    assert content == ours + BEFORE + AFTER
    assert blocks.edited_content(content, ["127.255.255.1 node0"], OLD) == content


@pytest.mark.parametrize(
    "content",
    [
        BEFORE + version1.HOSTS_BEGIN + b"\n" + AFTER,
        BEFORE + version1.HOSTS_END + b"\n" + version1.HOSTS_BEGIN + b"\n" + AFTER,
        BLOCK + BLOCK,
    ],
    ids=["no end", "reversed", "two"],
)
def test_marks_of_version_1_7_that_are_not_one_pair_are_left_alone(content):
    assert blocks.edited_content(content, [], OLD) == content
