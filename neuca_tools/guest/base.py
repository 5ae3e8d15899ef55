"""The features of the guest: their table, their input, and their findings."""

# SPDX-License-Identifier: MIT

import time
from collections.abc import Mapping
from typing import Callable, Literal, NamedTuple

from neuca_tools.config import Config
from neuca_tools.model import Document

State = Literal["ok", "pending", "refused", "failed"]
# The state of a feature is the first of these that one of its findings has.
STATES: tuple[State, ...] = ("failed", "refused", "pending", "ok")

# In the environment of scripts: `neuca status` in a script must not wait for that script.
INSIDE = "NEUCA_SCRIPT"


class Finding(NamedTuple):
    """One thing that a feature did, or failed to do. The text is public and contains no secret.

    A later finding about the same `subject` replaces an earlier one. `needs_retry`: try again
    later.
    """

    state: State
    text: str
    subject: str = ""
    needs_retry: bool = False


def utc_now() -> str:
    """The time, as in RFC 3339."""
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())


class Guest(NamedTuple):
    """The input of a feature. Nothing is removed for a document with faults (`is_complete`)."""

    config: Config
    document: Document


class Feature(NamedTuple):
    """Whether a feature is switched on, and whether a document requests it."""

    is_on: Callable[[Config], bool]
    is_requested: Callable[[Config, Document], bool]


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
        lambda _, document: any(storage.attach for storage in document.storage),
    ),
    "scripts": Feature(
        lambda config: config.guest_scripts, lambda _, document: bool(document.scripts)
    ),
}
