#!/usr/bin/python3
"""Plays random sequences of documents on this kernel, or with --uml in user-mode Linux guests, and prints one line for each seed.

    sequences/run.py --seeds 1-20                  on this kernel, with the kinds of links that it has
    sequences/run.py --seeds 1-1000 --uml          in guests, with all kinds; package user-mode-linux
    sequences/run.py --replay build/sequences/7.json [--uml]
    sequences/run.py --seeds 1-100 --leave-out path-cost

A sequence that fails is cut down to what is needed, printed, and stored in build/sequences. --leave-out REGEX leaves out
the lines and ways of applying that match, so that a known defect does not hide others.

A document is applied by a command, by neucad --once, by a daemon that is ended or killed, or on trial. In some steps the pass
or the trial is killed, changes of it and of its roll-back are refused, answers of the kernel are lost, or the disk is full.
Before a step and during a trial, something may be changed by hand, unplugged or plugged in; neuca release, revert and tune and
changes of the configuration come before a step too. After each step, or after several of those with a fault:

- The management NIC, ignored NICs, VLANs of other programs and the default routes have not changed.
- neuca plan and dry runs show what is then done, with the exit code of the pass; neuca status agrees. A second pass writes nothing.
- The host is the same as one that has applied this document only, apart from the names and states of NICs that the document
  does not name, links on absent NICs, and manual changes.
- A NIC on which a change failed is as it was before the pass. A trial that was interrupted has changed nothing; after one that
  was killed or got stuck, the next pass returns to the document before.
- The daemon makes few passes, and leaves nothing to do. The state can be read, no program crashes, and exit codes are
  documented ones.
"""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import threading
from collections import Counter
from pathlib import Path

HERE = Path(__file__).parent
RESULTS = HERE.parents[1] / "build/sequences"
MODULES = Path("/usr/lib/uml/modules")
MEMORY = "700M"
MAX_SEEDS = 50  # of one player: the command line of a kernel is short


class Results:
    """Counts and prints what the players report."""

    def __init__(self, is_guest):
        self.kernel = "uml" if is_guest else "native"
        self.lock, self.broken, self.played = threading.Lock(), Counter(), 0

    def take(self, line):
        """One line of a player's output."""
        try:
            data = json.loads(line)
            name = f"{self.kernel} seed {data['seed']}: "
        except (ValueError, TypeError, KeyError):
            if self.kernel == "native":  # a guest's are mostly those of its boot
                print(line.rstrip(), file=sys.stderr)
            return
        with self.lock:
            self.played += 1
            if not data["broken"]:
                print(f"{name}ok in {data['seconds']} s", flush=True)
                return
            self.broken[data["broken"][0]] += 1
            RESULTS.mkdir(parents=True, exist_ok=True)
            path = RESULTS / f"{data['seed']}.json"
            path.write_text(json.dumps(data, indent=1))
            print(f"{name}{data['broken'][0]}: {path}", flush=True)
            print("\n".join(f"    {text}" for text in described(data)), flush=True)

    def close(self):
        counts = ", ".join(f"{count} x {promise}" for promise, count in self.broken.most_common())
        print(
            f"{self.played} sequences, {sum(self.broken.values())} broken{': ' if counts else ''}{counts}"
        )
        return 1 if self.broken or not self.played else 0


def described(data):
    """What was seen and the documents, for people."""
    for detail in data["broken"][1:]:
        yield from str(detail).splitlines()
    for place, step in enumerate(data["steps"], 1):
        yield f"step {place}: {', '.join([*step['events'], step['action']])} (number {step['number']})"
        for section in step["sections"]:
            yield f"  {section['header']}"
            yield from (f"  {line}" for line in section["lines"])


def play_here(words, results):
    command = [sys.executable, "-B", str(HERE / "seq_play.py"), *words]
    if os.geteuid():
        command = ["unshare", "--user", "--map-root-user", *command]
    memory = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    with tempfile.TemporaryDirectory(prefix="neuca-sequences-", dir=memory) as folder:
        _follow(command, results, TMPDIR=folder)


def play_in_guest(words, results):
    """In a guest on this machine's files, read-only."""
    folder = tempfile.mkdtemp()
    modules = max(MODULES.glob("*/kernel"))
    # Linux 6.16 and later need no ptrace, and take a third of the time.
    guest = [
        "linux.uml", "seccomp=auto", "rootfstype=hostfs", "rootflags=/", "ro", f"mem={MEMORY}", f"init={HERE / 'seq_init.py'}",
        "con=null", "con0=null,fd:1", "con1=null", "quiet", f"umid=neuca{os.getpid()}-{threading.get_ident()}", f"uml_dir={folder}/",
        f"neuca_modules={modules}", f"neuca_words={','.join(words)}"]  # fmt: skip
    _follow(guest, results)
    shutil.rmtree(folder, ignore_errors=True)


def _follow(command, results, **environment):
    """Run the player, which ends with us."""
    is_guest = command[0] == "linux.uml"
    errors, signal = (subprocess.DEVNULL, "TERM") if is_guest else (None, "KILL")
    command = ["setpriv", "--pdeathsig", signal, *command]
    with subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=errors, text=True,
                          errors="replace", env={**os.environ, **environment}) as process:  # fmt: skip
        for line in process.stdout:
            results.take(line)


def seeds_of(text):
    """ "3", "1-20" or a list of these."""
    seeds = []
    for part in text.split(","):
        first, _, last = part.partition("-")
        seeds += range(int(first), int(last or first) + 1)
    return seeds


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seeds", type=seeds_of, default=seeds_of("1-10"))
    parser.add_argument("--uml", action="store_true")
    parser.add_argument("--replay", type=Path)
    parser.add_argument("--leave-out", default="", metavar="REGEX")
    parser.add_argument(
        "--shrink", default="60", metavar="SECONDS", help="for each sequence that fails"
    )
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    arguments = parser.parse_args()
    if arguments.uml and not (shutil.which("linux.uml") and MODULES.exists()):
        sys.exit("there is no user-mode Linux here: apt-get install user-mode-linux")
    results = Results(arguments.uml)
    play = play_in_guest if arguments.uml else play_here
    if arguments.replay:
        play(["replay", str(arguments.replay.resolve())], results)
        return results.close()
    jobs = min(arguments.jobs, len(arguments.seeds))
    parts = [arguments.seeds[place::jobs] for place in range(jobs)]
    words = [f"shrink={arguments.shrink}", f"leave-out={arguments.leave_out.encode().hex()}"]

    def play_part(seeds):
        for first in range(0, len(seeds), MAX_SEEDS):
            play([*words, *map(str, seeds[first : first + MAX_SEEDS])], results)

    threads = [threading.Thread(target=play_part, args=(part,)) for part in parts]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return results.close()


if __name__ == "__main__":
    sys.exit(main())
