"""The mkfs options that a document may use: none names anything outside the new file system.

mkfs runs as root. Some of its options name another device or a file (an external journal, a log or
realtime device, a prototype, a configuration file), and an argument that is not an option can
replace the disk. Options that are not listed here are therefore refused. References: mke2fs(8),
mkfs.xfs(8), mkfs.btrfs(8), mkfs.fat(8).
"""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping
from getopt import GetoptError, getopt

from neuca_tools.documents.neuca.values import UnusableError, clip

_LONGEST = 1024  # characters; what mkfs.btrfs takes with all its options is below 300
_FLAG = ""
_NUMBER = r"[0-9]{1,20}[kKmMgGtTsb]?"
_LABEL = r"[^\x00-\x1f\x7f]{1,255}"  # mkfs itself cuts or refuses a longer one than it can store
_UUID = r"[0-9A-Fa-f-]{36}|random|time|clear"
_FEATURES = r"[\^!a-z0-9_,-]{1,200}"
_WORD = r"[a-z0-9]{1,20}"


def _pairs_pattern(names: str) -> str:
    """A list of `name` and `name=value`, of these names alone."""
    pair = rf"(?:{'|'.join(names.split())})(?:=[A-Za-z0-9.:-]{{1,40}})?"
    return f"{pair}(?:,{pair})*"


_EXT: Mapping[str, str] = {
    **dict.fromkeys(("-c", "-D", "-F", "-j", "-q", "-v"), _FLAG),
    **dict.fromkeys(("-b", "-C", "-g", "-G", "-i", "-I", "-N"), _NUMBER),
    "-m": r"[0-9]{1,2}(?:\.[0-9]{1,2})?",
    "-r": "[01]",
    "-e": "continue|remount-ro|panic",
    "-L": _LABEL,
    "-O": _FEATURES,
    "-T": r"[a-z0-9,]{1,80}",
    "-U": _UUID,
    "-J": _pairs_pattern("size fast_commit_size location"),
    "-E": _pairs_pattern(
        "mmp_update_interval stride stripe_width stripe-width resize lazy_itable_init root_owner"
        " lazy_journal_init num_backup_sb packed_meta_blocks discard nodiscard quotatype hash_seed"
        " encoding encoding_flags orphan_file_size assume_storage_prezeroed desc_size"
        " no_copy_xattrs"
    ),
}
_XFS: Mapping[str, str] = {
    **dict.fromkeys(("-f", "-q", "-K"), _FLAG),
    "-L": _LABEL,
    "-b": _pairs_pattern("size"),
    "-m": _pairs_pattern("crc finobt inobtcount uuid rmapbt reflink bigtime metadir"),
    "-d": _pairs_pattern(
        "agcount agsize size sunit su swidth sw noalign concurrency rtinherit projinherit"
        " extszinherit cowextsize daxinherit sectsize"
    ),
    "-i": _pairs_pattern("size log perblock maxpct align attr projid32bit sparse nrext64 exchange"),
    "-l": _pairs_pattern("size version sunit su internal lazy-count agnum sectsize concurrency"),
    "-n": _pairs_pattern("size version ftype parent"),
    "-s": _pairs_pattern("size"),
}
_BTRFS: Mapping[str, str] = {
    **dict.fromkeys(("-f", "--force", "-q", "--quiet", "-v", "--verbose"), _FLAG),
    **dict.fromkeys(("-M", "--mixed", "-K", "--nodiscard"), _FLAG),
    **dict.fromkeys(("-n", "--nodesize", "-s", "--sectorsize", "-b", "--byte-count"), _NUMBER),
    **dict.fromkeys(("-m", "--metadata", "-d", "--data", "--csum", "--checksum"), _WORD),
    **dict.fromkeys(("-O", "--features", "-R", "--runtime-features"), _FEATURES),
    **dict.fromkeys(("-L", "--label"), _LABEL),
    **dict.fromkeys(("-U", "--uuid"), _UUID),
}
_VFAT: Mapping[str, str] = {
    **dict.fromkeys(("-a", "-c", "-I", "-v"), _FLAG),
    **dict.fromkeys(("-f", "-F", "-r", "-R", "-s", "-S"), r"[0-9]{1,8}"),
    "-i": r"[0-9A-Fa-f]{1,8}",
    "-n": _LABEL,
}
KNOWN: Mapping[str, Mapping[str, str]] = {
    **dict.fromkeys(("ext2", "ext3", "ext4"), _EXT),
    "xfs": _XFS,
    "btrfs": _BTRFS,
    "vfat": _VFAT,
}


def mkfs_options(kind: str, text: str) -> list[str]:
    """The arguments of `mkfs.KIND`, without the disk.

    Raises UnusableError for a type or an option that is not listed.
    """
    if kind not in KNOWN:
        raise UnusableError(f'"{clip(kind)}" is not one of the types {", ".join(KNOWN)}')
    if len(text) > _LONGEST:
        raise UnusableError(f"its options are longer than {_LONGEST} characters")
    known = KNOWN[kind]
    try:
        given, rest = getopt(shlex.split(text), *_getopt_names(known))
    except (ValueError, GetoptError) as error:
        raise UnusableError(f"its options: {clip(str(error))}") from None
    if rest:
        raise UnusableError(f'its options: "{clip(rest[0])}" is not an option')
    return [word for option in given for word in _checked_option(known, *option)]


def _getopt_names(known: Mapping[str, str]) -> tuple[str, list[str]]:
    """The letters of the short options and the names of the long ones, as getopt takes them."""
    short = (name[1] + ":" * bool(known[name]) for name in known if name[1] != "-")
    long = (name[2:] + "=" * bool(known[name]) for name in known if name[1] == "-")
    return "".join(short), list(long)


def _checked_option(known: Mapping[str, str], name: str, value: str) -> list[str]:
    if not known[name]:
        return [name]
    if not re.fullmatch(known[name], value):
        raise UnusableError(f'its options: "{clip(value)}" is refused for {name}')
    return [f"{name}={value}"] if name.startswith("--") else [name, value]
