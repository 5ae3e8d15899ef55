"""What is a NEuca document among all the bytes that user-data may be."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import base64
import functools
import gzip
import itertools
import random
from base64 import b64encode, encodebytes
from email.mime.multipart import MIMEMultipart
from email.mime.text import MIMEText

import pytest

from neuca_tools.documents import find_document, parse
from neuca_tools.documents.envelope import MAX_BYTES, MAX_UNZIPPED_BYTES
from neuca_tools.errors import DocumentError

TEXT = "[interfaces]\nfe163e006daf = up:ipv4:172.16.0.1/24\n\n[scripts]\nbootscript = #!/bin/sh\n    echo ü\n"
DATA = TEXT.encode()
# Neither a time nor a random boundary: the names of the tests are the same in each process of a run.
zipped = functools.partial(gzip.compress, mtime=0)
BOUNDARIES = itertools.count()


def label(value):
    # Data of a megabyte makes no good name.
    return str(value)[:60].encode("unicode_escape").decode()


def nested(*parts):
    message = MIMEMultipart(boundary=f"===={next(BOUNDARIES)}====")
    for one in parts:
        message.attach(one)
    return message


def mime(*parts):
    return nested(*parts).as_bytes()


def part(body, subtype="x-neuca-userdata", charset="utf-8"):
    return MIMEText(body, subtype, charset)


def raw_part(encoding, body):
    head = f"Content-Type: text/x-neuca-userdata\r\nContent-Transfer-Encoding: {encoding}\r\n\r\n".encode()
    return (
        b"MIME-Version: 1.0\nContent-Type: multipart/mixed; boundary=XX\n\n--XX\r\n"
        + head
        + body
        + b"\r\n--XX--\r\n"
    )


@pytest.mark.parametrize(
    "data",
    [
        DATA,
        b"\xef\xbb\xbf" + DATA,
        DATA.replace(b"\n", b"\r\n"),
        zipped(DATA),
        zipped(b"\xef\xbb\xbf" + DATA),
        zipped(DATA) + b"\0" * 512,
        mime(part(TEXT)),
        zipped(mime(part(TEXT))),
        mime(
            part("#!/bin/sh\n", "x-shellscript"),
            part(TEXT),
            part("#cloud-config\n", "cloud-config"),
        ),
        mime(nested(part(TEXT))),
        raw_part("base64", base64.encodebytes(zipped(DATA))),
        raw_part("8bit", DATA.replace(b"\n", b"\r\n")),
        raw_part("Quoted-Printable", TEXT.replace("=", "=3D").replace("ü", "=C3=BC").encode()),
        part(TEXT).as_bytes(),
        part(TEXT).as_bytes().replace(b"\n", b"\r\n"),
        b"Subject: x\nX-Other: y\n folded\n" + part(TEXT).as_bytes(),
        b"From nobody Thu Jan  1 00:00:00 1970\n" + mime(part(TEXT)),
    ],
)
def test_a_document_is_found_however_it_is_wrapped(data):
    assert find_document(data).rstrip("\n") == TEXT.rstrip("\n")


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b" \r\n\t\n",
        b"\xef\xbb\xbf",
        zipped(b""),
        b"#!/bin/bash\n[interfaces]\n",
        b"#cloud-config\n[interfaces]\n",
        b"\xef\xbb\xbf#cloud-config\n",
        b"\n  #Cloud-Config\n",
        b"#cloud-config-archive\n- x\n",
        b"#cloud-boothook\n",
        b"## template: jinja\n#cloud-config\n",
        b"##template: jinja\n",
        b"#include\nhttp://127.0.0.1/x\n",
        b"#include-once\n",
        b"#upstart-job\n",
        b"#part-handler\n",
        b"#ps1_sysnative\n",
        b'{"ignition":{"version":"3.4.0"},"storage":{}}',
        b'{\n  "ignition": {"version": "3.4.0"}\n}\n',
        zipped(b"#cloud-config\n"),
        b"#!/bin/sh\n" + b"\xff\0" * MAX_BYTES,
        mime(part("#!/bin/sh\n[interfaces]\n", "x-shellscript")),
        mime(part(" \n")),
        b"Content-Type: text/cloud-config\nMIME-Version: 1.0\n\n[interfaces]\n",
    ],
    ids=label,
)
def test_user_data_that_is_not_ours_is_no_document(data):
    assert find_document(data) is None


@pytest.mark.parametrize("comment", ["# NEuca", "#includes two NICs", "; x", "#", "##"])
def test_a_comment_at_the_top_does_not_make_a_document_foreign(comment):
    assert find_document(f"{comment}\n{TEXT}".encode()) == f"{comment}\n{TEXT}"


def noise(size):
    return random.Random(1).randbytes(size)


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"\x7fELF\2\1\1\0", "it has NUL bytes, so it is not text"),
        (b"[interfaces]\n\xff\xfe", "it is not UTF-8 text (byte 13)"),
        ("[interfaces]".encode("utf-16"), "it is UTF-16, not UTF-8 text"),
        ("[interfaces]".encode("utf-16-le"), "it is UTF-16, not UTF-8 text"),
        ("[interfaces]".encode("utf-16-be"), "it is UTF-16, not UTF-8 text"),
        (b64encode(b64encode(DATA)), "it is base64, not UTF-8 text"),
        (encodebytes(encodebytes(DATA)), "it is base64, not UTF-8 text"),
        (b64encode(DATA)[:-3], "it is base64, not UTF-8 text"),
        (base64.urlsafe_b64encode(DATA + b"\xef\xbe\xbe"), "it is base64, not UTF-8 text"),
        (raw_part("base64", encodebytes(b64encode(DATA))), "it is base64, not UTF-8 text"),
        (zipped(zipped(DATA)), "it is gzip, not UTF-8 text"),
        (b64encode(b"[interfaces]" + b"#" * MAX_BYTES), f"it is longer than {MAX_BYTES} bytes"),
        (b64encode(b"no document at all"), 'it has no section, such as "[interfaces]"'),
        (b"words that are no base64 at all", 'it has no section, such as "[interfaces]"'),
        (b"ThisIsOneLongWordAndNoDocument", 'it has no section, such as "[interfaces]"'),
        (b"some-name_of_a-placeholder\n", 'it has no section, such as "[interfaces]"'),
        (b"A" * 16 + b" " * 500_000 + b"!", 'it has no section, such as "[interfaces]"'),
        (b"# nothing but a comment\n", 'it has no section, such as "[interfaces]"'),
        (b'{"interfaces": []}', 'it has no section, such as "[interfaces]"'),
        (b"[interfaces]\n" + b"#" * MAX_BYTES, f"it is longer than {MAX_BYTES} bytes"),
        (zipped(b"#" * (MAX_UNZIPPED_BYTES + 1)), f"it is longer than {MAX_UNZIPPED_BYTES} bytes"),
        (zipped(b"[a]" + b" " * (1 << 26), 1), f"it is longer than {MAX_UNZIPPED_BYTES} bytes"),
        (zipped(noise(9000))[:4000], "its gzip data is damaged: it ends too early"),
        (zipped(DATA) + b"x", "its gzip data is damaged: it is followed by other data"),
        (raw_part("x-uuencode", b"x"), "the transfer encoding of its MIME part is unknown"),
        (
            mime(part(TEXT), part(TEXT)),
            '2 MIME parts of type "text/x-neuca-userdata" instead of one',
        ),
        (mime(part(TEXT, charset="latin-1")), "it is not UTF-8 text (byte 93)"),
        (raw_part("base64", b"W2Es!"), "its MIME part is damaged: InvalidBase64CharactersDefect"),
        (raw_part("8bit", b"multipart/" * 33), "its MIME message has more than 32 levels"),
    ],
    ids=label,
)
def test_what_was_meant_for_us_and_cannot_be_read_is_refused(data, reason):
    with pytest.raises(DocumentError) as caught:
        parse(find_document(data))
    assert caught.value.text == f"cannot read the document: {reason}"


@pytest.mark.parametrize("pack", [b64encode, encodebytes, lambda data: b"\n" + b64encode(data)])
@pytest.mark.parametrize("data", [DATA, zipped(DATA), zipped(mime(part(TEXT)))])
def test_user_data_that_was_encoded_once_too_often_is_decoded(pack, data):
    assert find_document(pack(data)) == find_document(data)
    assert find_document(pack(b"#cloud-config\nhostname: node0\n")) is None


def test_damaged_gzip_says_what_zlib_says():
    with pytest.raises(
        DocumentError, match=r"^cannot read the document: its gzip data is damaged: Error -3 "
    ):
        find_document(b"\x1f\x8b" + b"\xff" * 40)


def test_a_document_may_be_longer_where_it_was_compressed():
    text = "[interfaces]\n" + "#\n" * MAX_BYTES
    assert find_document(zipped(text.encode())) == text


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", 'it has no section, such as "[interfaces]"'),
        ("# comment", 'it has no section, such as "[interfaces]"'),
        ("a = 1\n[]\n[", 'it has no section, such as "[interfaces]"'),
        ("[global]\n\0", "it has NUL bytes, so it is not text"),
        ("[global]\n\ud800", "it is not UTF-8 text"),
        ("[global]\n" + "x" * MAX_UNZIPPED_BYTES, f"it is longer than {MAX_UNZIPPED_BYTES} bytes"),
    ],
    ids=label,
)
def test_parse_refuses_a_text_that_is_no_document(text, reason):
    with pytest.raises(DocumentError) as caught:
        parse(text)
    assert caught.value.text == f"cannot read the document: {reason}"
