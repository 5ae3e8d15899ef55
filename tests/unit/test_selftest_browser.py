"""The HTML report in a real browser: on two pages of paper with nothing split, and in both colour schemes."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import os
import shutil
import struct
import subprocess
import zlib

import pytest
from selftest_pages import large

from neuca_tools import __version__
from neuca_tools.selftest.diagnosis.diagnose import diagnose
from neuca_tools.selftest.report.page import report_page

pytestmark = pytest.mark.long
CHROMIUM = shutil.which("chromium")
PATIENCE = 300.0  # seconds that a browser may take to start on a busy machine
WORDS = "--headless=new --no-sandbox --disable-gpu --no-first-run --hide-scrollbars".split()
PANELS = ("Rate (bit/s)", "Round-trip time", "Window (bytes)", "Retransmits", "busiest CPU")


@pytest.fixture
def browser(tmp_path):
    """Runs chromium on a page, without a network, and returns the file that it wrote."""
    if CHROMIUM is None or shutil.which("pdftotext") is None:
        pytest.skip("no chromium on this machine")
    evidence = large()
    (tmp_path / "page.html").write_text(report_page(evidence, diagnose(evidence)))

    def run(name, *words):
        command = [CHROMIUM, *WORDS, f"--user-data-dir={tmp_path}/profile", *words]
        command.append(f"file://{tmp_path}/page.html")
        if os.geteuid() == 0:
            command = ["unshare", "--net", *command]
        subprocess.run(command, check=True, capture_output=True, timeout=PATIENCE)
        return tmp_path / name

    return run


def test_the_report_prints_on_two_pages(browser, tmp_path):
    printed = browser("page.pdf", "--no-pdf-header-footer", f"--print-to-pdf={tmp_path}/page.pdf")
    text = subprocess.run(
        ["pdftotext", printed, "-"], check=True, capture_output=True, text=True
    ).stdout
    # A line break ends each line of a title, and a form feed each page.
    first, second, *rest = (" ".join(one.split()) for one in text.split("\f"))
    assert rest == [""]
    evidence = large()
    titles = {one.title for one in diagnose(evidence).findings}
    assert len(titles) >= 5
    assert {one for one in titles if one not in first} == set()
    assert [one for one in PANELS if one in first] == []
    assert [one for one in PANELS if one not in second] == []
    assert "Path" in second
    assert "seconds since the first test began" in second
    assert f"neuca-guest-tools {__version__}" in second


def first_pixel(content: bytes) -> tuple[int, ...]:
    """Of a PNG with 8 bits for each colour: its filter leaves the first pixel of the first row as it is."""
    data, at = b"", 8
    while at < len(content):
        (length,), kind = struct.unpack_from(">I", content, at), content[at + 4 : at + 8]
        data += content[at + 8 : at + 8 + length] if kind == b"IDAT" else b""
        at += 12 + length
    return tuple(zlib.decompress(data)[1:4])


@pytest.mark.parametrize(("scheme", "paper"), [(1, (255, 255, 255)), (0, (0x14, 0x16, 0x1A))])
def test_the_report_follows_the_colour_scheme(browser, tmp_path, scheme, paper):
    shown = browser(
        "page.png",
        f"--screenshot={tmp_path}/page.png",
        f"--blink-settings=preferredColorScheme={scheme}",
    )
    assert first_pixel(shown.read_bytes()) == paper
