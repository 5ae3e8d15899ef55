"""What the coordinator of a mesh hears from its hosts: lines, messages and files, within limits, whatever is sent."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import errno
import fcntl
import json
import os
import resource
import subprocess
import sys
import time
from ipaddress import ip_address
from pathlib import Path

import pytest
from test_mesh_localise import mesh_of, rows_of

from neuca_tools.commands.selftest_mesh import clush_command, mesh_parser, own_host
from neuca_tools.errors import SelftestError, UsageError
from neuca_tools.selftest.measure.host.planned import AgentPlan
from neuca_tools.selftest.measure.mesh import results
from neuca_tools.selftest.measure.mesh.coordinate import Coordinator, Engine
from neuca_tools.selftest.measure.mesh.host import IDLE_SECONDS, Member, read_slots
from neuca_tools.selftest.measure.mesh.pair import measure_pair
from neuca_tools.selftest.measure.wait import Lines, wait_readable
from neuca_tools.selftest.mesh.localise import find_suspects
from neuca_tools.selftest.mesh.model import (
    MAX_HOSTS,
    MeshHost,
    MeshPlan,
    plan_identity,
    plan_record,
    row_record,
)
from neuca_tools.selftest.mesh.retest import with_retests
from neuca_tools.selftest.mesh.schedule import make_plan
from neuca_tools.selftest.mesh.verdict import judge_mesh


def test_a_shortage_of_descriptors_is_no_missing_route():
    plan = mesh_of(2)
    (row,) = rows_of(plan)
    most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (0, most[1]))
    try:
        row = measure_pair(plan, row, AgentPlan(), b"")
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, most)
    assert (row.error, row.text) == ("local", "[Errno 24] Too many open files")


@pytest.fixture
def pipe():
    reading, writing = os.pipe()
    yield Lines(reading, 100), writing
    os.close(reading)


def heard(lines, writing, *pieces):
    found = []
    for piece in pieces:
        os.write(writing, piece)
        found += lines.read_lines()
    return found


def test_lines_may_come_in_pieces(pipe):
    assert heard(*pipe, b"a", b"b\nc\n", b"d") == [b"ab", b"c"]


def test_a_line_that_is_too_long_is_dropped_to_its_end(pipe):
    assert heard(*pipe, b"x" * 101, b"x" * 50, b"y\ngood\n") == [b"good"]
    assert heard(*pipe, b"x" * 101 + b"\n", b"y" * 100 + b"\nx") == [b"y" * 100]


def test_messages_are_objects_and_the_rest_is_passed_over(pipe):
    lines, writing = pipe
    os.write(writing, b'7\n[]\n{"a": 1}\n\xff\n{"b"\n')
    assert lines.read_messages() == [{"a": 1}]
    os.close(writing)
    assert (lines.read_messages(), lines.ended) == ([], True)


@pytest.mark.parametrize(
    "data",
    [
        7,
        [[0]],
        [[0, [[0]]]],
        [["x", []]],
        [[0, [["a", "b"]]]],
        [[0, 7]],
        {"a": 1},
        [[float("inf"), []]],
    ],
)
def test_slots_that_are_none_are_an_error(data):
    with pytest.raises(SelftestError, match="its slots cannot be read"):
        read_slots(data, 4)


def test_slots_with_a_host_twice_are_an_error():
    with pytest.raises(SelftestError, match="slot 3 has a host twice"):
        read_slots([[3, [[0, 1], [1, 2]]]], 4)


@pytest.mark.parametrize(
    "times",
    [
        b'"next": 0, "start": 1.5',
        b'"next": 0, "start": "1", "clock": 1.5',
        b'"next": 0, "start": NaN, "clock": 1.5',
        b'"next": 0, "start": 1.5, "clock": -Infinity',
        b'"next": 1e400, "start": 1.5, "clock": 1.5',
    ],
)
def test_times_that_are_none_are_an_error(pipe, times):
    lines, writing = pipe
    os.write(writing, b"{%b}\n" % times)
    with pytest.raises(SelftestError, match="a message without its times"):
        Member(mesh_of(4), "n0", AgentPlan(), b"", print, lines).run()
    os.close(writing)


def test_a_host_without_a_coordinator_sleeps_until_its_slot_however_long_that_is():
    """After IDLE_SECONDS, it would take a whole processor from the tests of its neighbours."""
    plan = mesh_of(4)
    member = Member(plan, "n0", AgentPlan(), b"", print)
    member._schedule.slots = tuple(enumerate(plan.slots))
    member._schedule.start = time.time() + 3 * IDLE_SECONDS
    assert member._due() > time.monotonic() + 2 * IDLE_SECONDS


def test_a_wait_may_be_longer_than_poll_can_wait(pipe):
    lines, writing = pipe
    os.write(writing, b"{}\n")
    assert wait_readable([lines], time.monotonic() + 1e10) == [lines]


@pytest.mark.parametrize("start", ["nan", "inf", "-inf", "1e400", "1e12", "-5", "now"])
def test_a_start_that_is_no_time_is_refused(capsys, start):
    with pytest.raises(SystemExit) as refused:
        mesh_parser().parse_args(["join", f"--start={start}", "plan.json"])
    assert refused.value.code == 2
    assert f'"{start}" is not a number of seconds from 0 to 1e+11' in capsys.readouterr().err


# --- A coordinator whose hosts are one program ---------------------------------------------------------------------------

# It reports as all hosts of a plan, of which n7 sends slowly and n13 cannot be reached, and first says what its argument says.
HOSTS = """
import json, sys, time
plan = json.loads(sys.stdin.readline())["plan"]
names = [host["name"] for host in plan["hosts"]]
def say(name, message):
    print(name + ": " + (message if isinstance(message, str) else json.dumps(message)), flush=True)
later = [line[2:] for line in json.loads(sys.argv[1]) if line.startswith("? ")]
for line in json.loads(sys.argv[1]):
    if line.startswith("? "):
        continue
    is_error = line.startswith(("clush: ", "! "))
    print(line.replace("! ", ""), flush=True, file=sys.stderr if is_error else sys.stdout)
for name in names:
    if name == "n13":
        print("clush: n13: exited with exit code 255", file=sys.stderr, flush=True)
    else:
        say(name, {"mesh": 1, "ready": name, "clock": time.time()})
def rate(name):
    return 1e8 if name == "n7" else 1e9
slots, diagnoses = [], False
for line in sys.stdin:
    message = json.loads(line)
    slots, diagnoses = message.get("slots", slots), message.get("diagnoses", diagnoses)
    if "next" in message:
        while later:
            print(later.pop(), file=sys.stderr, flush=True)
        number, pairs = slots[message["next"]]
        for client, server in pairs:
            row = {"mesh": 1, "slot": number, "client": names[client], "server": names[server]}
            if diagnoses:
                say(names[client], {**row, "diagnosis": ["why it is slow"]})
                continue
            row.update(rate_out=rate(names[client]), rate_back=rate(names[server]))
            say(names[client], row)
            say(names[client], {**row, "rate_out": 1})
"""


def coordinated(tmp_path, plan, said=()):
    told = []
    with results.open_results(tmp_path / "run.jsonl") as output:
        output.plan(plan)
        engine = Engine([sys.executable, "-c", HOSTS, json.dumps(list(said))])
        try:
            run = Coordinator(plan, engine, output, told.append)
            run.run(60.0)
        finally:
            engine.end()
    return run, told


def test_each_test_is_recorded_once_and_what_comes_later_is_ignored(tmp_path):
    plan = mesh_of(4)
    run, told = coordinated(tmp_path, plan)
    assert [row.rate_out for row in run.rows] == [1e9] * 6
    assert told == [
        "4 of 4 hosts are ready",
        *(f"slot {one} of 3: 2 of 2 tests succeeded" for one in (1, 2, 3)),
    ]
    assert results.read_results([tmp_path / "run.jsonl"]).rows == run.rows


def test_a_run_ends_with_the_diagnosis_of_what_the_retests_confirm(tmp_path):
    run, told = coordinated(tmp_path, mesh_of(12))
    (found,) = judge_mesh(run.plan, run.rows).findings
    assert (found.kind, found.names, found.state) == ("slow-egress", ("n7",), "confirmed")
    assert found.diagnosis == ("why it is slow",)
    assert told[-2:] == [
        "a full diagnosis of each confirmed fault",
        "slot 1 of 1: 1 of 1 tests succeeded",
    ]
    recorded = results.read_results([tmp_path / "run.jsonl"])
    assert (recorded.plan, recorded.rows) == (run.plan, run.rows)


def test_retests_are_announced_with_the_number_of_their_slots(tmp_path):
    _, told = coordinated(tmp_path, mesh_of(12))
    (line,) = [line for line in told if line.startswith("retests in ")]
    slots = line.split()[2]
    first, *_ = told[told.index(line) + 1 :]
    assert first.startswith(f"slot 1 of {slots}: ")


def test_a_run_without_one_of_its_hosts_is_complete_for_the_others_and_no_pass(tmp_path):
    """What is confirmed without it is diagnosed."""
    hosts = [MeshHost(f"n{number}", f"10.0.0.{number}") for number in (1, 2, 3, 13)]
    healthy = make_plan(MeshPlan(hosts, (), 1e9))
    run, _ = coordinated(tmp_path, healthy)
    assert (len(run.rows), plan_identity(run.plan)) == (3, plan_identity(healthy))
    recorded = results.read_results([tmp_path / "run.jsonl"])
    assert dict(recorded.reasons) == {"n13": "exited with exit code 255"}
    verdict = judge_mesh(recorded.plan, recorded.rows, recorded.reasons)
    assert (verdict.silent, verdict.untested, verdict.exit_code) == (("n13",), (), 6)
    (tmp_path / "run.jsonl").unlink()
    run, _ = coordinated(tmp_path, mesh_of(14))
    assert judge_mesh(run.plan, run.rows).findings[0].diagnosis == ("why it is slow",)


def test_ten_ready_hosts_of_many_are_tested_with_each_other(tmp_path):
    """The others are silent, each with its reason; nobody is silent because of its partners."""
    plan = mesh_of(66)
    gone = [f"n{number}" for number in range(10, 66)]
    said = [f"! {name}: ssh: connect to host {name} port 22: No route to host" for name in gone]
    said += [f"clush: {name}: exited with exit code 255" for name in gone]
    run, told = coordinated(tmp_path, plan, said=said)
    assert "10 of 66 hosts are ready" in told
    shown = [line for line in told if ": No route to host" in line or line.startswith("clush: ")]
    rest = "further errors are not shown; the report has the reason of each host"
    assert (len(shown), told.count(rest)) == (100, 1)
    verdict = judge_mesh(run.plan, run.rows, run.reasons)
    assert (len(verdict.silent), set(verdict.silent) - set(gone)) == (56, set())
    assert verdict.tested >= 40
    assert (
        verdict.reason_by_silent_host["n20"] == "ssh: connect to host n20 port 22: No route to host"
    )
    # n7 is slow: also among the ten.
    assert [one.names for one in verdict.confirmed] == [("n7",)]


def test_a_host_is_heard_for_itself_only(tmp_path):
    plan = mesh_of(4)
    client, server = (plan.hosts[one].name for one in plan.slots[0][0])
    other = next(host.name for host in plan.hosts if host.name not in (client, server))
    lie = json.dumps({"mesh": 1, "slot": 0, "client": client, "server": server, "rate_out": 1})
    said = [
        f"{other}: {lie}",
        f"nobody: {lie}",
        lie,
        f"{server}: {lie}",
        "n0: garbage",
        "n0: []",
        "",
    ]
    run, _ = coordinated(tmp_path, plan, said=said)
    assert [row.rate_out for row in run.rows] == [1e9] * 6


@pytest.mark.long  # a minute: the coordinator waits for the host to be ready
def test_a_host_that_says_too_much_is_not_heard_any_more(tmp_path):
    plan = mesh_of(3)
    flood = ["n0: x"] * 1000 + ["n0: " + "y" * 5000]
    # Nobody waits for it, and still it is not heard when it says that it is ready.
    run, told = coordinated(tmp_path, plan, said=[*flood, "clush: n0: exited with exit code 1"])
    assert {name for row in run.rows for name in (row.client, row.server)} == {"n1", "n2"}
    assert "1 host did not start and will not be tested: n0" in told


CLOCKS = (1e11, 10**400, "now", None, True, float("inf"), float("nan"))


@pytest.mark.parametrize("clock", CLOCKS, ids=lambda one: str(one)[:6])
def test_a_host_whose_clock_is_ahead_has_no_tests(tmp_path, clock):
    plan = mesh_of(3)
    said = [f"n0: {json.dumps({'mesh': 1, 'ready': 'n0', 'clock': clock})}"]
    _, told = coordinated(tmp_path, plan, said=said)
    assert "n0: its clock is ahead, so it is not tested" in told


@pytest.mark.parametrize(
    ("said", "reason"),
    [
        (["? clush: n2: exited with exit code 137"], "exited with exit code 137"),
        # The last one is written first.
        (
            ["? clush: n2: exited with exit code 255", "? n2: Connection reset by peer"],
            "Connection reset by peer",
        ),
    ],
)
def test_a_host_that_leaves_in_the_middle_has_its_reason(tmp_path, said, reason):
    run, _ = coordinated(tmp_path, mesh_of(4), said=said)
    assert run.reasons == {"n2": reason}
    assert results.read_results([tmp_path / "run.jsonl"]).reasons == run.reasons


STOPPED = """import os, signal
from neuca_tools.selftest.measure.mesh.coordinate import StoppedError, stopped_by_signals
try:
    with stopped_by_signals():
        os.kill(os.getpid(), signal.{name})
except StoppedError:
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        os.kill(os.getpid(), number)
    print("ended in peace")
"""


@pytest.mark.parametrize("name", ["SIGINT", "SIGTERM", "SIGHUP"])
def test_a_second_signal_does_not_cut_off_the_end_of_a_run(name):
    """`timeout` sends SIGTERM twice."""
    script = STOPPED.format(name=name)
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, b"ended in peace\n", b"")


def test_an_engine_that_is_not_installed_is_an_error():
    with pytest.raises(SelftestError) as refused:
        Engine(["/nowhere/clush"])
    assert refused.value.text == 'start "/nowhere/clush": No such file or directory'


# --- Files --------------------------------------------------------------------------------------------------------------


def test_a_line_that_was_cut_off_costs_one_test(tmp_path):
    plan, path = mesh_of(4), tmp_path / "run.jsonl"
    rows = rows_of(plan)
    with results.open_results(path) as output:
        output.plan(plan)
        for row in rows[:3]:
            output.row(row)
    path.write_bytes(path.read_bytes()[:-10])
    recorded = results.read_results([path])
    assert recorded.rows == tuple(sorted(rows[:2], key=lambda row: (row.slot, row.client)))


PLAN_FILE = json.dumps(plan_record(mesh_of(3)))  # what `mesh plan` prints


@pytest.mark.parametrize("text", ["some notes, and more", '{"level":"info"}\n', "\n", PLAN_FILE])
def test_a_file_of_something_else_is_left_as_it_is(tmp_path, text):
    path = tmp_path / "notes"
    path.write_text(text)
    with (
        pytest.raises(UsageError, match="it exists, and is not the output of a mesh"),
        results.open_results(path),
    ):
        pass
    assert path.read_text() == text


def test_a_run_may_write_to_a_device():
    with results.open_results(Path("/dev/null")) as output:
        output.plan(mesh_of(3))
    with pytest.raises(SelftestError, match="there is no plan"):
        results.read_results([Path("/dev/null")])


HOLDER = """from pathlib import Path
from neuca_tools.selftest.measure.mesh import results
with results.open_results(Path("{path}")):
    print("open", flush=True)
    input()
"""


def test_two_runs_do_not_write_one_file(tmp_path):
    path = tmp_path / "run.jsonl"
    script = HOLDER.format(path=path)
    holder = subprocess.Popen(
        [sys.executable, "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    try:
        assert holder.stdout.readline() == "open\n"
        with (
            pytest.raises(UsageError, match="another run is writing it"),
            results.open_results(path),
        ):
            pass
        assert results.stop_run(path)
        assert holder.wait(60) == -15
    finally:
        holder.kill()
        holder.communicate()
    assert not results.stop_run(path)


def test_files_of_two_plans_are_an_error(tmp_path):
    for name, count in (("a", 3), ("b", 4)):
        (tmp_path / name).write_text(json.dumps(plan_record(mesh_of(count))))
    with pytest.raises(SelftestError, match="it has two different plans"):
        results.read_results([tmp_path / "a", tmp_path / "b"])


def test_the_plan_with_its_retests_replaces_the_plan(tmp_path):
    plan = mesh_of(12)
    rows = rows_of(plan, lambda sender, _: 1e8 if sender == "n3" else 1e9)
    again = with_retests(plan, rows, find_suspects(plan, rows))
    path = tmp_path / "run.jsonl"
    lines = [{"plan": plan_record(plan)}, *map(row_record, rows), {"plan": plan_record(again)}]
    path.write_text("".join(json.dumps(one) + "\n" for one in lines))
    found = results.read_results([path])
    assert (found.plan, len(found.rows)) == (again, len(rows))


def run_of(tmp_path, plan, *words, script=f"exec {sys.executable} -c '{HOSTS}' '[]'"):
    """`mesh run` with an engine whose hosts are the program above: its exit code, and what it said."""
    engine = tmp_path / "clush"
    engine.write_text(f"#!/bin/sh\n{script}\n")
    engine.chmod(0o755)
    (tmp_path / "plan.json").write_text(json.dumps(plan_record(plan)))
    main = "from neuca_tools.commands.selftest import main; sys.exit(main(sys.argv[1:]))"
    command = [sys.executable, "-c", f"import sys; {main}"]
    words = ["mesh", "run", "--output", tmp_path / "run.jsonl", *words, tmp_path / "plan.json"]
    done = subprocess.run(
        [*command, *map(str, words)],
        env={**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"},
        capture_output=True,
        text=True,
        check=False,
    )
    return done.returncode, done.stdout, done.stderr


def test_all_hosts_are_started_at_a_time_however_many():
    """Hosts beyond clush's fan-out would start when others end, which they do with the run only."""
    hosts = tuple(MeshHost(f"n{one}", f"10.0.{one // 250}.{one % 250 + 1}") for one in range(4096))
    command = clush_command(MeshPlan(hosts, (), 1e9), ["-l", "root"], "join")
    assert command[-7:] == ["-f", "4096", "-O", "fd_max=16640", "-l", "root", "join"]
    assert command[:3] == ["clush", "-w", "n0"]


def test_the_same_output_again_is_a_new_run_and_never_the_old_answer(tmp_path):
    assert run_of(tmp_path, mesh_of(4))[0] == 0
    first = results.read_results([tmp_path / "run.jsonl"])
    code, out, _ = run_of(tmp_path, mesh_of(3))
    assert (code, "MESH pass: 3 of 3 tests" in out) == (0, True)
    second = results.read_results([tmp_path / "run.jsonl"])
    assert second.began > first.began


def test_a_run_that_is_stopped_exits_as_its_line_for_nagios_says(tmp_path):
    """The confirmed fault remains one. The engine stops the run when a diagnosis begins."""
    stopping = HOSTS.replace(
        "if diagnoses:", "if diagnoses:\n                import os; os.kill(os.getppid(), 2)"
    )
    script = f"exec {sys.executable} -c '{stopping}' '[]'"
    code, out, err = run_of(tmp_path, mesh_of(12), "--nagios", script=script)
    assert f'stopped; the results so far are in "{tmp_path}/run.jsonl"' in err
    assert (code, out.startswith("MESH CRITICAL - fault found")) == (2, True)


@pytest.mark.parametrize(
    ("form", "shown"), [((), "MESH pass: 6 of 6 tests"), (("--json",), '"verdict": "pass"')]
)
def test_a_page_that_cannot_be_written_does_not_cost_the_result(tmp_path, form, shown):
    code, out, err = run_of(tmp_path, mesh_of(4), *form, "--html", "/proc/x")
    assert (code, shown in out) == (1, True)
    assert err.endswith('neuca-selftest: write "/proc/x": No such file or directory\n')


COMPLAINS = f"{sys.executable} -c 'import sys; sys.stderr.write(\"! no host\\n\" * 100_000)'"


@pytest.mark.parametrize("script", ["echo ! no host >&2", f"{COMPLAINS}; cat >/dev/null"])
def test_the_most_hosts_with_the_longest_names_and_an_engine_that_fails(tmp_path, script):
    """One argument has 128 KiB at most. The plan fills a pipe, and so may the complaints."""
    hosts = [
        MeshHost(f"node{one:04}.{'x' * 54}", f"10.0.{one // 256}.{one % 256}")
        for one in range(MAX_HOSTS)
    ]
    plan = make_plan(MeshPlan(tuple(hosts), (), 1e9, rounds=1))
    code, _, err = run_of(tmp_path, plan, script=script)
    lines = err.splitlines()
    assert (code, lines[1], lines[-1]) == (
        1,
        "neuca-selftest: ! no host",
        "neuca-selftest: run the mesh: fewer than two hosts could be started",
    )


TAKER = """import sys
from pathlib import Path
from neuca_tools.selftest.measure.mesh import results
results.lock_plan(Path(sys.argv[1]), int(sys.argv[2]))
print("locked", flush=True)
input()
"""


def holder_of(path, place):
    """A process that has joined a mesh at this place of the plan."""
    holder = subprocess.Popen(
        [sys.executable, "-c", TAKER, path, str(place)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert holder.stdout.readline() == "locked\n"
    return holder


def test_a_host_that_joins_again_is_refused_until_the_one_of_an_interrupted_play_is_stopped(
    tmp_path,
):
    path = tmp_path / "plan.json"
    path.write_text("{}")
    with holder_of(path, 1) as holder:
        with pytest.raises(UsageError) as refused:
            results.lock_plan(path, 1)
        assert refused.value.text == f'join a mesh: another process has joined it with "{path}"'
        assert refused.value.hint == f'neuca-selftest mesh stop "{path}"'
        assert (results.stop_run(path), holder.wait(60), results.stop_run(path)) == (
            True,
            -15,
            False,
        )
    with holder_of(path, 1) as holder:
        holder.communicate("\n")


def test_a_holder_that_ends_by_itself_meanwhile_is_no_error(tmp_path, monkeypatch):
    """Between the question who has the lock and the signal."""
    path = tmp_path / "plan.json"
    path.write_text("{}")
    with holder_of(path, 1) as holder:

        def end_before_signal(process, _signal):
            assert process == holder.pid
            holder.communicate("\n")
            raise ProcessLookupError(errno.ESRCH, os.strerror(errno.ESRCH))

        monkeypatch.setattr(os, "kill", end_before_signal)
        results.stop_run(path)
    assert holder.returncode == 0


def test_a_file_system_without_locks_is_no_other_run(tmp_path, monkeypatch):
    def refuse(*_):
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    path = tmp_path / "plan.json"
    path.write_text("{}")
    monkeypatch.setattr(fcntl, "lockf", refuse)
    for attempt in (
        lambda: results.lock_plan(path, 1),
        lambda: next(results.open_results(path).gen),
    ):
        with pytest.raises(SelftestError) as raised:
            attempt()
        assert raised.value.text == f'lock "{path}": No locks available'


def test_hosts_that_share_the_file_of_a_plan_do_not_end_each_other(tmp_path):
    """As with Slurm on a shared directory; a lock over NFS is one for all hosts."""
    path = tmp_path / "plan.json"
    path.write_text("{}")
    holders = [holder_of(path, place) for place in (0, 1, 4095)]
    try:
        assert [holder.poll() for holder in holders] == [None] * 3
        assert results.stop_run(path)
        assert [holder.wait(60) for holder in holders] == [-15] * 3
        assert not results.stop_run(path)
    finally:
        for holder in holders:
            holder.kill()
            holder.communicate()


@pytest.mark.parametrize(
    ("own", "names", "known"),
    [
        ("c1.site.example", ("c1.site.example", "c2.site.example"), "c1.site.example"),
        ("c1.site.example", ("c1", "c2"), "c1"),
        # Neither name is in the plan, and one of its addresses is of this host.
        ("c1", ("c1.site.example", "c2.site.example"), "c1.site.example"),
        ("c1", ("172.16.0.1", "172.16.0.2"), "172.16.0.1"),
    ],
)
def test_a_host_knows_itself_by_its_name_with_dots_or_by_its_address(own, names, known):
    hosts = [MeshHost(name, f"10.0.0.{number}") for number, name in enumerate(names, 1)]
    plan = make_plan(MeshPlan(hosts, (), 1e9))
    own_names = [own, own.partition(".")[0]]
    assert own_host(plan, own_names, {ip_address("10.0.0.1")}).name == known
