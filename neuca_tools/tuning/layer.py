"""Judge the values of the profiles against the host and what else tunes it: sysctl.d.

Profiles have the lowest precedence: the configuration and the document override them. A number is
raised, never lowered. It is compared with the value from before the agent first wrote one, or with
the present value if something else has changed it since.
"""

# SPDX-License-Identifier: MIT

from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from operator import attrgetter
from typing import Literal, NamedTuple, Optional

from neuca_tools.model import LinkKey, Problem, Record, WrittenSetting
from neuca_tools.model.device_settings import Effect
from neuca_tools.tuning import arithmetic
from neuca_tools.tuning.choice import Choice
from neuca_tools.tuning.environment import Environment
from neuca_tools.tuning.profile import BUFFER, KEEP, Profile, has_other_count, raised_value
from neuca_tools.tuning.sysctl_values import is_same_sysctl
from neuca_tools.tuning.sysctld import Settings

CONGESTION = "net/ipv4/tcp_congestion_control"
AVAILABLE = "net/ipv4/tcp_available_congestion_control"
PERMITTED = "net/ipv4/tcp_allowed_congestion_control"
# The source of a value from a profile is this and the name of the profile.
PROFILE = "profile "


class Obstacle(NamedTuple):
    """Why a sysctl cannot be set here."""

    effect: Effect
    reason: str


class Facts(NamedTuple):
    """What is observed on the host.

    `sysctls` are values by path, `obstacles` those that cannot be set. `file_settings` are those of
    sysctl.d files. `memory` is in bytes, 0 if unknown. `modules` are the congestion control
    algorithms that can be loaded, None if unknown. `own_namespace`: the network namespace is not
    the initial one.
    """

    environment: Environment = Environment()
    sysctls: Mapping[str, str] = {}
    obstacles: Mapping[str, Obstacle] = {}
    file_settings: Settings = Settings()
    memory: int = 0
    modules: Optional[frozenset[str]] = None
    own_namespace: bool = False


class TuningInputs(NamedTuple):
    """The profiles and what they are judged by. `missing`: why other profiles cannot be read."""

    profiles: tuple[Profile, ...] = ()
    missing: tuple[str, ...] = ()
    facts: Facts = Facts()


class ProfileValue(NamedTuple):
    """A value that the profiles request; `source` names the profiles that do."""

    value: str
    source: str


class JudgedValue(NamedTuple):
    """A value that the profiles request, judged against the host.

    `setting` is a path below /proc/sys, `mtu` or `txqueuelen`. `wanted` is None if the setting is
    not to change. `effect` is None if the value, or a lower one for this `reason`, can be set.
    """

    setting: str
    requested: str
    source: str
    wanted: Optional[str] = None
    effect: Optional[Effect] = None
    reason: str = ""
    link: Optional[LinkKey] = None
    current: Optional[str] = None


class Layer(NamedTuple):
    """What the profiles request for the host (`values`) and for every link (`mtu`, `txqueuelen`).

    `values` gets those of single links once the links are known. `before` maps each sysctl to the
    value to restore when nothing requests it any more. `notes` are for users.
    """

    choice: Choice = Choice()
    environment: Environment = Environment()
    values: tuple[JudgedValue, ...] = ()
    mtu: Optional[ProfileValue] = None
    txqueuelen: Optional[ProfileValue] = None
    before: Mapping[str, str] = {}
    faults: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def problems(self) -> list[Problem]:
        """The faults, for status."""
        return [Problem("invalid", text) for text in self.faults]

    @property
    def sysctls(self) -> dict[str, str]:
        """The wanted sysctls of the host, by path."""
        host = [value for value in self.values if value.link is None]
        return {value.setting: value.wanted for value in host if value.wanted is not None}


def judge_profiles(choice: Choice, inputs: TuningInputs, record: Record) -> Layer:
    """Judge every value of the profiles of the choice."""
    profiles, missing, facts = inputs
    usable, size = [profile for profile in profiles if not profile.needs_path], 0
    if choice.rate and choice.rtt:
        usable, size = list(profiles), arithmetic.buffer_size(choice.rate, choice.rtt, facts.memory)
    requested = _combine_profiles(usable, str(size))
    unusable = [profile.name for profile in profiles if profile not in usable]
    faults = [*missing, *chain.from_iterable(profile.faults for profile in profiles)]
    faults += [f'profile "{name}": it requires rate and rtt' for name in unusable]
    return Layer(
        choice,
        facts.environment,
        values=tuple(_judge_value(path, value, facts, record) for path, value in requested.items()),
        mtu=_highest_value("mtu", usable),
        txqueuelen=_highest_value("txqueuelen", usable),
        before=_to_restore(facts, record),
        faults=tuple(faults),
        notes=tuple(_layer_notes(choice, usable, facts)),
    )


def _to_restore(facts: Facts, record: Record) -> dict[str, str]:
    """By path, what to restore: the administrator's value if there is one, else the original."""
    settings = {path: facts.file_settings.setting(path) for path in record.original_sysctls}
    of_files = {path: setting.value for path, setting in settings.items() if setting}
    return {**record.original_sysctls, **of_files}


def _combine_profiles(profiles: Sequence[Profile], buffer: str) -> dict[str, ProfileValue]:
    """By path, the highest of each number; of words, the last value."""
    values: dict[str, ProfileValue] = {}
    for profile in profiles:
        for path, value in profile.sysctls.items():
            new = ProfileValue(value.replace(BUFFER, buffer), PROFILE + profile.name)
            values[path] = _merge_values(values[path], new) if path in values else new
    return values


def _merge_values(old: ProfileValue, new: ProfileValue) -> ProfileValue:
    """Two values combined number by number; the source names the profiles they are from."""
    both = raised_value(old.value, new.value)
    sources = {new.value: new.source, old.value: old.source}
    return ProfileValue(both, sources.get(both, f"{old.source}, {new.source[len(PROFILE) :]}"))


def _judge_value(path: str, requested: ProfileValue, facts: Facts, record: Record) -> JudgedValue:
    value = JudgedValue(path, requested.value, requested.source, current=facts.sysctls.get(path))
    obstacle = facts.obstacles.get(path)
    if obstacle is None and path == CONGESTION:
        obstacle = _congestion_obstacle(requested.value, facts, record)
    if obstacle:
        return value._replace(effect=obstacle.effect, reason=obstacle.reason)
    override = facts.file_settings.setting(path)
    if override:
        raised = raised_value(override.value, requested.value)
        if not is_same_sysctl(path, override.value, raised):
            reason = f'by {override.file}, which sets it to "{override.value}"'
            return value._replace(effect="overridden", reason=reason)
    base = _foreign_value(path, value.current, record)
    wanted = raised_value(base, requested.value)
    if KEEP in wanted.split() or has_other_count(base, wanted):
        reason = f'its current value "{value.current}" has a different number of words'
        return value._replace(effect="not applicable", reason=reason)
    return value._replace(wanted=wanted)


def _foreign_value(path: str, current: Optional[str], record: Record) -> Optional[str]:
    """The current value or, if that is our own, the one from before it."""
    written = record.written.get(WrittenSetting(path))
    if path in record.original_sysctls and is_same_sysctl(path, current, written):
        return record.original_sysctls[path]
    return current


def _congestion_obstacle(name: str, facts: Facts, record: Record) -> Optional[Obstacle]:
    """Why a congestion control algorithm cannot be set (tcp_set_default_congestion_control).

    The kernel loads the module when the name is written. So a name that was written and is still
    not available does not exist.
    """
    not_loadable = facts.modules is not None and name not in facts.modules
    missing = not_loadable or record.written.get(WrittenSetting(CONGESTION)) == name
    if name not in facts.sysctls.get(AVAILABLE, "").split() and missing:
        return Obstacle("unsupported", f'this kernel has no "{name}"')
    if facts.own_namespace and name not in facts.sysctls.get(PERMITTED, "").split():
        reason = f'the host does not allow "{name}" in this network namespace'
        return Obstacle("not applicable", reason)
    return None


def _highest_value(
    setting: Literal["mtu", "txqueuelen"], profiles: Sequence[Profile]
) -> Optional[ProfileValue]:
    """The highest value of this setting; of equal ones, that of the last profile."""
    setters = [profile for profile in reversed(profiles) if getattr(profile, setting) is not None]
    profile = max(setters, key=attrgetter(setting), default=None)
    return profile and ProfileValue(str(getattr(profile, setting)), PROFILE + profile.name)


def _layer_notes(choice: Choice, usable: Sequence[Profile], facts: Facts) -> Iterator[str]:
    if choice.rate and choice.rtt and any(profile.needs_path for profile in usable):
        needed = arithmetic.needed_size(choice.rate, choice.rtt)
        size = arithmetic.buffer_size(choice.rate, choice.rtt, facts.memory)
        path = f"{arithmetic.rate_text(choice.rate)} at {arithmetic.rtt_text(choice.rtt)} RTT"
        yield f"{path} needs TCP buffers of {arithmetic.size_text(needed)}"
        limit = (
            "a sixteenth of the memory"
            if size < arithmetic.MAX_BUFFER_BYTES
            else "that of the kernel"
        )
        if size < needed:
            yield f"their limit here is {limit}, {arithmetic.size_text(size)}"
