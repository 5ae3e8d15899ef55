"""What documents say: bytes of a source become a text (`envelope`), the text a Document (`neuca_ini`), all of it pure.

`ini` reads lines; `interfaces`, `links` and `tables` read what they mean, with the typed readers of `values`; `secrecy`
says what may be shown, to messages and to `redact`.
"""

# SPDX-License-Identifier: MIT

from __future__ import annotations

from neuca_tools.documents.envelope import find_document
from neuca_tools.documents.neuca.ini_document import get, parse
from neuca_tools.documents.redact import redact

__all__ = ["find_document", "get", "parse", "redact"]
