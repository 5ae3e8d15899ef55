"""The recipes for images: each can be read by its language, and `neuca clean` is the last thing that it does."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import pytest
import yaml

IMAGES = Path(__file__).parents[2] / "packaging" / "images"
ELEMENT = "diskimage-builder/neuca-guest-tools"
SHELL = (
    "build",
    "mmdebstrap-hook",
    "virt-customize",
    "mkosi/mkosi.postinst.chroot",
    "mkosi/mkosi.finalize.chroot",
    f"{ELEMENT}/extra-data.d/50-neuca-guest-tools",
    f"{ELEMENT}/install.d/50-neuca-guest-tools",
    f"{ELEMENT}/finalise.d/99-neuca-guest-tools",
)
# Where each recipe ends.
LAST = (
    "mmdebstrap-hook",
    "virt-customize",
    "mkosi/mkosi.finalize.chroot",
    f"{ELEMENT}/finalise.d/99-neuca-guest-tools",
)


@pytest.mark.parametrize("name", SHELL)
def test_a_script_is_valid_and_can_be_run(name):
    path = IMAGES / name
    shell = path.read_text().splitlines()[0].removeprefix("#!")
    done = subprocess.run([shell, "-n", path], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert os.access(path, os.X_OK)


@pytest.mark.parametrize("name", LAST)
def test_the_last_command_of_a_script_cleans(name):
    assert re.search(r'neuca clean"?$', (IMAGES / name).read_text().splitlines()[-1])


def test_the_image_of_make_is_cleaned_by_the_hook():
    assert '--customize-hook="$here/mmdebstrap-hook' in (IMAGES / "build").read_text()


def test_the_server_of_cloud_init_cleans_itself_last_and_only_then_switches_itself_off():
    document = yaml.safe_load((IMAGES / "cloud-init.yaml").read_text())
    (script,) = document["write_files"]
    assert script["content"].splitlines()[-1] == "neuca clean"
    assert document["runcmd"] == [[script["path"]]]
    # `neuca clean` empties it, last of all that identifies the host; a build that fails leaves it.
    assert document["power_state"] == {
        "mode": "poweroff",
        "condition": "test ! -s /etc/machine-id",
    }


def test_packer_cleans_last():
    inline = re.search(r"inline = \[(.*?)\]", (IMAGES / "neuca.pkr.hcl").read_text(), re.DOTALL)[1]
    assert re.findall(r'"(.*)"', inline)[-1] == "sudo neuca clean"


def test_mkosi_installs_what_the_package_depends_on():
    control = (IMAGES.parent / "debian" / "control").read_text()
    depends = re.search(r"^Depends:\n((?: .*\n)+)", control, re.MULTILINE)[1]
    needed = set(re.findall(r"^ (python3[\w-]*)", depends, re.MULTILINE))
    assert needed <= set((IMAGES / "mkosi" / "mkosi.conf").read_text().split())


@pytest.mark.parametrize("words", [[], ["image"], ["image", "package.zip"]])
def test_virt_customize_says_how_it_is_used(words):
    done = subprocess.run(
        [IMAGES / "virt-customize", *words], capture_output=True, text=True, check=False
    )
    assert done.returncode == 2
    assert done.stderr.startswith(("usage: ", str(IMAGES / "virt-customize")))
