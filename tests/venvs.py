"""Virtual environments for tests, cached by content: the same interpreter and requirements give the same directory.

They live outside the tree, so that a fresh clone finds them again: in neuca-guest-tools below $XDG_CACHE_HOME or ~/.cache.
"""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Optional

CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "neuca-guest-tools"
_INSTALL_LIMIT = 1200  # seconds; dbus-python and systemd-python are compiled


class Interpreter:
    """One Python interpreter, asked by running it; `version` is (0,) for one that does not run or has no headers."""

    def __init__(self, path: Path) -> None:
        self.path = path
        ask = (
            "import os, sys, sysconfig; print(*sys.version_info[:3]); print(sys.version);"
            "print(os.path.exists(os.path.join(sysconfig.get_path('include'), 'Python.h')))"
        )
        asked = subprocess.run(
            [path, "-I", "-c", ask], capture_output=True, text=True, timeout=60, check=False
        )
        numbers, *_, headers = (
            asked.stdout.splitlines() if asked.returncode == 0 else ("0", "False")
        )
        self.version = (
            tuple(int(number) for number in numbers.split()) if headers == "True" else (0,)
        )
        self.build = asked.stdout

    def __str__(self) -> str:
        return "Python " + ".".join(map(str, self.version))


def pyenv_root() -> Optional[Path]:
    """Where pyenv keeps its versions, or None. Its shims are of no use: they answer for one chosen version only."""
    root = Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv") / "versions"
    return root if root.is_dir() else None


def interpreters() -> list[Interpreter]:
    """Every released CPython 3 that extensions can be built for: pyenv's, and python3 or python3.N on the PATH."""
    places = [
        Path(place)
        for place in os.environ.get("PATH", os.defpath).split(os.pathsep)
        if "shims" not in place
    ]
    found = [
        path
        for place in places
        for path in place.glob("python3*")
        if path.name[7:].lstrip(".").isdigit()
    ]
    found += [place / "python3" for place in places if (place / "python3").exists()]
    if root := pyenv_root():
        found += [
            path / "bin" / "python3"
            for path in root.glob("3.*")
            if path.name.replace(".", "").isdigit()
        ]
    return [
        one
        for one in map(Interpreter, sorted({path.resolve() for path in found}))
        if one.version > (0,)
    ]


def cached_venv(python: Interpreter, requirements: Path) -> Path:
    """The python of a venv that has `requirements`, made if it does not exist yet.

    Raises RuntimeError with the words of pip.
    """
    key = hashlib.sha256(
        f"{python.path}\n{python.build}\n".encode() + requirements.read_bytes()
    ).hexdigest()[:16]
    venv = CACHE / f"venv-{key}"
    CACHE.mkdir(parents=True, exist_ok=True)
    with (CACHE / f"venv-{key}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # two runs at once must not build one venv
        if not (venv / "complete").exists():
            shutil.rmtree(venv, ignore_errors=True)
            _run(python.path, "-m", "venv", venv)
            # A pip of its time, and wheel: the old pip of an old interpreter builds sdists by other rules.
            _run(venv / "bin" / "python", "-m", "pip", "install", "-q", "--upgrade", "pip")
            _run(venv / "bin" / "python", "-m", "pip", "install", "-q", "-r", requirements)
            (venv / "complete").touch()
    return venv / "bin" / "python"


def _run(*command: object) -> None:
    words = [str(word) for word in command]
    done = subprocess.run(
        words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        timeout=_INSTALL_LIMIT, check=False,
    )  # fmt: skip
    if done.returncode:
        raise RuntimeError(f"{' '.join(words)} ended with {done.returncode}:\n{done.stdout}")


if __name__ == "__main__":
    if sys.argv[1:] == ["--remove"]:
        shutil.rmtree(CACHE, ignore_errors=True)
    else:
        for interpreter in interpreters():
            print(interpreter, interpreter.path)
