"""Reads documents from the sources, all of them within one time budget.

A source implements the `Source` protocol of `base`. It returns a document, returns that there is
none, or raises SourceError; an error never means that there is none. A module is imported when a
source of it is made, and what is slow to import inside functions: most commands ask none or one.
To add a source, write its module, and add a row to `_KINDS` or, for a cloud, to `model.clouds`;
`_AUTO` lists the sources that `auto` asks, in order.

The firmware decides which services `auto` asks at well-known addresses: any host on a guest's
network can answer there (CVE-2024-6174 in cloud-init), but only the hypervisor writes the guest's
DMI tables. OpenStack also serves the paths of EC2.
"""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from importlib import import_module
from itertools import chain
from types import ModuleType
from typing import TYPE_CHECKING, NamedTuple, Optional, cast

from neuca_tools.errors import SourceError, UsageError
from neuca_tools.files import text_of
from neuca_tools.model import Host
from neuca_tools.model.clouds import CLOUDS
from neuca_tools.sources.base import DEFAULT_SURROUNDINGS, Deadline
from neuca_tools.sources.base import Answer as Answer
from neuca_tools.sources.base import Session as Session
from neuca_tools.sources.base import Source as Source
from neuca_tools.sources.base import Surroundings as Surroundings
from neuca_tools.sources.base import Token as Token

# Imports inside functions: `neuca status` asks no source; that saves 5 to 20 ms.

if TYPE_CHECKING:
    from neuca_tools.sources.service import Service


class _Kind(NamedTuple):
    """A kind of source: its syntax, the separator before its argument, its module and class."""

    usage: str
    separator: str
    module: str
    name: str

    def make(self, argument: str, surroundings: Surroundings) -> Source:
        """Raises UsageError for an argument that is not possible."""
        home = import_module(f"{__name__}.{self.module}")
        made: Source = getattr(home, self.name)(argument, surroundings)
        return made


_KINDS: Mapping[str, _Kind] = {
    "file": _Kind("file:PATH", ":", "files", "File"),
    "configdrive": _Kind("configdrive[=PATH]", "=", "files", "ConfigDrive"),
    "nocloud": _Kind("nocloud[=PATH]", "=", "nocloud", "NoCloud"),
    **{cloud.kind: _Kind(cloud.usage, "=", *cloud.source.split(".")) for cloud in CLOUDS},
    "lxd": _Kind("lxd[=SOCKET]", "=", "hypervisors", "Lxd"),
    "imds": _Kind("imds[=SOCKET]", "=", "imds", "Imds"),
    "none": _Kind("none", "=", "files", "NoSource"),
}
_SERVICES = tuple(cloud.kind for cloud in CLOUDS if cloud.is_service)
_AUTO = ("configdrive", "nocloud", "lxd", "vmware", *_SERVICES)  # local ones first
_LOCAL = frozenset({"file", "configdrive", "nocloud", "lxd"})
_UNKNOWN, _ANY = "unknown", "any"
# The services that may be asked at a well-known address, by cloud.
_SERVICES_BY_CLOUD: Mapping[str, frozenset[str]] = {
    **{cloud.kind: frozenset((cloud.kind, *cloud.also)) for cloud in CLOUDS},
    _ANY: frozenset({"openstack", "ec2"}),
    _UNKNOWN: frozenset(),
}


class _UnknownCloud(Source):
    """The services that are not asked: an error, as this does not mean that there is none."""

    name = "auto"

    def documents(self, deadline: Deadline, session: Session) -> Answer:  # noqa: ARG002
        raise SourceError(
            "the firmware (DMI) names no supported cloud, so no well-known address is queried; "
            'set "platform = any" in [metadata] to query them anyway'
        )

    def metadata(self, path: str, deadline: Deadline, session: Session) -> Answer:  # noqa: ARG002
        return self.documents(deadline, session)


class SourceSpec(NamedTuple):
    """One SOURCE of a command line or of `[metadata] sources`; `argument` may be empty."""

    kind: str
    argument: str = ""

    def __str__(self) -> str:
        if not self.argument:
            return self.kind
        return f"{self.kind}{_KINDS[self.kind].separator}{self.argument}"


def parse_source(text: str) -> SourceSpec:
    """Parse a SOURCE such as `auto`, `file:PATH`, `ec2` or `ec2=URL`. Raises UsageError."""
    if text == "auto":
        return SourceSpec(text)
    for name, kind in _KINDS.items():
        if text == name or text.startswith(name + kind.separator):
            spec = SourceSpec(name, text[len(name) + 1 :])
            try:
                if text.endswith(kind.separator) and not spec.argument:
                    raise UsageError(f'nothing follows "{kind.separator}"')
                kind.make(spec.argument, Surroundings())
            except UsageError as error:
                raise UsageError(f'invalid source "{text}": {error}', error.hint) from None
            return spec
    known = ", ".join(["auto", *(kind.usage for kind in _KINDS.values())])
    raise UsageError(f'invalid source "{text}": it must be one of {known}')


def ask_sources(
    specs: Sequence[SourceSpec],
    budget: float,
    session: Session,
    surroundings: Surroundings = DEFAULT_SURROUNDINGS,
) -> Answer:
    """The document of the first source that has one, within `budget` seconds.

    The answer is empty only if every source reports that it has none. Otherwise raises SourceError
    with the result of each source.
    """
    from neuca_tools.sources.race import first_answer

    def ask(source: Source, deadline: Deadline, known: Session) -> Answer:
        answer = source.documents(deadline, known)
        if source.outlet is None or source.outlet.is_vouched:
            return answer
        from neuca_tools.sources.vouching import require_vouched

        return require_vouched(answer, source, surroundings)

    return first_answer(_make_sources(specs, surroundings), "user-data", budget, session, ask)


def fetch_path(
    spec: SourceSpec,
    path: str,
    budget: float,
    session: Session,
    surroundings: Surroundings = DEFAULT_SURROUNDINGS,
) -> Optional[str]:
    """One item of metadata (`/latest/meta-data/public-ipv4`), None if the source has no such item.

    `budget` is in seconds. Raises UsageError and SourceError.
    """
    from neuca_tools.sources.race import first_answer

    if not re.fullmatch(r"/[!-~]*", path):
        what = f'bad metadata path "{path}"'
        raise UsageError(f'{what}: it must be printable ASCII and begin with "/"')
    vouched = tuple(outlet for outlet in surroundings.outlets if outlet.is_vouched)
    sources = _make_sources([spec], surroundings._replace(outlets=vouched))
    answer = first_answer(
        sources, path, budget, session, lambda source, *rest: source.metadata(path, *rest)
    )
    if answer.data is None:
        return None
    try:
        return answer.data.decode("utf-8").strip()
    except UnicodeDecodeError as error:
        raise SourceError(f"{answer.source}: {path} is not UTF-8 text") from error


def load_queries() -> None:
    """Load what queries a metadata service, for a process whose children do so again and again."""
    # Without ssl, which http.client takes if it is there: another 1.2 MiB, for https alone.
    modules = cast(dict[str, Optional[ModuleType]], sys.modules)
    ssl = modules.setdefault("ssl", None)  # None: there is no such module (importlib)
    try:
        import_module(f"{__name__}.http")
    finally:
        if ssl is None:
            del modules["ssl"]
    import_module(f"{__name__}.race")


def detected_cloud(specs: Sequence[SourceSpec], surroundings: Surroundings) -> str:
    """The cloud that `auto` detects, `unknown`, or `any` if it does not look; empty without it."""
    if not any(spec.kind == "auto" for spec in specs):
        return ""
    if not surroundings.check_platform:
        return _ANY
    for cloud in CLOUDS:
        if any(text_of(surroundings.dmi / sign.field) == sign.text for sign in cloud.signs):
            return cloud.kind
    # Xen instances of EC2 (AWS, "Detect whether a host is an EC2 instance").
    if text_of(surroundings.dmi / "bios_version").endswith(".amazon"):
        return "ec2"
    return _UNKNOWN


def _make_sources(specs: Sequence[SourceSpec], surroundings: Surroundings) -> list[Source]:
    cloud = detected_cloud(specs, surroundings)
    unique = _unique_specs(specs, cloud)
    made = [_KINDS[spec.kind].make(spec.argument, surroundings) for spec in unique]
    if cloud == _UNKNOWN and all(spec.kind in ("auto", *_LOCAL) for spec in specs):
        made.append(_UnknownCloud())
    if all(source.local for source in made):
        return made
    from neuca_tools.sources.service import by_outlet

    return by_outlet(made)


def _unique_specs(specs: Sequence[SourceSpec], cloud: str = _ANY) -> list[SourceSpec]:
    """The sources without duplicates, with `auto` replaced by those it asks on this cloud."""
    kinds = _LOCAL | _SERVICES_BY_CLOUD.get(cloud, frozenset())
    auto = [SourceSpec(kind) for kind in _AUTO if kind in kinds]
    expanded = (auto if spec.kind == "auto" else [spec] for spec in specs)
    return list(dict.fromkeys(chain.from_iterable(expanded)))


def uses_network(specs: Sequence[SourceSpec]) -> bool:
    """Whether one of these sources may use the network."""
    return any(spec.kind in ("auto", "nocloud", "imds", *_SERVICES) for spec in specs)


def is_known_service(specs: Sequence[SourceSpec], url: str) -> bool:
    """Whether one of these sources is a service at this URL, given without an interface."""
    return any(url in service.known_at() for service in _make_services(_unique_specs(specs)))


def metadata_hosts(sources: Iterable[str], surroundings: Surroundings) -> list[Host]:
    """The addresses of the services among these sources, which no document may take over."""
    specs = []
    for text in sources:
        with suppress(UsageError):
            spec = parse_source(text)
            # What `imds` asks is the service that `auto` would ask.
            specs.append(SourceSpec("auto") if spec.kind == "imds" else spec)
    services = _make_services(_unique_specs(specs, detected_cloud(specs, surroundings)))
    return [host for service in services for host in service.hosts()]


def _make_services(specs: Sequence[SourceSpec]) -> Iterator[Service]:
    for spec in specs:
        if spec.kind in _SERVICES:
            yield cast("Service", _KINDS[spec.kind].make(spec.argument, Surroundings()))


def without_network(specs: Sequence[SourceSpec]) -> list[SourceSpec]:
    """The sources that can be read before the network is up."""
    return [spec for spec in _unique_specs(specs) if spec.kind in _LOCAL]
