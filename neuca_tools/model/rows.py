"""The parts of a document that are not about the network; its faults, origins and stored form."""

# SPDX-License-Identifier: MIT

from ipaddress import IPv4Address, IPv6Address
from typing import Literal, NamedTuple, Optional, Union

from neuca_tools.model.links import LinkKey

Severity = Literal["error", "warning", "note"]
ProblemCode = Literal[  # neuca-status(7) explains them
    "absent",
    "ignored",
    "contested",
    "drift",
    "pending",
    "refused",
    "failed",
    "name",
    "mtu",
    "invalid",
    "unsaved",
]


# The fields of Storage that are never shown.
STORAGE_SECRETS = ("chap_secret", "mutual_chap")


class User(NamedTuple):
    """One line of `[users]`."""

    login: str
    sudo: bool
    keys: tuple[str, ...] = ()


class Script(NamedTuple):
    """One script; `body` is unchanged except for its common indentation."""

    name: str
    body: str

    def __repr__(self) -> str:
        return f"Script(name={self.name!r})"


class Storage(NamedTuple):
    """One iSCSI device of `[storage]`."""

    device: str
    ip: Union[IPv4Address, IPv6Address]
    port: int
    lun: int
    chap_user: str
    chap_secret: str
    attach: bool = False
    fs_type: str = ""
    fs_options: str = ""
    format: bool = False
    mount_point: str = ""
    # User and secret that the target authenticates with (mutual CHAP), both empty for none.
    mutual_chap: tuple[str, str] = ("", "")

    def __repr__(self) -> str:
        values = self._asdict().items()
        shown = [f"{name}={value!r}" for name, value in values if name not in STORAGE_SECRETS]
        return f"Storage({', '.join(shown)})"


class Item(NamedTuple):
    """One key of a document with its value as written, for `neuca get`."""

    section: str
    key: str
    value: str
    line: int

    def __repr__(self) -> str:
        # Without the value, which may be secret.
        return f"Item(section={self.section!r}, key={self.key!r}, line={self.line})"


class UnknownWord(NamedTuple):
    """A word that is not one of the known ones; `kind` is `key`, `word` or `value`."""

    kind: str
    word: str
    known: tuple[str, ...]


class Fault(NamedTuple):
    """Something in a text that is unusable (`error`) or questionable (`warning`).

    A `note` is about an obsolete option. `line` is 0 for a text without lines, such as JSON;
    `section` is the name of the document then. `unknown` is the word that is the reason, if one is,
    and `meant` the known one it probably is. `file` is that of the configuration; a fault in it
    that `stops` is about an option that protects: nothing new is configured until it is corrected.
    """

    line: int
    section: str
    key: str
    value: str
    reason: str
    severity: Severity = "error"
    unknown: Optional[UnknownWord] = None
    meant: str = ""
    file: str = ""
    stops: bool = False

    @property
    def text(self) -> str:
        """The fault in one line: `line 12: [routes] "KEY" = "VALUE": REASON`."""
        place = self.file or (f"line {self.line}" if self.line else "")
        words = [f"[{self.section}]" if place and self.section else self.section]
        words.append(f'"{self.key}"' if self.key else "")
        words.append(f'= "{self.value}"' if self.value else "")
        return ": ".join(filter(None, (place, " ".join(filter(None, words)), self.reason)))


class Problem(NamedTuple):
    """A problem for status; `link` is None if it concerns the whole host."""

    code: ProblemCode
    text: str
    link: Optional[LinkKey] = None


class Origin(NamedTuple):
    """Where a setting of a link comes from (`line 12, [routes]`), and what it overrides."""

    setting: str
    value: str
    where: str
    overrode: str = ""


class StoredDocument(NamedTuple):
    """The last good document, for a boot on which no source responds.

    `fetched` is when it was first read (RFC 3339, UTC). `platform` is the text of the platform's
    own documents (`documents.platform.combined.reduce_documents`). `text` or `platform` may be
    empty; both are, and so is `source`, with `sources = none`.
    """

    source: str
    sha256: str
    fetched: str
    text: str
    platform: str = ""
