"""What a feature of the guest is given, and what it says of what it did."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Callable, Literal, NamedTuple

from neuca_tools.config import Config
from neuca_tools.model import Document

State = Literal["ok", "pending", "refused", "failed"]
STATES: tuple[State, ...] = (
    "failed",
    "refused",
    "pending",
    "ok",
)  # the first that applies is that of a whole feature


@dataclass(frozen=True)
class Finding:
    """One thing that a feature did, or could not do. Everybody may read the text: it names no secret.

    A later finding about the same `subject` takes the place of an earlier one. `again`: it is worth another try later.
    """

    state: State
    text: str
    subject: str = ""
    again: bool = False


@dataclass(frozen=True)
class Guest:
    """What a feature works on: the last good document. Nothing is taken away for one with faults (`document.complete`)."""

    config: Config
    document: Document


class Feature(NamedTuple):
    """Whether it is switched on, and whether a document asks anything of it. What it does is in `run.RUNS`."""

    is_on: Callable[[Config], bool]
    asked: Callable[[Config, Document], bool]


FEATURES: Mapping[str, Feature] = {  # in their order
    "hostname": Feature(
        lambda config: config.guest_hostname, lambda _, document: document.hostname is not None
    ),
    "users": Feature(
        lambda config: config.guest_users,
        lambda config, document: bool(document.users or (config.guest_login and document.platform)),
    ),
    "storage": Feature(
        lambda config: config.guest_storage,
        lambda _, document: any(one.attach for one in document.storage),
    ),
    "scripts": Feature(
        lambda config: config.guest_scripts, lambda _, document: bool(document.scripts)
    ),
}
