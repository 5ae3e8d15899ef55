"""The kinds of journal messages: an ID for each, and the fields that they carry.

The IDs are those of packaging/neuca.catalog, which journalctl -x shows (journald's catalog).
"""

# SPDX-License-Identifier: MIT

PASS = "d4989cf8e86840b3bd3e392e2ea7240e"
DONE = "1a6cf3de78974b20b4b22400f90be08e"
FAILED = "6a669a6cc4984d16949ed297d2df53a2"
UNDONE = "c24f9aeb860e478783a7d43dc95d9f29"
IDS = {"PASS": PASS, "DONE": DONE, "FAILED": FAILED, "UNDONE": UNDONE}
FIELDS = (
    "NEUCA_OPERATION",  # its kind, as in neuca plan --json
    "NEUCA_INTERFACE",  # the name of the interface, or "host"
    "NEUCA_REASON",  # of a failure
    "NEUCA_SECONDS",  # that a pass took
    "NEUCA_SOURCE_SECONDS",  # that the sources took before it
    "NEUCA_CHANGED",  # operations that it carried out
    "NEUCA_FAILED",  # operations that failed
    "NEUCA_STATE",  # after it, in the words of neuca status
)


def message_fields(message_id: str, **values: object) -> dict[str, str]:
    """The argument `extra` of a log call: `operation="rename"` becomes NEUCA_OPERATION."""
    named = {f"NEUCA_{name.upper()}": str(value) for name, value in values.items()}
    return {"MESSAGE_ID": message_id, **named}
