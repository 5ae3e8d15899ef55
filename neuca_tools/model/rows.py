"""What a document says of users, scripts and storage, and each key as it was written: the rows that are not network."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

from dataclasses import dataclass, field
from ipaddress import IPv4Address, IPv6Address
from typing import ClassVar, NamedTuple, Union


@dataclass(frozen=True)
class User:
    """One line of `[users]`."""

    login: str
    sudo: bool
    keys: tuple[str, ...] = ()


@dataclass(frozen=True)
class Script:
    """One script, its body as it was written."""

    name: str
    body: str = field(repr=False)


@dataclass(frozen=True)
class Storage:
    """One iSCSI device of `[storage]`."""

    SECRETS: ClassVar = ("chap_secret", "mutual_chap")  # fields that are never shown

    device: str
    ip: Union[IPv4Address, IPv6Address]
    port: int
    lun: int
    chap_user: str
    chap_secret: str = field(repr=False)
    attach: bool = False
    fs_type: str = ""
    fs_options: str = ""
    format: bool = False
    mount_point: str = ""
    # What the target has to show in its turn (mutual CHAP): user and secret, both empty for nothing.
    mutual_chap: tuple[str, str] = field(default=("", ""), repr=False)


class Item(NamedTuple):
    """One key of a document with its value as written, for `neuca get`."""

    section: str
    key: str
    value: str
    line: int

    def __repr__(self) -> str:
        return f"Item(section={self.section!r}, key={self.key!r}, line={self.line})"  # values may be secret
