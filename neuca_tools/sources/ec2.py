"""The EC2-style metadata service: IMDSv2 with its token first, version 1 where the service has no tokens.

Reference: AWS, "Use the Instance Metadata Service to access instance metadata" (EC2 user guide); OpenStack serves the
same tree without tokens.
"""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import re
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING

from neuca_tools.errors import SourceError
from neuca_tools.sources.base import Answer, Deadline, Session, SourceTimeoutError, Token
from neuca_tools.sources.url import Url, parse_url

if TYPE_CHECKING:
    from neuca_tools.sources.http import Response

_LINK_LOCAL = Url("169.254.169.254")
_TOKEN_SECONDS = 21600  # the most that the service grants
_EARLY_SECONDS = 60  # so that no token runs out on its way
_NO_TOKENS = (400, 404, 405, 501)  # what services that know only GET say to a PUT
_TOKEN = re.compile(rb"[!-~]{1,4096}")


class Ec2:
    """`ec2` at the link-local address, or `ec2=URL`."""

    def __init__(self, argument: str) -> None:
        self.url = parse_url(argument) if argument else _LINK_LOCAL
        self.name = f"ec2={self.url}" if argument else "ec2"

    def user_data(self, deadline: Deadline, session: Session) -> Answer:
        return self.metadata("/latest/user-data", deadline, session)

    def metadata(self, path: str, deadline: Deadline, session: Session) -> Answer:
        """404 means that there is none. 401 means that the token ran out early, or that version 1 was switched off."""
        token = session.token(str(self.url)) or self._new_token(deadline)
        response = self._get(path, token, deadline)
        if response.status == 401:
            token = self._new_token(deadline)
            response = self._get(path, token, deadline)
        if response.status not in (200, 404):
            raise SourceError(f"GET {self.url}{path}: HTTP {response.status}{_no_entry(response, token)}")
        data = response.body if response.status == 200 else None
        return Answer(self.name, data, session.keep(str(self.url), token))

    def _get(self, path: str, token: Token, deadline: Deadline) -> Response:
        headers = {"X-aws-ec2-metadata-token": token.value} if token.value else {}
        return _request("GET", self.url, path, headers, deadline)

    def _new_token(self, deadline: Deadline) -> Token:
        """Silence means version 1 too: an answer to PUT may travel one hop only, and is lost behind a forwarder.

        "No tokens" is forgotten after as long as a token lasts, since a guest may be moved to another service.
        """
        try:
            value = self._put(deadline.share(3))
        except SourceTimeoutError:
            value = ""
        return Token(value, time.monotonic() + _TOKEN_SECONDS - _EARLY_SECONDS)

    def _put(self, deadline: Deadline) -> str:
        path = "/latest/api/token"
        headers = {"X-aws-ec2-metadata-token-ttl-seconds": str(_TOKEN_SECONDS)}
        response = _request("PUT", self.url, path, headers, deadline)
        if response.status == 403:
            raise SourceError(f"PUT {self.url}{path}: HTTP 403: the metadata service is switched off for this guest")
        if response.status != 200 and response.status not in _NO_TOKENS:
            raise SourceError(f"PUT {self.url}{path}: HTTP {response.status}")
        # A service that answers any request alike with 200 has no tokens either.
        return response.body.decode("ascii") if _TOKEN.fullmatch(response.body) else ""


def _no_entry(response: Response, token: Token) -> str:
    if response.status != 401:
        return ""
    return " with a new token" if token.value else " without a token, and no token was given for the asking"


def _request(method: str, url: Url, path: str, headers: Mapping[str, str], deadline: Deadline) -> Response:
    from neuca_tools.sources import http  # 12 ms, which a look at a file need not pay

    return http.request(method, url, path, headers, deadline)
