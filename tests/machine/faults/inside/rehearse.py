"""Runs cases of the fault catalogue in the guest: each in fresh namespaces, with neuca-selftest itself at both ends.

`rehearse.py ASK ANSWER`: a case comes in over the FIFO `ASK` as JSON, as `Case` of catalogue.py has it, and its outcome goes out
over the other. All that the two ends need is imported once, and each end is a fork of this process.
"""

# SPDX-License-Identifier: MIT

import ctypes
import json
import os
import select
import signal
import subprocess
import sys
import time
import traceback
from pathlib import Path

LAB = Path("/run/lab")
NAMESPACES = Path("/run/netns")
SECRET = "a secret that both ends share"
SERVING = "serving tests"
READY, ENDING = 60.0, 30.0  # seconds
CLONE_NEWNS, CLONE_NEWNET = 0x20000, 0x40000000  # linux/sched.h
CONFIGURATION = Path("/run/configuration")  # of an agent; {0} is its folder
CLEAN = (
    "for name in $(ip -o netns list | cut -d ' ' -f 1); do ip netns del $name; done; rm -rf /run/lab; mkdir -p /run/lab; "
    "dmesg --clear 2>/dev/null || true"
)


class End:
    """One end: a fork of this process that runs neuca-selftest, in a mount namespace of its own."""

    def __init__(self, name, words, first="", inside=""):
        self._output = LAB / f"{name}.out"
        reading, writing = os.pipe()
        self.pid = os.fork()
        if self.pid == 0:
            os.close(reading)
            _become(words, first, inside, self._output, writing)
        os.close(writing)
        self._said = reading

    def until(self, word, seconds):
        """What it said on standard error, once this word is among it, or it ended, or so long."""
        said, deadline = "", time.monotonic() + seconds
        while (
            word not in said
            and select.select([self._said], [], [], max(0.0, deadline - time.monotonic()))[0]
        ):
            piece = os.read(self._said, 65536)
            if not piece:
                break
            said += piece.decode(errors="replace")
        return said

    def end(self, seconds):
        """Exit code, standard output and standard error; None: it had to be killed."""
        watched = os.pidfd_open(self.pid)
        late = not select.select([watched], [], [], seconds)[0]
        os.close(watched)
        os.kill(self.pid, signal.SIGKILL)
        status = os.waitpid(self.pid, 0)[1]
        said = self.until("\0", 1.0)
        os.close(self._said)
        return None if late else os.waitstatus_to_exitcode(status), self._output.read_text(), said


def _become(words, first, inside, output, writing):
    code = 1
    try:
        os.setsid()
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        os.dup2(os.open(output, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), 1)
        os.dup2(writing, 2)
        # Python remembers whether what was there before could seek.
        sys.stdout, sys.stderr = (os.fdopen(number, "w", closefd=False) for number in (1, 2))
        libc = ctypes.CDLL(None, use_errno=True)
        if first:
            assert libc.unshare(CLONE_NEWNS) == 0, "unshare"
            subprocess.run(["mount", "--make-rprivate", "/"], check=True)
            subprocess.run(["bash", "-ec", first], check=True)
        if inside:
            assert libc.setns(os.open(NAMESPACES / inside, os.O_RDONLY), CLONE_NEWNET) == 0, "setns"
        code = main(words)
    except SystemExit as wanted:
        code = wanted.code
    except BaseException:  # noqa: BLE001 - what an interpreter would do with it
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code or 0)


def rehearse(case):
    """One case: its report, with how long it took by the guest's clock."""
    began = time.monotonic()
    try:
        _prepare(case)
        found = _test(case)
        if case["tally"]:
            found["tally"] = _output(case["tally"])
    except subprocess.CalledProcessError as error:
        found = {"error": f"the set-up: {error.output}"[-2000:]}
    finally:
        if case["after"]:
            subprocess.run(["bash", "-c", case["after"]], check=False, capture_output=True)
    return {"name": case["name"], "seconds": round(time.monotonic() - began, 1), **found}


def _shell(script):
    subprocess.run(
        ["bash", "-ec", script],
        check=True,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        stdin=subprocess.DEVNULL,
    )


def _output(script):
    """What a script says."""
    done = subprocess.run(["bash", "-c", script], check=False, capture_output=True, text=True)
    return done.stdout


def _prepare(case):
    _shell(CLEAN)
    for name in "AB":
        folder = LAB / name
        folder.mkdir()
        (folder / "config").write_text(CONFIGURATION.read_text().format(folder))
        (folder / "document").write_text("")
    for name, text in (("secret", SECRET), ("other", f"{SECRET}, not this one")):
        (LAB / name).write_text(text)
        (LAB / name).chmod(0o600)
    _shell(case["setup"])


def _test(case):
    far = beside = None
    said = ""
    try:
        if case["helper"]:
            far = End("far", case["helper"], case["far_first"])
            said = far.until(SERVING, READY)
            if SERVING not in said:
                return {"error": f"the helper does not serve: {said}"}
        if case["beside"]:
            beside = subprocess.Popen(
                ["bash", "-c", case["beside"]],
                start_new_session=True,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
            )
        near = End("near", case["words"], case["near_first"], case["inside"])
        code, out, errors = near.end(case["patience"])
    finally:
        if beside:
            os.killpg(beside.pid, signal.SIGKILL)
            beside.wait()
        if far:
            os.kill(far.pid, signal.SIGTERM)
            said += far.end(ENDING)[2]
    try:
        return {"code": code, "report": json.loads(out), "said": errors + said}
    except ValueError:
        return {"code": code, "error": f"no report: {out}{errors}"[-2000:], "said": said}


if __name__ == "__main__":
    import neuca_tools.commands.selftest_run  # noqa: F401 - for both ends
    from neuca_tools.commands.selftest import main

    ask, answer = map(Path, sys.argv[1:])
    while True:
        with ask.open() as asked:
            wanted = json.load(asked)
        outcome = json.dumps(rehearse(wanted), separators=(",", ":"))
        with answer.open("w") as told:
            told.write(outcome)
