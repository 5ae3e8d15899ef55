"""The EC2-style metadata service: IMDSv2, or version 1 if the service has no tokens.

Reference: AWS, "Use the Instance Metadata Service to access instance metadata" (EC2 user guide).
OpenStack serves the same tree without tokens.
"""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import cache
from hashlib import sha256
from typing import TYPE_CHECKING, Optional

from neuca_tools.documents.platform.ec2 import LEAVES, NAME
from neuca_tools.documents.platform.instance import PUBLIC_KEYS
from neuca_tools.errors import IncompleteError, SourceError, SourceTimeoutError
from neuca_tools.model.machine import instance_text
from neuca_tools.sources.base import INSTANCE_ID, NICS, Answer, Deadline, Session, Token, Url
from neuca_tools.sources.service import Service

if TYPE_CHECKING:
    from neuca_tools.sources.http import Response

_TOKEN_SECONDS = 21600  # the maximum that the service grants
# How long the instance ID and the tree are cached, unless the cheap questions have other answers.
_TREE_SECONDS = 60
# How long the absence of a tree is cached: a service may not have it yet.
_ABSENCE_SECONDS = 5
_MAX_CACHED_CHARACTERS = 1 << 16  # the session goes through a pipe
_ROOT = "/latest/meta-data/"
_EARLY_SECONDS = 60  # renewed before it expires, so that no request carries an expired token
_NO_TOKENS = (400, 404, 405, 501)  # the answers to PUT of services that support only GET
_MAC = re.compile(r"(?:[0-9a-f]{2}:){5}[0-9a-f]{2}", re.IGNORECASE)
_MAX_NICS = 64  # an instance has at most 32 on each of a few network cards
_KEY = re.compile(r"([0-9]{1,4})=.*")  # number and name of a key pair
_MAX_KEYS = 64  # public keys
_TOKEN = re.compile(rb"[!-~]{1,4096}")
# Reads an item below _ROOT; None if the service has none. Raises SourceError.
_Read = Callable[[str], Optional[bytes]]


class Ec2(Service):
    """`ec2` at EC2's own addresses, or `ec2=URL`."""

    kind = "ec2"
    other_urls: tuple[Url, ...] = (Url("fd00:ec2::254"),)
    tokens = "X-aws-ec2-metadata-token"  # begins the names of two headers

    def documents(self, deadline: Deadline, session: Session) -> Answer:
        """The user-data, with NICs and keys if they can be read completely."""
        answer = self.metadata("/latest/user-data", deadline, session)
        try:
            answer = self._with_tree(answer, deadline.share(2))
        except SourceError as error:
            if answer.data is None:
                raise
            answer = answer._replace(unread=str(error))
        return self._with_instance(answer, deadline)

    def _with_instance(self, answer: Answer, deadline: Deadline) -> Answer:
        """The answer with the instance ID, which is cached; empty if it cannot be read."""
        cache_key = f"{self.session_key}{INSTANCE_ID}"
        token = answer.session.token(cache_key)
        if token is None:
            text = ""
            with suppress(SourceError):
                text = _text(self.metadata(INSTANCE_ID, deadline.share(2), answer.session).data)
            identity = instance_text(self.kind, text.strip())
            token = Token(identity, time.monotonic() + _TREE_SECONDS)
        return answer._replace(instance=token.value, session=answer.session.keep(cache_key, token))

    def _with_tree(self, answer: Answer, deadline: Deadline) -> Answer:
        """The answer with NICs and keys, read once a minute, or when user-data or NICs change."""
        session, cache_key = answer.session, f"{self.session_key}{NICS}"
        cached = session.token(cache_key)
        if cached is not None and not cached.value:
            return answer

        @cache  # the list of everything is asked for by several parts
        def read(path: str) -> Optional[bytes]:
            return self.metadata(f"{_ROOT}{path}", deadline, session).data

        listing = _text(read("network/interfaces/macs/")).split()
        digest = sha256((answer.data or b"") + "\n".join(listing).encode()).hexdigest()
        if cached is not None and cached.value.startswith(digest):
            return answer._replace(parts={NAME: cached.value[len(digest) :].encode()})
        # One part has both, so that an error never makes one of them look absent.
        keys, tree = self._public_keys(read), self._network(listing, read)
        if keys:
            tree[PUBLIC_KEYS] = keys
        now = time.monotonic()
        if not tree:
            absent = Token("", now + _ABSENCE_SECONDS)
            return answer._replace(session=session.keep(cache_key, absent))
        text = json.dumps(tree)
        if len(text) <= _MAX_CACHED_CHARACTERS:
            session = session.keep(cache_key, Token(digest + text, now + _TREE_SECONDS))
        return answer._replace(session=session, parts={NAME: text.encode()})

    def _network(self, listing: Sequence[str], read: _Read) -> dict[str, object]:
        """The tree of the NICs, empty if the service has none; only listed leaves are read.

        A service lists a leaf once it has a value. Raises IncompleteError for one without, and for
        what is not a list of a NIC.
        """
        macs = list(filter(_MAC.fullmatch, (line.rstrip("/") for line in listing)))
        if not macs:
            self._demand_absent("network/", listing, read)
            return {}
        tree = {mac: self._nic(mac, read) for mac in macs[:_MAX_NICS]}
        primary = list(filter(_MAC.fullmatch, _text(read("mac")).split()))
        self._demand_absent("mac", primary, read)
        return {"mac": "".join(primary), "macs": tree}

    def _nic(self, mac: str, read: _Read) -> dict[str, str]:
        path = f"network/interfaces/macs/{mac}/"
        leaves = set(LEAVES).intersection(self._listed_text(path, read).split())
        if not leaves:
            raise IncompleteError(f"GET {self.url}{_ROOT}{path}: the response lists nothing known")
        texts = {leaf: self._listed_text(path + leaf, read) for leaf in sorted(leaves)}
        return {leaf: "\n".join(text.split()) for leaf, text in texts.items()}

    def _public_keys(self, read: _Read) -> list[str]:
        """The public keys; their listing has lines such as `0=my-key`. Raises IncompleteError."""
        lines = _text(read("public-keys/")).splitlines()
        self._demand_absent("public-keys/", lines, read)
        matches = map(_KEY.fullmatch, lines)
        numbers = [match[1] for match in matches if match][:_MAX_KEYS]
        return [self._listed_text(f"public-keys/{number}/openssh-key", read) for number in numbers]

    def _demand_absent(self, name: str, words: Sequence[str], read: _Read) -> None:
        """Raise IncompleteError if an item has no words, but the service lists it by this name."""
        if not words and name in _text(read("")).split():
            text = f"the service lists {name}, but gives nothing for it"
            raise IncompleteError(f"GET {self.url}{_ROOT}: {text}")

    def _listed_text(self, path: str, read: _Read) -> str:
        """The text of an item that the service lists. Raises IncompleteError if it has none."""
        data = read(path)
        text = _text(data).strip()
        if not text:
            problem = "HTTP 404" if data is None else "an empty response"
            what = f"GET {self.url}{_ROOT}{path}"
            raise IncompleteError(f"{what}: {problem}, but the service lists it")
        return text

    def metadata(self, path: str, deadline: Deadline, session: Session) -> Answer:
        """One item of metadata; 404 means that there is none."""
        token = session.token(self.session_key) or self._new_token(deadline)
        response = self._get(path, token, deadline)
        if response.status == 401:  # the token expired early, or version 1 was disabled
            token = self._new_token(deadline)
            response = self._get(path, token, deadline)
        if response.status not in (200, 404):
            text = f"GET {self.url}{path}: HTTP {response.status}"
            if response.status == 401:
                no_token = "without a token, and the service gave none"
                why = "with a new token" if token.value else no_token
                text = f"{text} {why}"
            raise SourceError(text)
        return Answer(self.name, response.content, session.keep(self.session_key, token))

    def _get(self, path: str, token: Token, deadline: Deadline) -> Response:
        headers = {self.tokens: token.value} if token.value else {}
        return self.request("GET", path, headers, deadline)

    def _new_token(self, deadline: Deadline) -> Token:
        """A new token, empty if the service has none."""
        path, value = "/latest/api/token", ""
        headers = {f"{self.tokens}-ttl-seconds": str(_TOKEN_SECONDS)}
        # No response also means version 1: the answer to PUT has a hop limit of 1 and is lost
        # behind a forwarder. The absence of tokens is cached for as long as a token is valid, since
        # a guest may be moved to another service.
        with suppress(SourceTimeoutError):
            response = self.request("PUT", path, headers, deadline.share(3))
            if response.status not in (200, *_NO_TOKENS):
                is_disabled = response.status == 403
                why = ": the metadata service is disabled for this guest" if is_disabled else ""
                raise SourceError(f"PUT {self.url}{path}: HTTP {response.status}{why}")
            # A service that answers every request with 200 has no tokens either.
            if _TOKEN.fullmatch(response.body):
                value = response.body.decode("ascii")
        return Token(value, time.monotonic() + _TOKEN_SECONDS - _EARLY_SECONDS)


class Alibaba(Ec2):
    """`alibaba`, or `alibaba=URL`: the same tree at another address, with gateways.

    Reference: Alibaba Cloud, "View instance metadata" (ECS user guide).
    """

    kind = "alibaba"
    well_known, other_urls = Url("100.100.100.200"), ()
    tokens = "X-aliyun-ecs-metadata-token"


def _text(data: Optional[bytes]) -> str:
    return (data or b"").decode("utf-8", "replace")
