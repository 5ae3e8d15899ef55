"""The recipes for images: each can be read by its language, and `neuca clean` is the last thing that it does."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import os
import re
import shutil
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


PACKER = IMAGES / "packer"


def test_packer_cleans_last():
    recipe = (PACKER / "neuca.pkr.hcl").read_text()
    inline = re.search(r"inline = \[(.*?)\]", recipe, re.DOTALL)[1]
    assert re.findall(r'"(.*)"', inline)[-1] == "sudo neuca clean"


def test_packer_logs_in_as_its_user_data_says_and_locks_that_at_the_end():
    recipe = (PACKER / "neuca.pkr.hcl").read_text()
    files = re.findall(r"\$\{path\.root\}/([\w-]+)", recipe)
    assert files == ["meta-data", "user-data"]
    assert all((PACKER / one).is_file() for one in files)
    user, password = (re.search(rf'{one} += "(.*)"', recipe)[1] for one in ("username", "password"))
    document = yaml.safe_load((PACKER / "user-data").read_text())
    assert document["chpasswd"] == {"expire": False, "list": [f"{user}:{password}"]}
    assert f"sudo passwd --lock {user}" in recipe
    # cloud-init writes ssh_pwauth to this file, which "cloud-init clean" keeps.
    assert document["ssh_pwauth"] is True
    assert "sudo rm /etc/ssh/sshd_config.d/50-cloud-init.conf" in recipe


def test_the_recipe_of_packer_is_valid(tmp_path):
    """By Debian's packer, which is not installed for the tests; the checksum would be downloaded."""
    packer = shutil.which("packer")
    if packer is None:
        pytest.skip("no packer on this machine")
    (tmp_path / "agent.deb").touch()
    given = {"package": tmp_path / "agent.deb", "checksum": "none"}
    words = [f"-var={name}={value}" for name, value in given.items()]
    environment = {"HOME": str(tmp_path), "PATH": "/usr/bin:/bin", "CHECKPOINT_DISABLE": "1"}
    command = [packer, "validate", *words, PACKER / "neuca.pkr.hcl"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


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
