"""Parse documents, without side effects.

`envelope` finds the text in the bytes of a source; `neuca` and `platform` parse it.

In `neuca`, `ini` splits the text into lines, `interface_lines`, `links` and `tables` interpret
them, and `values` has the readers of single values. `privacy` decides what messages and the
redacted copy may show.
"""

# SPDX-License-Identifier: MIT

from neuca_tools.documents.envelope import find_document
from neuca_tools.documents.neuca.ini import redact_text
from neuca_tools.documents.neuca.ini_document import find_value, parse

__all__ = ["find_document", "find_value", "parse", "redact_text"]
