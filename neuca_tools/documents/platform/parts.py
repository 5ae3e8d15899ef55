"""Typed reading of an untrusted tree: every value has a path; an unusable one becomes a fault."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace
from ipaddress import ip_network
from typing import Callable, Optional, TypeVar

from neuca_tools.documents.neuca import values
from neuca_tools.documents.neuca.values import ForeignValueError, UnusableError, clip
from neuca_tools.documents.platform.tree import Tree
from neuca_tools.model import Fault, Network
from neuca_tools.model.rows import Severity, UnknownWord

MAX_FAULTS = 200  # of each severity
_TRUE, _FALSE = ("true", "yes", "on", "1", "y"), ("false", "no", "off", "0", "n")
_NO_MTU = ("0", "null", "none")
_NOT_ABOUT_LINKS = {"version", "renderer", "services"}
# What cloud-init assumes where a document gives none (net/network_state.py, _normalize_net_keys).
_ASSUMED = {4: "24", 6: "64"}
# Milliseconds in each unit of systemd.time(7) that these documents have a use for.
_UNITS: Mapping[str, int] = {
    **dict.fromkeys("ms msec".split(), 1),
    **dict.fromkeys("s sec second seconds".split(), 1000),
    **dict.fromkeys("m min minute minutes".split(), 60000),
    **dict.fromkeys("h hr hour hours".split(), 3600000),
}
_SPAN = r"(?:[0-9]{1,9} ?[a-z]+ ?){1,8}"
_TERM = r"([0-9]+) ?([a-z]+)"
_T = TypeVar("_T")


class Faults:
    """The faults of a document, each once, and at most MAX_FAULTS of each severity.

    Warnings never displace an error, which makes the document incomplete. `by_key`: every key
    without an effect has a fault of its own, for its line. `unusable` counts the errors and the
    values for other programs, so that a reader can tell whether a part of an item was one.
    """

    def __init__(self, by_key: bool = False) -> None:
        self.by_key = by_key
        self.unusable = 0
        self._faults: dict[Fault, None] = {}
        self._kept = Counter[str]()

    def __iter__(self) -> Iterator[Fault]:
        return iter(self._faults)

    def add(self, fault: Fault) -> None:
        """Add a fault; the first one beyond the limit is replaced by a note about the rest."""
        self.unusable += fault.severity == "error"
        if fault in self._faults or self._kept[fault.severity] > MAX_FAULTS:
            return
        if self._kept[fault.severity] == MAX_FAULTS:
            rest = f"there are more {fault.severity}s than the {MAX_FAULTS} that are shown"
            fault = Fault(0, fault.section.partition(" ")[0], "", "", rest, fault.severity)
        self._kept[fault.severity] += 1
        self._faults[fault] = None


@dataclass(frozen=True)
class Part:
    """One object of a document.

    `path` leads to it (`links[0].subnets[1]`), `mac` is the NIC that it describes, empty if
    unknown. All parts of a document share `faults` and `used`, the paths of the keys that were
    read.
    """

    tree: Mapping[str, Tree]
    document: str
    path: str = ""
    mac: str = ""
    faults: Faults = field(default_factory=Faults)
    used: set[str] = field(default_factory=set)

    @property
    def where(self) -> str:
        """Document and path, for messages: `network_data.json, links[0]`."""
        return ", ".join(filter(None, (self.document, self.path)))

    def for_nic(self, mac: str) -> Part:
        """This part, with the MAC of the NIC that it describes."""
        return replace(self, mac=mac)

    def fault(
        self,
        key: str,
        value: Tree,
        reason: str,
        severity: Severity = "error",
        unknown: Optional[UnknownWord] = None,
    ) -> None:
        """Record that the value of a key is unusable; at most MAX_FAULTS of each severity are kept.

        The key, and everything below it, is not named again as unused.
        """
        section, path = f"{self.document} {self.mac}".strip(), clip(self._path(key))
        shown = clip(value) if isinstance(value, str) else ""
        self.close(key)
        self.faults.add(Fault(0, section, path, shown, reason, severity=severity, unknown=unknown))

    def warn(self, key: str, reason: str) -> None:
        """Record a warning about a key."""
        self.fault(key, self.tree.get(key), reason, "warning")

    def warn_of_type(self, reason: str) -> None:
        """Warn of a type that is unknown or not for us; a part without any type is an error."""
        kind = self.text("type")
        self.fault("type", kind, reason, "warning" if kind else "error")

    def warn_besides(self, *known: str) -> None:
        """Record a warning about every other key.

        It is an error if no known key is about links: another may be a misspelled list of them.
        """
        has_content = self.tree.keys() & {*known} - _NOT_ABOUT_LINKS
        severity: Severity = "warning" if has_content else "error"
        for key in self.tree:
            if key not in known:
                self.fault(key, self.tree[key], "this key has no effect", severity)

    def refuse_besides(self, known: Collection[str]) -> None:
        """Record an error about every other key: without what it means, this is another item."""
        for key in self.tree:
            if key not in known:
                self.fault(key, None, "unknown key, ignoring what it is part of")

    def _path(self, key: str) -> str:
        return f"{self.path}.{key}" if self.path and key else self.path or key

    def value(self, key: str) -> Tree:
        """The value of a key, which counts as used; None if it is absent."""
        if key not in self.tree:
            # Most keys are absent from most links, so this has to be cheap.
            return None
        self.used.add(self._path(key))
        return self.tree[key]

    def use(self, *keys: str) -> None:
        """Count these keys as used, without those of an object in one of them."""
        self.used.update(map(self._path, keys))

    def disuse(self, key: str) -> None:
        """Count a key as unused after all."""
        self.used.discard(self._path(key))

    def close(self, key: str = "") -> None:
        """Count a key, and everything below it, as used; without a key, this whole part."""
        self.used.update((self._path(key), self._path(f"{key}.*".lstrip("."))))

    def unused(self) -> Iterator[str]:
        """The keys that were not used, relative to this part."""
        for path in _unused_paths(dict(self.tree), self.path, self.used):
            yield path[len(self.path) :].lstrip(".")

    def text(self, key: str) -> Optional[str]:
        """A scalar as text; None if it is absent, null or empty."""
        value = self.value(key)
        if isinstance(value, (list, dict)):
            self.fault(key, None, "it is not a single value")
            return None
        return _scalar_text(value)

    def has_all(self, *keys: str) -> bool:
        """Whether these keys, which every such object has, have a value; one without is a fault."""
        missing = [key for key in keys if self.text(key) is None]
        for key in missing:
            if not isinstance(self.tree.get(key), (list, dict)):  # which `text` has recorded
                self.fault(key, None, "it has no value")
        return not missing

    def read(self, key: str, reader: Callable[[str], _T]) -> Optional[_T]:
        """The parsed scalar of a key; None if there is none or, with a fault, if it is unusable."""
        text = self.text(key)
        return None if text is None else self.parse(key, text, reader)

    def parse(self, key: str, text: str, reader: Callable[[str], _T]) -> Optional[_T]:
        """The parsed text; None, with a fault of this key, if the reader raises UnusableError."""
        try:
            return reader(text)
        except ForeignValueError as reason:
            self.faults.unusable += 1
            self.fault(key, text, f"{reason}, ignoring it", "warning")
        except UnusableError as reason:
            self.fault(key, text, str(reason), unknown=reason.unknown)
        return None

    def mtu(self, key: str = "mtu") -> Optional[int]:
        """An MTU in bytes; None if there is none, for which platforms have several words."""
        return None if self.text(key) in _NO_MTU else self.read(key, values.mtu)

    def prefix_length(self) -> Optional[str]:
        """The prefix length or netmask next to an address or destination; None if there is none."""
        netmask = self.text("netmask")
        return self.text("prefix") or netmask

    def flag(self, key: str) -> Optional[bool]:
        """Whether a value is true or a word for it; None if it is absent.

        Any other word is a fault, and None too.
        """
        return self.read(key, read_truth)

    def use_defaults(self, *keys: str) -> None:
        """Count those of these switches as used that are off, as they are by default."""
        self.use(*(key for key in keys if key in self.tree and not _is_true(self.tree[key])))

    def texts(self, key: str) -> list[str]:
        """The texts of the scalars in a list; a single scalar counts as a list of one."""
        items = self.value(key)
        if not isinstance(items, list):
            items = [items]
        if any(isinstance(item, (list, dict)) for item in items):
            self.fault(key, None, "it is not a list of single values")
        return list(filter(None, map(_scalar_text, items)))

    def child(self, key: str) -> Part:
        """The object of a key; an empty one if there is none."""
        value = self.value(key)
        if value is not None and not isinstance(value, dict):
            self.fault(key, None, "it is not an object")
        return replace(self, tree=value if isinstance(value, dict) else {}, path=self._path(key))

    def items(self, key: str) -> list[Tree]:
        """The list of a key; an empty one if there is none."""
        value = self.value(key)
        if isinstance(value, list):
            return value
        if value is not None:
            self.fault(key, None, "it is not a list")
        return []

    def parts(self, key: str) -> Iterator[Part]:
        """The objects in a list."""
        return (part for _, part in self.numbered(key))

    def numbered(self, key: str) -> Iterator[tuple[int, Part]]:
        """The objects in a list, each with its place among all items of the list."""
        for number, item in enumerate(self.items(key)):
            if isinstance(item, dict):
                yield number, replace(self, tree=item, path=f"{self._path(key)}[{number}]")
            else:
                self.fault(f"{key}[{number}]", None, "it is not an object")

    def named(self, key: str, besides: Collection[str] = ()) -> Iterator[tuple[str, Part]]:
        """The objects in an object, each with its name. Scalars called `besides` may be in it."""
        holder = self.child(key)
        for name in holder.tree:
            if name in besides and not isinstance(holder.tree[name], dict):
                holder.use(name)
                continue
            part = holder.child(name)
            if isinstance(holder.tree[name], dict):
                yield name, part


def read_truth(text: str) -> bool:
    """Parse a word for true or false; raises UnusableError."""
    if text.lower() not in (*_TRUE, *_FALSE):
        raise UnusableError(f'"{clip(text)}" is neither true nor false')
    return _is_true(text)


def _is_true(value: Tree) -> bool:
    return value is True or (isinstance(value, str) and value.lower() in _TRUE)


def _unused_paths(tree: Tree, path: str, used: Collection[str]) -> Iterator[str]:
    """The paths of unused keys in a tree. `tree` limits the depth, and so the recursion."""
    if f"{path}.*" in used:
        return
    if isinstance(tree, list):
        for number, item in enumerate(tree):
            yield from _unused_paths(item, f"{path}[{number}]", used)
    elif isinstance(tree, dict):
        for key, value in tree.items():
            below = f"{path}.{key}".lstrip(".")
            if below in used:
                yield from _unused_paths(value, below, used)
            else:
                yield below


def _scalar_text(value: Tree) -> Optional[str]:
    """A scalar as text without surrounding white space; None if empty or not a scalar."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str):
        return value.strip() or None
    return None


# --- prefix lengths and time spans ----------------------------------------------------------------


def cidr_text(text: str, netmask: Optional[str] = None) -> str:
    """An address or destination in CIDR notation.

    Its prefix length follows a slash, otherwise it is `netmask`, otherwise the one that cloud-init
    assumes. Both may be a number or a netmask. Raises UnusableError.

    >>> cidr_text("10.0.0.1", "255.255.255.0"), cidr_text("fd00::1/ffff:ffff:ffff:ffff::")
    ('10.0.0.1/24', 'fd00::1/64')
    >>> cidr_text("10.0.0.1")
    '10.0.0.1/24'
    """
    ip, slash, length = text.partition("/")
    if not slash:
        length = netmask or _ASSUMED[values.host(ip).version]
    length = length.strip()
    if "." in length or ":" in length:
        length = str(values.netmask_length(values.host(length)))
    return f"{ip}/{length}"


def is_assumed(text: str, netmask: Optional[str]) -> bool:
    """Whether neither the address nor the netmask says the prefix length."""
    return "/" not in text and netmask is None


def masked_network(text: str) -> Network:
    """The network of a destination or subnet, host bits masked. Raises UnusableError."""
    ip, _, length = text.partition("/")
    host = values.host(ip)
    bits = values.integer(length, 0, host.max_prefixlen, "the prefix length")
    return values.network(str(ip_network(f"{host}/{bits}", strict=False)))


def milliseconds(text: str) -> str:
    """A time span in milliseconds; a number without a unit stands for milliseconds.

    >>> milliseconds("100"), milliseconds("1s"), milliseconds("1s 500ms")
    ('100', '1000', '1500')
    """
    return str(_total_milliseconds(text)) if re.fullmatch(_SPAN, text.strip()) else text


def seconds(text: str) -> str:
    """A time span in seconds; a number without a unit stands for seconds.

    >>> seconds("15"), seconds("2min"), seconds("2000ms")
    ('15', '120', '2')
    """
    if not re.fullmatch(_SPAN, text.strip()):
        return text
    whole, rest = divmod(_total_milliseconds(text), 1000)
    if rest:
        raise UnusableError(f'"{clip(text)}" is not a whole number of seconds')
    return str(whole)


def _total_milliseconds(text: str) -> int:
    terms = re.findall(_TERM, text)
    for _, unit in terms:
        if unit not in _UNITS:
            raise UnusableError(f'"{clip(text)}" has the unknown unit of time "{clip(unit)}"')
    return sum(int(number) * _UNITS[unit] for number, unit in terms)
