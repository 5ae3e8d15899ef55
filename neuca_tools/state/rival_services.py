"""Compares the first answer of an instance with those of services behind its other NICs."""

# SPDX-License-Identifier: MIT

from collections.abc import Sequence
from contextlib import suppress

from neuca_tools.errors import SourceError
from neuca_tools.model.machine import MetadataService
from neuca_tools.sources import Session, SourceSpec, Surroundings, ask_sources

_RIVAL_ANSWER_SECONDS = 1.0  # that other NICs get to contradict


def describe_contradiction(
    specs: Sequence[SourceSpec],
    budget: float,
    surroundings: Surroundings,
    origin: MetadataService,
    own_digest: str,
) -> str:
    """A sentence if a service on another likely NIC answers differently; empty if none does.

    `origin` is the service that has answered, `own_digest` the digest of its answer.
    """
    if not origin.mac:
        return ""
    names = []
    for outlet in surroundings.outlets:
        if outlet.identity == origin.mac or not outlet.is_likely:
            continue
        with suppress(SourceError):
            seconds = min(budget, _RIVAL_ANSWER_SECONDS)
            only = surroundings._replace(outlets=(outlet,))
            answer = ask_sources(specs, seconds, Session(), only)
            if answer.origin and not answer.is_empty and answer.digest != own_digest:
                names.append(outlet.name)
    if not names:
        return ""
    return (
        f"the response of another metadata service, through {', '.join(names)}, differs and is"
        f" ignored; the service in use is {origin.source} at {origin.url}"
        f" through the NIC {origin.mac}"
    )
