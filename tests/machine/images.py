"""The guests' disks: Debian's packages, the lab's agent, and our own package installed by dpkg; cached by their content.

Built in two stages, each under a name that is the digest of what goes in: a base root of the distribution (a minute), and
the disk image with our package in it (seconds), which is all that a change of the product builds anew.
"""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
CACHE = (
    Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "neuca-guest-tools" / "images"
)
BUILD_DEB = Path(os.environ.get("NEUCA_BUILD_DEB", ROOT / "packaging" / "build-deb"))
PACKAGED = (
    "neuca_tools",
    "systemd",
    "sysvinit",
    "packaging",
    "docs",
    "examples",
    "setup.cfg",
    "pyproject.toml",
    "README.md",
    "LICENSE",
    "CHANGELOG.md",
)
BASE_PATIENCE, IMAGE_PATIENCE = 1800, 600  # seconds
KEEP = 3600  # seconds that whatever was used stays in the cache
SPARE = 3  # of each kind that stay longer

CLOUD_KERNEL = "linux-image-cloud-amd64"
COMMON = f"""udev kmod dbus iproute2 iputils-ping procps ethtool {CLOUD_KERNEL} initramfs-tools netbase
python3 python3-pyroute2 python3-pyudev python3-yaml python3-dbus python3-systemd
python3-pytest python3-hypothesis python3-dbusmock""".split()
AGENT_UNIT = """[Unit]
Description=The lab's agent
DefaultDependencies=no
After=systemd-remount-fs.service systemd-tmpfiles-setup-dev.service
StartLimitIntervalSec=0

[Service]
ExecStart=/usr/bin/python3 /usr/local/lib/lab/agent.py
Restart=always
KillMode=process
OOMScoreAdjust=-1000

[Install]
WantedBy=sysinit.target
"""
# From before any network manager starts: what is set later, even for a moment, is in the file.
MONITOR_UNIT = """[Unit]
Description=The lab's record of links, addresses and routes
DefaultDependencies=no
After=systemd-remount-fs.service
Wants=network-pre.target
Before=network-pre.target neuca-names.service

[Service]
Type=exec
ExecStart=/bin/sh -c 'exec ip -ts monitor link address route > /run/lab-monitor'
"""
NETWORKD_MANAGEMENT = (
    "[Match]\nType=ether\n\n[Network]\nDHCP=yes\n"  # as cloud images have it: whatever is there
)
INTERFACES = "auto lo\niface lo inet loopback\n\nauto eth0\niface eth0 inet dhcp\n"
# The target is of this very guest: it has to be there as long as a disk of it is mounted.
TARGET_UNIT = "[Unit]\nBefore=open-iscsi.service remote-fs-pre.target\n"
# No service beside the agent: where instructions are counted, time leaps over every wait, and timers of services with it.
BARE_INIT = """#!/bin/sh
mount -t tmpfs tmpfs /tmp
modprobe virtio_console
ip link set lo up
while :; do python3 /usr/local/lib/lab/agent.py; done
"""
ENABLE = "systemctl enable lab-agent.service; systemctl mask apt-daily.timer apt-daily-upgrade.timer getty@tty1.service"


@dataclass(frozen=True)
class Recipe:
    """One kind of guest. `files` are written and `commands` run in its root before our package comes."""

    name: str
    suite: str
    packages: tuple[str, ...]
    files: tuple[tuple[str, str], ...] = ()
    commands: str = "true"
    arguments: str = ""
    machine: tuple[str, ...] = ()  # more words for QEMU
    kernel: str = CLOUD_KERNEL

    def all_packages(self) -> list[str]:
        return [*(self.kernel if name == CLOUD_KERNEL else name for name in COMMON), *self.packages]

    def base_digest(self) -> str:
        agent = (HERE / "inside" / "agent.py").read_text()
        words = [self.suite, *self.all_packages(), repr(self.files), self.commands, agent]
        return hashlib.sha256("\n".join(words).encode()).hexdigest()[:16]


_SYSTEMD = (("etc/systemd/system/lab-agent.service", AGENT_UNIT),)
_SERIAL = "sed -i '/^[1-6]:/d' /etc/inittab; echo 'la:2345:respawn:/usr/bin/python3 /usr/local/lib/lab/agent.py' >> /etc/inittab"
_LOGINS = ("openssh-server", "sudo")
_NOT_OURS = " ".join(
    f"systemd.mask=neuca-{unit}" for unit in ("names.service", "guest-tools.service", "guest.path")
)
_A_ROOT = (
    ("systemd-sysv", "network-manager", "openssh-server", "iperf3"),
    (*_SYSTEMD, ("usr/local/lib/lab/init", BARE_INIT)),
    f"{ENABLE}; chmod +x /usr/local/lib/lab/init",
)
RECIPES = {recipe.name: recipe for recipe in (
    Recipe("A", "bookworm", *_A_ROOT, "net.ifnames=0"),
    Recipe("B", "bookworm", ("systemd-sysv", "network-manager", "openssh-server"), _SYSTEMD, ENABLE),
    Recipe("C", "trixie", ("systemd-sysv", "dmsetup"), (*_SYSTEMD, ("etc/systemd/network/80-dhcp.network", NETWORKD_MANAGEMENT)),
           f"{ENABLE}; systemctl enable systemd-networkd.service", "net.ifnames=0"),
    Recipe("D", "bookworm", ("sysvinit-core", "ifupdown", "isc-dhcp-client"), (("etc/network/interfaces", INTERFACES),), _SERIAL,
           "net.ifnames=0"),
    Recipe("E", "bookworm", ("systemd-sysv", "cloud-init", "netplan.io", "systemd-resolved", "isc-dhcp-client"), _SYSTEMD,
           f"{ENABLE}; systemctl enable systemd-networkd.service systemd-resolved.service",
           machine=("-uuid", "6a1e3a1c-4a3b-4f2e-9d55-1f0c6b1f2a77")),
    # What configures networks on Debian, none of it started: for `tests/bench/peers`.
    Recipe("P", "bookworm", ("systemd-sysv", "cloud-init", "netplan.io", "network-manager", "ifupdown", "isc-dhcp-client"),
           _SYSTEMD, f"{ENABLE}; systemctl disable NetworkManager.service NetworkManager-wait-online.service networking.service",
           f"net.ifnames=0 cloud-init=disabled {_NOT_OURS}"),
    # What a document asks of the host itself, with systemd and without.
    Recipe("G", "bookworm", ("systemd-sysv", "dhcpcd-base", *_LOGINS),
           (*_SYSTEMD, ("etc/systemd/network/80-dhcp.network", NETWORKD_MANAGEMENT)),
           f"{ENABLE}; systemctl enable systemd-networkd.service", "net.ifnames=0"),
    Recipe("H", "bookworm", ("sysvinit-core", "ifupdown", "isc-dhcp-client", *_LOGINS),
           (("etc/network/interfaces", f"{INTERFACES}    up echo 2 > /proc/sys/net/ipv6/conf/eth0/accept_ra\n"),), _SERIAL,
           "net.ifnames=0"),
    Recipe("I", "bookworm", ("systemd-sysv", "network-manager", "open-iscsi", "tgt"),
           (*_SYSTEMD, ("etc/systemd/system/tgt.service.d/lab.conf", TARGET_UNIT)), f"{ENABLE}; systemctl disable tgt.service",
           "net.ifnames=0"),
    # USB is in the other kernel, whose drivers would all be in its initial RAM disk.
    Recipe("R", "bookworm", ("systemd-sysv", "iperf3"),
           (*_SYSTEMD, ("etc/systemd/network/80-dhcp.network", NETWORKD_MANAGEMENT),
            ("etc/initramfs-tools/conf.d/lab", "MODULES=list\n"),
            ("etc/initramfs-tools/modules", "virtio_pci\nvirtio_blk\next4\n"),
            ("etc/modprobe.d/lab.conf", "blacklist cfg80211\n")),
           f"{ENABLE}; systemctl enable systemd-networkd.service; update-initramfs -u", "net.ifnames=0",
           kernel="linux-image-amd64"),
    # What images are built on next.
    Recipe("S", "sid", ("systemd-sysv", "network-manager", "openssh-server", "iperf3"), _SYSTEMD, ENABLE, "net.ifnames=0"),
    # After 85-imds-early.network, which systemd-imdsd makes in a cloud that it knows.
    Recipe("N", "sid", ("systemd-sysv", "systemd-imds", "dmsetup"),
           (*_SYSTEMD, ("etc/systemd/network/90-dhcp.network", NETWORKD_MANAGEMENT)),
           f"{ENABLE}; systemctl enable systemd-networkd.service", "net.ifnames=0"),
    # The helpers of two clouds.
    Recipe("M", "sid", ("systemd-sysv", "azure-vm-utils", "google-guest-agent", "dmsetup"),
           (*_SYSTEMD, ("etc/systemd/network/90-dhcp.network", NETWORKD_MANAGEMENT)),
           f"{ENABLE}; systemctl enable systemd-networkd.service", "net.ifnames=0"),
    # The root of A, of which it starts nothing: one root less to build for `make test`.
    Recipe("T", "bookworm", *_A_ROOT,
           "net.ifnames=0 init=/usr/local/lib/lab/init mitigations=off tsc=reliable"),
)}  # fmt: skip


@dataclass(frozen=True)
class Image:
    """A disk that is never written to, with the kernel and the initial RAM disk that boot it."""

    recipe: Recipe
    folder: Path

    @property
    def disk(self) -> Path:
        return self.folder / "disk.img"

    @property
    def kernel(self) -> Path:
        return self.folder / "vmlinuz"

    @property
    def initrd(self) -> Path:
        return self.folder / "initrd"


def image(name: str, packaged: bool = True, earlier: Path | None = None) -> Image:
    """The image of this recipe, built if the cache has none; `packaged` False: without our package.

    `earlier`: with this package of an earlier version in the place of the present one.
    """
    recipe = RECIPES[name]
    with _alone(recipe.base_digest()):
        base = _base(recipe)
        with _alone("package"):
            deb = earlier or (package() if packaged else None)
        key = hashlib.sha256(
            f"{base.name} {deb.parent.name if deb else ''} {_INSTALL}{MONITOR_UNIT}".encode()
        ).hexdigest()[:16]
        folder = CACHE / f"image-{base.name}-{key}"
        if not folder.exists():
            _build_image(base, deb, folder)
        os.utime(folder)
    with _alone("old"):
        _forget_old()
    return Image(recipe, folder)


def planted(image: Image, folder: Path, files: dict[str, str]) -> Image:
    """A copy of this image with these files, path to text, all of them programs; a link is `-> TARGET`."""
    folder.mkdir()
    for path in (image.kernel, image.initrd):
        (folder / path.name).symlink_to(path)
    copy = Image(image.recipe, folder)
    _run(
        "cp", "--sparse=always", "--no-preserve=mode", image.disk, copy.disk, timeout=IMAGE_PATIENCE
    )
    lines = []
    for number, (path, text) in enumerate(files.items()):
        (folder / f"file{number}").write_text(text)
        lines += [f"mkdir {parent}" for parent in reversed(Path(path).parents[:-1])]
        if text.startswith("-> "):
            lines.append(f"symlink {path} {text[3:]}")
            continue
        # It replaces no file.
        lines += [f"rm {path}", f"cd {Path(path).parent}", f"write file{number} {Path(path).name}"]
        lines += ["cd /", f"set_inode_field {path} mode 0100755"]
        lines += [f"set_inode_field {path} {owner} 0" for owner in ("uid", "gid")]
    (folder / "commands").write_text("\n".join(lines) + "\n")
    # A folder that is there already, or a file that is not, is an error that it prints, and goes on.
    _run("debugfs", "-w", "-f", "commands", copy.disk.name, timeout=IMAGE_PATIENCE, cwd=folder)
    return copy


def package() -> Path:
    """Our package, built from the files of this checkout."""
    digest, folder = "", CACHE
    while digest != _sources_digest():  # again, if somebody has edited them meanwhile
        digest = _sources_digest()
        folder = CACHE / f"package-{digest}"
        if not folder.exists():
            with _making(folder) as making:
                _run(BUILD_DEB, making, timeout=IMAGE_PATIENCE, cwd=ROOT)
    os.utime(folder)
    (deb,) = folder.glob("neuca-guest-tools_*.deb")
    return deb


def earlier_package(commit: str) -> Path:
    """The package of this commit. Raises CalledProcessError if this checkout has no such history."""
    folder = CACHE / f"earlier-{commit}"
    with _alone(folder.name):
        if not folder.exists():
            with _making(folder) as making:
                tree = making / "tree"
                clone = ("clone", "--quiet", "--no-checkout", ROOT, tree)
                for words in (clone, ("-C", tree, "checkout", "--quiet", commit)):
                    subprocess.run(["git", *words], check=True, capture_output=True, text=True)
                _run(tree / "packaging" / "build-deb", making, timeout=IMAGE_PATIENCE, cwd=tree)
                shutil.rmtree(tree)
        os.utime(folder)
    (deb,) = folder.glob("neuca-guest-tools_*.deb")
    return deb


def newer(deb: Path, folder: Path) -> Path:
    """The same package again with a higher version, for an upgrade."""
    tree = folder / "newer"
    _run("dpkg-deb", "--raw-extract", deb, tree)
    control = tree / "DEBIAN" / "control"
    lines = [
        f"{line}+lab1" if line.startswith("Version:") else line
        for line in control.read_text().splitlines()
    ]
    control.write_text("\n".join(lines) + "\n")
    _run("dpkg-deb", "--root-owner-group", "--build", tree, folder / "newer.deb")
    return folder / "newer.deb"


def _base(recipe: Recipe) -> Path:
    """The root of the distribution, as a tar file."""
    path = CACHE / f"base-{recipe.base_digest()}"
    if not path.exists():
        with _making(path) as making:
            files = _files(recipe, making)
            packages = ",".join(recipe.all_packages())
            # A mirror's Release file of sid may be past its date.
            dated = ['--aptopt=Acquire::Check-Valid-Until "false"'] if recipe.suite == "sid" else []
            _run("mmdebstrap", "--quiet", "--variant=minbase", *dated, f"--include={packages}", f"--customize-hook=tar-in {files} /",
                 f'--customize-hook=chroot "$1" sh -ec {_quoted(recipe.commands)}',
                 '--customize-hook=chroot "$1" passwd --quiet --delete root', '--customize-hook=echo lab > "$1/etc/hostname"',
                 recipe.suite, making / "root.tar", timeout=BASE_PATIENCE)  # fmt: skip
            files.unlink()
    os.utime(path)
    return path


def _files(recipe: Recipe, making: Path) -> Path:
    """What the laboratory adds to the distribution, as a tar file.

    Of root, also if a user makes it: neucad has no CAP_DAC_OVERRIDE, and writes to directories of root alone.
    """
    extra, made = making / "extra", making / "extra.tar"
    for name, text in recipe.files:
        (extra / name).parent.mkdir(parents=True, exist_ok=True)
        (extra / name).write_text(text)
    (extra / "usr/local/lib/lab").mkdir(parents=True, exist_ok=True)
    shutil.copy(HERE / "inside" / "agent.py", extra / "usr/local/lib/lab/agent.py")
    owner = ("--owner=root:0", "--group=root:0")
    _run("tar", "--create", *owner, "--file", made, "--directory", extra, ".")
    shutil.rmtree(extra)
    return made


# The package is installed by dpkg, which also holds that the image has all that it depends on. Services do not start here.
# A user makes no device nodes, and has those of the machine while dpkg runs; the guest mounts its own.
_INSTALL = """set -e
tar --extract --numeric-owner ${4:+"--exclude=./dev/?*"} --file "$1/root.tar" --directory root
if [ -n "$2" ]; then
    printf '#!/bin/sh\\nexit 101\\n' > root/usr/sbin/policy-rc.d; chmod +x root/usr/sbin/policy-rc.d
    cp "$2" root/tmp/package.deb
    [ -z "$4" ] || mount --rbind /dev root/dev
    DEBIAN_FRONTEND=noninteractive chroot root dpkg --install /tmp/package.deb
    [ -z "$4" ] || umount --lazy root/dev
    rm root/tmp/package.deb root/usr/sbin/policy-rc.d
fi
if [ -d root/etc/systemd/system/sysinit.target.wants ]; then
    printf %s "$3" > root/etc/systemd/system/lab-monitor.service
    ln -s ../lab-monitor.service root/etc/systemd/system/sysinit.target.wants/
fi
cp root/boot/vmlinuz-* vmlinuz; cp root/boot/initrd.img-* initrd
: > root/etc/machine-id
mke2fs -q -t ext4 -E lazy_itable_init=1 -d root disk.img 3G
rm -rf --one-file-system root
chmod 0444 disk.img vmlinuz initrd"""


def _rootless() -> list[str]:
    """What lets a user have files of all users of an image."""
    return ["unshare", "--map-auto", "--map-root-user", "--mount"] if os.geteuid() else []


def _build_image(base: Path, deb: Path | None, folder: Path) -> None:
    rootless = _rootless()
    with _making(folder) as making:
        (making / "root").mkdir()
        _run(
            *rootless,
            "sh",
            "-c",
            _INSTALL,
            "install",
            base,
            deb or "",
            MONITOR_UNIT,
            "rootless" if rootless else "",
            timeout=IMAGE_PATIENCE,
            cwd=making,
        )


def tracked(*parts: str) -> list[str]:
    """The files of the checkout below these places, new ones included."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z", *parts]
    listed = subprocess.run(
        command, cwd=ROOT, check=True, capture_output=True, text=True
    ).stdout.split("\0")
    return sorted({name for name in listed if name and (ROOT / name).is_file()})


def _sources_digest() -> str:
    """Of every file that goes into the package, and of what builds it."""
    digest = hashlib.sha256(BUILD_DEB.read_bytes())
    for name in tracked(*PACKAGED):
        digest.update(
            f"{name}\0{os.access(ROOT / name, os.X_OK)}\0".encode() + (ROOT / name).read_bytes()
        )
    return digest.hexdigest()[:16]


@contextlib.contextmanager
def _alone(what: str) -> Iterator[None]:
    """One builder at a time for each thing in a cache; different roots are built at the same time."""
    CACHE.mkdir(parents=True, exist_ok=True)
    with (CACHE / f"lock-{what}").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


@contextlib.contextmanager
def _making(folder: Path) -> Iterator[Path]:
    """A folder that gets its name when it is whole."""
    making = Path(tempfile.mkdtemp(prefix="making-", dir=CACHE))
    try:
        making.chmod(0o755)
        yield making
        making.rename(folder)
    finally:
        if making.exists():
            subprocess.run([*_rootless(), "rm", "-rf", "--one-file-system", making], check=False)


def _forget_old() -> None:
    """What has not been used for a while goes, but for the latest of each kind."""
    kinds: dict[str, list[Path]] = {}
    for path in sorted(CACHE.glob("*-*/"), key=lambda path: path.stat().st_mtime, reverse=True):
        kinds.setdefault(path.name.rpartition("-")[0], []).append(path)
    for paths in kinds.values():
        for path in paths[SPARE:]:
            if time.time() - path.stat().st_mtime > KEEP:
                shutil.rmtree(path)


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "'\\''") + "'"


def _run(*command: object, timeout: float = 60, cwd: Path | None = None) -> None:
    done = subprocess.run(list(map(str, command)), cwd=cwd, timeout=timeout, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, text=True, errors="replace", check=False)  # fmt: skip
    if done.returncode:
        raise RuntimeError(f"{command[0]} ended with {done.returncode}:\n{done.stdout[-4000:]}")
