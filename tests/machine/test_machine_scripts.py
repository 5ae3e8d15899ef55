"""Scripts where there is systemd and where there is none: once, across reboots, and outside of the agent's sandbox."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import pytest
from guest import mac
from steps import ADDRESSES, STATUS, dataplane, in_force

TEXT = f"""[interfaces]
{mac(1)} = up:ipv4:172.16.0.1/24
[scripts]
second = #!/bin/sh
    echo second >> /var/tmp/said
    neuca status --wait > /var/tmp/status
    exit 3
bootscript = #!/usr/bin/env python3
    import os
    print("said", "this")
    with open("/var/tmp/said", "a") as stream:
        print("boot", os.getuid(), file=stream)
    os.system("sleep 12345 &")
"""
SAID = "cat /var/tmp/said"


def ran(guest):
    def has_ended(done):
        guest_part = done.json["guest"] if done.output.startswith("{") else []
        return (
            bool(guest_part)
            and all(feature["finished"] for feature in guest_part)
            and done.json["state"] != "pending"
        )

    status = guest.eventually(STATUS, has_ended, 600).json
    found = next(feature for feature in status["guest"] if feature["feature"] == "scripts")[
        "findings"
    ]
    return {one["subject"]: (one["state"], one["text"].partition(" after ")[0]) for one in found}


ENDED = {
    "bootscript": ("ok", "bootscript: exit status 0"),
    "second": ("failed", "second: exit status 3"),
}


@pytest.mark.long
@pytest.mark.parametrize("image", ["A", "D"])
def test_scripts_run_once_and_their_ends_are_known_after_a_reboot(guests, image):
    guest = guests(image)
    guest.serve(TEXT)
    guest.boot()
    in_force(guest, TEXT, "failed")
    assert ran(guest) == ENDED
    assert guest.check(SAID).splitlines() == ["boot 0", "second"]
    assert dataplane(guest)[mac(1)] == ADDRESSES[mac(1)]
    assert (
        guest.check("pgrep -f 'sleep 12345'") != ""
    )  # what a script leaves in the background goes on
    assert guest.check("cat /var/log/neuca/script-bootscript-*.log") == "said this\n"
    if image == "A":
        assert "said this" in guest.check(
            "journalctl --quiet --no-pager -u 'neuca-script-bootscript-*'"
        )
    guest.reboot()
    assert ran(guest) == ENDED
    assert guest.check(SAID).splitlines() == ["boot 0", "second"]
    guest.serve(TEXT.replace("exit 3", "exit 0"))
    guest.eventually(
        SAID, lambda done: done.output.splitlines() == ["boot 0", "second", "second"], 120
    )
    assert ran(guest) == {**ENDED, "second": ("ok", "second: exit status 0")}
