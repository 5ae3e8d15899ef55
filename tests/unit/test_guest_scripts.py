"""Scripts: real processes under a real supervisor; each runs once, in order, within its time, and its end is known."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from neuca_tools.config import Config
from neuca_tools.documents import parse
from neuca_tools.guest.base import Guest
from neuca_tools.guest.scripts import run_scripts, script_files

ROOT = Path(__file__).parents[2]
PATIENCE = 120.0  # seconds


class Host:
    """A host with scripts, and what they leave in its folder."""

    def __init__(self, folder):
        self.folder = folder
        self.config = Config(
            state_directory=folder / "state",
            run_directory=folder / "run",
            log_directory=folder / "log",
            managers="none",
            script_timeout=600.0,
        )

    def guest(self, scripts):
        """A document with these, name to body."""
        lines = "\n".join(
            f"{name} = {body}".replace("\n", "\n    ") for name, body in scripts.items()
        )
        document = parse("[scripts]\n" + lines.replace("FOLDER", str(self.folder)) + "\n")
        assert document.faults == ()
        return Guest(self.config, document)

    def run(self, scripts):
        """The last finding about each."""
        return {
            finding.subject: (finding.state, finding.text)
            for finding in run_scripts(self.guest(scripts))
        }

    def text(self, name):
        return (self.folder / name).read_text() if (self.folder / name).exists() else ""

    def files(self, scripts, name):
        return script_files(
            self.config,
            next(one for one in self.guest(scripts).document.scripts if one.name == name),
        )


@pytest.fixture
def host(tmp_path, monkeypatch):
    """Whatever its scripts have left behind is ended, whether the test went well or not."""
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    yield Host(tmp_path)
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if f"{tmp_path}/state/scripts/".encode() in (process / "cmdline").read_bytes():
                os.kill(int(process.name), signal.SIGKILL)


def says(word):
    return f"#!/bin/sh\necho {word} >> FOLDER/said"


def test_each_runs_once_the_boot_script_first_and_a_changed_body_again(host):
    scripts = {"other": says("other"), "bootscript": says("boot")}
    found = host.run(scripts)
    assert host.text("said") == "boot\nother\n"
    assert [state for state, _ in found.values()] == ["ok", "ok"]
    assert host.run(scripts) == found  # also what a reboot, or a restart of the agent, finds
    assert host.text("said") == "boot\nother\n"
    host.run({**scripts, "other": says("changed")})
    assert host.text("said") == "boot\nother\nchanged\n"
    host.run(scripts)
    assert host.text("said") == "boot\nother\nchanged\n"


def test_the_same_body_under_another_name_is_another_script(host):
    host.run({"a": says("x"), "b": says("x")})
    assert host.text("said") == "x\nx\n"


def test_one_that_fails_says_how_and_the_next_one_runs(host):
    scripts = {
        "a": "#!/bin/sh\necho out; echo err >&2; exit 3",
        "b": "#!/bin/sh\nkill -9 $$",
        "c": says("c"),
    }
    found = host.run(scripts)
    output = host.files(scripts, "a").output
    assert (found["a"][0], found["a"][1].partition(" after ")[0]) == ("failed", "a: exit status 3")
    assert found["a"][1].endswith(f's; its output is in "{output}"')
    assert (found["b"][0], found["b"][1].partition(" after ")[0]) == (
        "failed",
        "b: terminated by signal 9",
    )
    says_at_last(output, "out\nerr\n")
    assert output.stat().st_mode & 0o777 == 0o600
    assert (found["c"][0], host.text("said")) == ("ok", "c\n")


def test_no_shell_of_ours_touches_the_body(host):
    body = '#!/usr/bin/env python3\nimport sys\nif True:\n    print("$HOME `id` \\"x\\" %s" % sys.argv[1:], end="")'
    scripts = {
        "python": body,
        "plain": "echo $0 | grep -c plain",
        "my.script-1": "#!/bin/sh\necho safe",
        "environment": "#!/usr/bin/env python3\nimport os\nprint(sorted(os.environ.items()))",
    }
    assert {state for state, _ in host.run(scripts).values()} == {"ok"}
    says_at_last(host.files(scripts, "python").output, '$HOME `id` "x" []')
    path = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
    environment = {
        "HOME": "/root",
        "LANG": "C.UTF-8",
        "LOGNAME": "root",
        "NEUCA_SCRIPT": "1",
        "PATH": path,
        "SHELL": "/bin/sh",
        "USER": "root",
    }
    says_at_last(host.files(scripts, "environment").output, f"{list(environment.items())}\n")
    says_at_last(
        host.files(scripts, "plain").output, "1\n"
    )  # without a "#!" it is for /bin/sh, as execvp(3) has it


def test_what_a_script_finds(host):
    scripts = {"look": '#!/bin/sh\npwd; echo "$PATH"; tty; umask; cat; id -u > FOLDER/said'}
    host.run(scripts)
    found = "/\n/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin\nnot a tty\n0022\n"
    says_at_last(host.files(scripts, "look").output, found)
    assert host.files(scripts, "look").body.stat().st_mode & 0o777 == 0o700


def test_a_mark_that_cannot_be_locked_is_no_script_that_still_runs(host):
    scripts = {"a": says("a")}
    mark = host.files(scripts, "a").mark
    mark.mkdir(parents=True)
    assert host.run(scripts) == {"a": ("failed", f'lock "{mark}": Is a directory')}


def test_one_that_cannot_be_run_says_why(host):
    found = host.run({"a": "#!/no/such/interpreter\n"})
    assert found["a"] == ("failed", "a: it cannot be run: No such file or directory")


def test_one_that_takes_too_long_is_ended_with_what_it_started(host):
    patient, host.config = host.config, host.config._replace(script_timeout=5.0)
    scripts = {
        "slow": "#!/bin/sh\nsleep 300 & echo $! > FOLDER/child; sleep 300",
        "next": says("next"),
    }
    found = host.run({"slow": scripts["slow"]})
    assert (found["slow"][0], found["slow"][1].partition(" after ")[0]) == (
        "failed",
        "slow: took too long and was terminated",
    )
    host.config = patient
    assert host.run(scripts)["slow"] == found["slow"]
    assert host.text("said") == "next\n"
    wait_until(lambda: has_ended(int(host.text("child"))))


def test_a_program_that_it_leaves_in_the_background_goes_on_and_may_write(host):
    """Its output is copied to its end, though the script ended long ago."""
    os.mkfifo(host.folder / "go")
    scripts = {
        "a": "#!/bin/sh\n(read line < FOLDER/go; echo late; echo done > FOLDER/ended) &\necho first"
    }
    assert host.run(scripts)["a"][0] == "ok"
    os.mkfifo(host.folder / "ended")
    (host.folder / "go").write_text("go\n")
    assert (host.folder / "ended").read_text() == "done\n"
    says_at_last(host.files(scripts, "a").output, "first\nlate\n")


def says_at_last(path, text):
    """The copy of the output may come a moment after the end of the script."""
    wait_until(lambda: path.read_text() == text)


def has_ended(process):
    """Gone, or a zombie of an init that does not reap."""
    place = Path(f"/proc/{process}/stat")
    return not place.exists() or place.read_text().rpartition(")")[2].split()[0] == "Z"


def wait_until(true):
    """Look again some times a second, for there is no descriptor that tells."""
    for _ in range(int(PATIENCE * 20)):
        if true():
            return
        select.select([], [], [], 0.05)
    raise AssertionError("it did not come true")


def test_much_output_is_cut_in_the_file(host):
    scripts = {"a": "#!/bin/sh\nhead -c 9000000 /dev/zero | tr '\\0' x"}
    assert host.run(scripts)["a"][0] == "ok"
    whole = b"x" * (8 << 20) + b"\n[neucad: what follows is not kept]\n"
    wait_until(lambda: host.files(scripts, "a").output.read_bytes() == whole)


def test_its_output_is_for_root_alone_and_not_in_the_log_of_the_agent(host, capfd):
    """Without systemd the agent's standard output is a file that collect-logs may pack."""
    before = os.umask(0)
    try:
        scripts = {"a": "#!/bin/sh\necho Sesame; echo Sesame >&2"}
        assert host.run(scripts)["a"][0] == "ok"
    finally:
        os.umask(before)
    output = host.files(scripts, "a").output
    wait_until(lambda: output.read_text() == "Sesame\nSesame\n")
    assert output.stat().st_mode & 0o777 == 0o600
    said = capfd.readouterr()
    assert (said.out, said.err) == ("", "")


# --- the agent ends, or the host does -------------------------------------------------------------------------------


def begun(host, scripts):
    """The agent as a process of its own, in a session of its own, once the script has written its process id to `child`."""
    os.mkfifo(host.folder / "child")
    code = "import json, sys\nfrom pathlib import Path\nsys.path.insert(0, sys.argv[1])\nfrom test_guest_scripts import Host\n"
    code += "Host(Path(sys.argv[2])).run(json.loads(sys.argv[3]))"
    agent = subprocess.Popen(
        [
            sys.executable,
            "-c",
            code,
            str(Path(__file__).parent),
            str(host.folder),
            json.dumps(scripts),
        ],
        start_new_session=True,
    )
    return agent, int((host.folder / "child").read_text())


SLOW = "#!/bin/sh\necho $$ > FOLDER/child\nread line < FOLDER/go\necho $line"


def test_it_goes_on_when_the_agent_is_killed_and_the_next_run_waits_for_it(host):
    os.mkfifo(host.folder / "go")
    scripts = {"a": SLOW}
    agent, child = begun(host, scripts)
    os.killpg(agent.pid, signal.SIGKILL)
    agent.wait(PATIENCE)
    os.kill(child, 0)
    findings = run_scripts(host.guest(scripts))
    assert next(findings).text == "a: waiting"
    assert next(findings).text.startswith("a: running since 20")
    (host.folder / "go").write_text("went\n")
    assert next(findings).state == "ok"
    says_at_last(host.files(scripts, "a").output, "went\n")


def supervisor_of(child):
    return int(Path(f"/proc/{child}/stat").read_text().rpartition(")")[2].split()[1])


def test_a_host_that_goes_down_ends_it_and_it_does_not_run_again(host):
    os.mkfifo(host.folder / "go")
    scripts = {"a": SLOW}
    agent, child = begun(host, scripts)
    os.kill(supervisor_of(child), signal.SIGTERM)
    agent.wait(PATIENCE)
    state, text = host.run(scripts)["a"]
    assert (state, text.partition(" after ")[0]) == ("failed", "a: interrupted")


def test_after_a_power_cut_it_does_not_run_again(host):
    os.mkfifo(host.folder / "go")
    scripts = {"a": SLOW}
    agent, child = begun(host, scripts)
    supervisor = supervisor_of(child)
    os.kill(supervisor, signal.SIGKILL)
    os.kill(child, signal.SIGKILL)
    agent.wait(PATIENCE)
    said = {"a": ("failed", "a: interrupted for an unknown reason; it does not run again")}
    assert host.run(scripts) == host.run(scripts) == said


def test_one_whose_supervisor_cannot_be_run_runs_later(host, monkeypatch):
    """As where the kernel has no memory for another process."""
    scripts = {"a": says("a")}
    with monkeypatch.context() as patch:
        patch.setattr("sys.executable", "/nowhere")
        text = "a: cannot be started: run /nowhere: No such file or directory"
        assert host.run(scripts) == {"a": ("failed", text)}
    assert host.run(scripts)["a"][0] == "ok"
    assert host.text("said") == "a\n"


def test_one_that_cannot_be_started_has_not_run(host, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", "/nowhere")
    findings = [
        finding
        for finding in run_scripts(host.guest({"a": says("a"), "b": says("b")}))
        if finding.state == "failed"
    ]
    assert [(one.text, one.needs_retry) for one in findings] == [
        (f"{name}: cannot be started: its supervisor ended with status 1", True) for name in "ab"
    ]
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    assert host.run({"a": says("a")})["a"][0] == "ok"


def test_one_that_removes_the_logs_of_the_host_has_run(host):
    scripts = {"a": says("a") + "\nrm -rf FOLDER/log"}
    assert host.run(scripts)["a"][0] == host.run(scripts)["a"][0] == "ok"
    assert host.text("said") == "a\n"


def test_a_mark_that_is_damaged_counts_as_run(host):
    scripts = {"a": says("a")}
    host.run(scripts)
    host.files(scripts, "a").mark.write_text("{")
    assert host.run(scripts)["a"] == (
        "failed",
        "a: interrupted for an unknown reason; it does not run again",
    )
    assert host.text("said") == "a\n"


# --- After an upgrade from version 1.7 ------------------------------------------------------------------------------


def left_by_1_7(host, name, body, mode=0o100):
    """What version 1.7 kept of a script that it had run."""
    state = host.config.state_directory
    state.mkdir(exist_ok=True)
    (state / name).write_text(body)
    (state / name).chmod(mode)


def test_a_script_that_version_1_7_has_run_is_not_run_again(host):
    if os.geteuid():
        pytest.skip("only root can read what version 1.7 left")
    body = f"#!/bin/sh\nif true; then\ntouch {host.folder}/ran\nfi"
    left_by_1_7(host, "bootscript", body)
    scripts = {"bootscript": "#!/bin/sh\nif true; then\n  # now\n  touch FOLDER/ran\nfi"}
    for _ in range(2):
        assert host.run(scripts) == {"bootscript": ("ok", "bootscript: was run by version 1.7")}
    assert not (host.folder / "ran").exists()


def test_version_1_7_took_a_comment_for_the_end_of_the_first_line(host):
    if os.geteuid():
        pytest.skip("only root can read what version 1.7 left")
    left_by_1_7(host, "bootscript", "echo one")
    found = host.run({"bootscript": f"echo one ; touch {host.folder}/ran"})
    assert found == {"bootscript": ("ok", "bootscript: was run by version 1.7")}
    assert not (host.folder / "ran").exists()


@pytest.mark.parametrize(
    ("name", "body", "mode"),
    [
        ("bootscript", "echo another", 0o100),
        ("bootscript", "echo here > FOLDER/ran", 0o600),
        ("other", "echo here > FOLDER/ran", 0o100),
    ],
    ids=["another body", "not a file of 1.7", "another name"],
)
def test_any_other_script_is_run_after_an_upgrade(host, name, body, mode):
    left_by_1_7(host, name, body.replace("FOLDER", str(host.folder)), mode)
    state, text = host.run({"bootscript": "echo here > FOLDER/ran"})["bootscript"]
    assert (state, text.startswith("bootscript: exit status 0 after ")) == ("ok", True)
    assert host.text("ran") == "here\n"


def test_what_lies_in_the_place_of_a_script_of_1_7_is_no_reason_to_skip_one(host):
    state = host.config.state_directory
    state.mkdir()
    (state / "one").mkdir(mode=0o100)
    (host.folder / "elsewhere").write_text("echo here > FOLDER/ran")
    (host.folder / "elsewhere").chmod(0o100)
    (state / "two").symlink_to(host.folder / "elsewhere")
    found = host.run({"one": "true", "two": "echo here > FOLDER/ran"})
    assert {state for state, _ in found.values()} == {"ok"}
    assert host.text("ran") == "here\n"
