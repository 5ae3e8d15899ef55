"""A test in a process of its own, which can enter another network namespace than this process."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import json
import os
import signal
import sys
import traceback
from contextlib import suppress
from typing import Callable

from neuca_tools.errors import NeucaError, SelftestError, UsageError
from neuca_tools.libc import end_with
from neuca_tools.selftest.evidence import VERSION, Evidence
from neuca_tools.selftest.evidence.codec import decode, encode


def run_in_child(measure: Callable[[], Evidence]) -> Evidence:
    """The result of `measure` in that process.

    Raises UsageError or SelftestError with the text of any error that `measure` raised.
    """
    sys.stdout.flush()
    sys.stderr.flush()
    reading, writing = os.pipe2(os.O_CLOEXEC)
    parent, child = os.getpid(), os.fork()
    if child == 0:
        os.close(reading)
        _run_and_report(measure, parent, writing)
    os.close(writing)
    content = None
    try:
        with os.fdopen(reading, "rb") as stream:
            content = stream.read()
    finally:
        if content is None:
            # This process is being stopped.
            os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
    return _decoded_outcome(content)


def _run_and_report(measure: Callable[[], Evidence], parent: int, writing: int) -> None:
    """Does not return: this process ends here, without running the parent's exit handlers."""
    try:
        if end_with(parent):
            with os.fdopen(writing, "wb") as stream, suppress(KeyboardInterrupt):
                stream.write(json.dumps(_encoded_outcome(measure)).encode())
    finally:
        if sys.exc_info()[1] is not None:
            # os._exit() would discard the exception.
            traceback.print_exc()
            sys.stderr.flush()
        os._exit(0)


def _encoded_outcome(measure: Callable[[], Evidence]) -> dict[str, object]:
    try:
        return {"evidence": encode(measure())}
    except NeucaError as error:
        return {"error": error.text, "hint": error.hint, "usage": isinstance(error, UsageError)}
    except OSError as error:
        return {"error": f"test: {error.strerror or error}", "hint": "", "usage": False}


def _decoded_outcome(content: bytes) -> Evidence:
    try:
        message = json.loads(content)
    except ValueError:
        raise SelftestError("test: the measuring process ended without a result") from None
    if "error" in message:
        raise (UsageError if message["usage"] else SelftestError)(
            message["error"], hint=message["hint"]
        )
    return decode(Evidence, message["evidence"], VERSION)
