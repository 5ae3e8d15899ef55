"""A document that is compressed, other JSON, and JSON with odd values: read, or refused with a reason."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import gzip
import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from neuca_tools.commands.neuca import main
from neuca_tools.errors import SelftestError
from neuca_tools.selftest.diagnosis.diagnose import diagnose
from neuca_tools.selftest.readers.documents import MAX_EXPANDED, evidence_of, expand_gzip
from neuca_tools.selftest.report.record import report_json

IPERF3 = {
    "start": {
        "version": "iperf 3.16",
        "connecting_to": {"host": "192.0.2.7", "port": 5201},
        "test_start": {"protocol": "TCP", "num_streams": 1, "duration": 1},
    },
    "intervals": [],
    "end": {
        "sum_sent": {"start": 0, "end": 1, "seconds": 1, "bytes": 9e6, "bits_per_second": 72e6},
        "sum_received": {"start": 0, "end": 1, "seconds": 1, "bytes": 8e6, "bits_per_second": 64e6},
        "cpu_utilization_percent": {"host_total": 12.5},
    },
}


def read(document):
    return evidence_of(json.dumps(document).encode())


def test_a_compressed_file_is_read(tmp_path, capsys):
    path = tmp_path / "run.json.gz"
    path.write_bytes(gzip.compress(json.dumps(IPERF3).encode()))
    assert main(["explain", str(path)], "neuca-selftest") == 6
    assert capsys.readouterr().out.split("\n")[0] == (
        f"{path}: iperf3 3.16, peer 192.0.2.7, options -t 1"
    )


def test_several_members_are_one_document():
    text = json.dumps(IPERF3).encode()
    content = gzip.compress(text[:100]) + gzip.compress(text[100:])
    assert evidence_of(content) == read(IPERF3)


BOMB = gzip.compress(bytes(MAX_EXPANDED // 2), 9)


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (BOMB * 3, "it expands to more than 32 MiB"),
        (gzip.compress(bytes(MAX_EXPANDED + 1)), "it expands to more than 32 MiB"),
        (gzip.compress(b"x" * 1000)[:-9], "it is truncated"),
        (b"\x1f\x8b", "it is truncated"),
        (b"\x1f\x8b\x08\x00" + b"\xff" * 40, "it is damaged"),
        (b"\x1f\x8b garbage", "it is damaged"),
        (gzip.compress(b"x")[:-8] + bytes(8), "it is damaged"),
    ],
    ids=["members", "bomb", "truncated", "header", "damaged", "garbage", "checksum"],
)
def test_a_compressed_file_that_cannot_be_read(content, reason, tmp_path, capsys):
    path = tmp_path / "file.gz"
    path.write_bytes(content)
    assert main(["explain", str(path)], "neuca-selftest") == 1
    assert capsys.readouterr() == ("", f"neuca-selftest: read the gzip file: {reason}\n")


def test_a_bomb_of_bombs_is_expanded_once():
    inner = gzip.compress(bytes(MAX_EXPANDED))
    assert expand_gzip(gzip.compress(inner)) == inner


@pytest.mark.parametrize("content", [b"[]", b"[7]", b"null", b"7"])
def test_other_json_is_what_it_was(content):
    with pytest.raises(SelftestError, match="read the output of iperf: "):
        evidence_of(content)


ODD = st.sampled_from(
    [
        None,
        True,
        -1,
        0,
        1e308,
        float("nan"),
        "",
        "x\x1b[2J",
        "9" * 5000,
        [],
        [[]],
        {},
        [None],
        10**400,
    ]
)


def replaced(data, chosen, value):
    """The document with one of its parts, by its number in order, replaced."""
    count = [0]

    def walk(part):
        count[0] += 1
        if count[0] == chosen:
            return value
        if isinstance(part, dict):
            return {key: walk(one) for key, one in part.items()}
        return [walk(one) for one in part[:8]] if isinstance(part, list) else part

    return walk(data)


@settings(max_examples=300, deadline=None)
@given(chosen=st.integers(1, 30), value=ODD)
def test_no_odd_value_crashes_a_reader(chosen, value):
    document = json.dumps(replaced(IPERF3, chosen, value)).encode()
    try:
        evidence = evidence_of(document)
    except SelftestError as error:
        assert error.text.startswith("read ")  # noqa: PT017 - some of them are refused
    else:
        report_json(evidence, diagnose(evidence))
