"""The systemd units: their order in a boot, their limits in time, and a sandbox whose every opening has a reason."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import fnmatch
import json
import re
import shlex
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest
from packages import INSTALL, ROOT, run

from neuca_tools.backends import namespace, udev
from neuca_tools.backends.dhcpclients import PLACE
from neuca_tools.commands.collect import PROGRAMS, UNITS
from neuca_tools.commands.drive import NOT_USED
from neuca_tools.config import Config
from neuca_tools.desired import marks
from neuca_tools.errors import EXIT_DEGRADED, EXIT_FAILED, EXIT_INVALID, EXIT_PENDING
from neuca_tools.guest import outcome
from neuca_tools.guest.run import RETRY_SECONDS
from neuca_tools.model import volumes

AGENT, NAMES, KEYS = "neuca-guest-tools.service", "neuca-names.service", "neuca-host-keys.service"
GUEST, WATCH = "neuca-guest.service", "neuca-guest.path"
# "systemd-analyze security" counts these against a service; the rest is closed.
OPEN = {
    "CapabilityBoundingSet_CAP_NET_BIND_SERVICE_BROADCAST_RAW)": (
        "the self-test pings; requests for metadata are bound to a device"
    ),
    "CapabilityBoundingSet_CAP_NET_ADMIN": "links, addresses, routes and sysctls are its work",
    "CapabilityBoundingSet_CAP_KILL": "iperf3, which runs as nobody, is ended when its time is over",
    "CapabilityBoundingSet_CAP_SET_UID_GID_PCAP": "iperf3 runs as nobody",
    "DeviceAllow": "PrivateDevices=yes closes it; ProtectClock=yes adds the clock, to be read",
    "IPAddressDeny": "the configuration may put the metadata service anywhere",
    "PrivateNetwork": "the host's network is its work",
    "PrivateUsers": "a capability over the host's network is worth nothing in a user namespace",
    "ProcSubset": "sysctls are below /proc/sys",
    "ProtectHome": "a document may be there (file:/root/…), and is only read",
    "ProtectKernelTunables": "/proc/sys/net is written; the rest of it is read-only, by its paths",
    "RestrictAddressFamilies_AF_INET_INET6": "the metadata service",
    "RestrictAddressFamilies_AF_NETLINK": "links",
    "RestrictAddressFamilies_AF_PACKET": "the self-test asks who answers ARP for the peer's address",
    "RestrictAddressFamilies_AF_UNIX": "the journal, D-Bus, sd_notify",
    "RootDirectoryOrRootImage": "the host's /etc is written",
    "SystemCallFilter_privileged": "iperf3 gives up root: setresuid(2)",
    "UMask": "what is written is for other programs to read; secrets have a mode of their own",
    "UserOrDynamicUser": "files that belong to root are written",
}
# Measured with systemd 252. nm-cloud-setup's unit, opened for the same work (CAP_NET_ADMIN, no PrivateUsers=,
# ProtectKernelTunables= or ProtectHome=yes), has 2.5.
DRIVE = "neuca-drive@.service"
DHCP = "neuca-dhcp@.service"
SELFTEST, TIMER = "neuca-selftest.service", "neuca-selftest.timer"
MACS = [f"fe:16:3e:00:00:0{number}" for number in (1, 2, 3)]
METRICS, MINUTELY = "neuca-metrics.service", "neuca-metrics.timer"
FIGURES = {
    AGENT: 2.2,
    NAMES: 1.9,
    KEYS: 0.8,
    SELFTEST: 2.6,
    METRICS: 1.7,
}  # 2.2, with iperf3 as root


def _unit(name: str) -> Mapping[str, list[str]]:
    """Each setting with its words, those of repeated lines after one another."""
    found: dict[str, list[str]] = {}
    for line in (ROOT / "systemd" / name).read_text().splitlines():
        key, equals, value = line.partition("=")
        if equals and not line.startswith("#"):
            found.setdefault(key, []).extend(value.split())
    return found


def _condition(name: str, places: Mapping[str, Path]) -> int:
    """The exit code of ExecCondition=, with other places in the place of these."""
    (command,) = re.findall("^ExecCondition=(.*)", (ROOT / "systemd" / name).read_text(), re.M)
    for place, other in places.items():
        assert place in command
        command = command.replace(place, str(other))
    return subprocess.run(shlex.split(command), timeout=60, check=False).returncode


def _security(name: str, *options: str) -> str:
    return run(
        "systemd-analyze",
        "security",
        "--no-pager",
        "--offline=true",
        *options,
        ROOT / "systemd" / name,
    ).stdout


@pytest.mark.parametrize("name", FIGURES)
def test_the_exposure_is_no_greater_than_it_was(name):
    figure = re.search(r"Overall exposure level for \S+: ([\d.]+)", _security(name))
    assert float(figure[1]) <= FIGURES[name]


@pytest.mark.parametrize("name", FIGURES)
def test_every_opening_of_the_sandbox_has_a_reason(name):
    rows = json.loads(_security(name, "--json=short"))
    assert {row["json_field"] for row in rows if float(row["exposure"] or 0)} - OPEN.keys() == set()


@pytest.mark.parametrize("name", [AGENT, NAMES, METRICS, SELFTEST])
def test_the_kernel_shows_its_memory_to_none_of_them(name):
    """No mount has to hide these files: they want capabilities that the units do not have."""
    capabilities = [word[4:].lower() for word in _unit(name)["CapabilityBoundingSet"]]
    bounded = ["setpriv", f"--bounding-set={','.join(['-all', *(f'+{c}' for c in capabilities)])}"]
    nobody = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"]
    symbols = ["cat", "/proc/kallsyms"]
    assert run(*bounded, *symbols).stdout == run(*nobody, *symbols).stdout
    # A kernel may have none (CONFIG_PROC_KCORE).
    memory = subprocess.run(
        [*bounded, "head", "-c1", "/proc/kcore"], capture_output=True, check=False
    )
    assert memory.returncode == 1


@pytest.mark.parametrize("name", [AGENT, NAMES])
def test_what_the_agent_writes_is_open_and_nothing_else(name):
    unit, config = _unit(name), Config()
    places = {
        config.udev_directory,
        config.networkmanager_directory,
        config.networkmanager_profiles,
        config.networkd_directory,
        config.sysctl_directory,
    }
    devices = {"-/sys/devices"} if name == AGENT else set()  # CPUs of queues
    writable = {
        *(f"-{place}" for place in places),
        "/proc/sys/net",
        str(config.run_directory),
        *devices,
    }
    assert set(unit["ReadWritePaths"]) == writable
    assert {"/run", "/proc"} <= set(unit["ReadOnlyPaths"])
    assert [f"/var/lib/{unit['StateDirectory'][0]}", f"/run/{unit['RuntimeDirectory'][0]}"] == [
        str(config.state_directory),
        str(config.run_directory),
    ]
    assert unit["RuntimeDirectoryPreserve"] == ["yes"]
    assert unit["ProtectSystem"] == ["strict"]


def test_the_agent_is_ready_before_network_online_and_does_not_wait_for_it():
    unit = _unit(AGENT)
    assert unit["Before"] == ["network-online.target"]
    agents = ["lxd-agent.service", "incus-agent.service"]
    assert unit["After"] == [NAMES, "network-pre.target", *agents]
    assert not {"Wants", "Requires", "BindsTo", "Requisite"} & unit.keys()


def test_the_agent_says_when_it_is_ready_and_that_it_lives():
    unit = _unit(AGENT)
    assert (unit["Type"], unit["WatchdogSec"], unit["Restart"]) == (
        ["notify"],
        ["3min"],
        ["on-failure"],
    )
    assert 0 < int(unit["TimeoutStartSec"][0]) <= 90
    # At least the 10 s that the agent gives a pass under way, which the signal must not reach.
    assert int(unit["TimeoutStopSec"][0]) > 10
    assert unit["KillMode"] == ["mixed"]


def test_units_run_only_programs_that_every_system_has():
    """Debian's essential packages have no /bin/kill, which is in procps."""
    texts = (path.read_text() for path in (ROOT / "systemd").glob("*.service"))
    programs = {
        program
        for text in texts
        for program in re.findall(r"^Exec\w+=[-+!@:]*(\S+)", text, re.MULTILINE)
    }
    others = {one for one in programs if not re.fullmatch(r"/usr/(bin|libexec)/neuca\S*", one)}
    assert others == {"/bin/sh", "/bin/grep", "/usr/bin/ssh-keygen"}


def test_a_reload_signals_the_agent():
    (line,) = re.findall("^ExecReload=(.*)$", (ROOT / "systemd" / AGENT).read_text(), re.MULTILINE)
    # Where nohup runs the tests, the signal is ignored in every child.
    waits = "import signal; signal.signal(signal.SIGHUP, signal.SIG_DFL); print(flush=True); signal.pause()"
    with subprocess.Popen((sys.executable, "-c", waits), stdout=subprocess.PIPE) as agent:
        agent.stdout.readline()
        environment = {"MAINPID": str(agent.pid), "PATH": ""}
        subprocess.run(shlex.split(line), env=environment, check=True)
        assert agent.wait() == -signal.SIGHUP


def test_names_are_given_before_anybody_configures_a_nic():
    unit = _unit(NAMES)
    managers = {
        "NetworkManager.service",
        "systemd-networkd.service",
        "networking.service",
        "cloud-init-local.service",
    }
    assert managers | {"network-pre.target"} <= set(unit["Before"])
    drivers = {
        "systemd-modules-load.service",
        "systemd-udevd.service",
        "systemd-udev-trigger.service",
    }
    assert drivers | {"local-fs.target"} <= set(unit["After"])
    assert unit["Wants"] == ["network-pre.target"], (
        "a passive target: who is to be before it pulls it in"
    )
    assert unit["DefaultDependencies"] == ["no"]
    assert int(unit["Nice"][0]) < 0, (
        "the network waits for it, and nothing else that starts now does"
    )


def test_names_are_given_once_in_a_boot_and_never_stop_it():
    unit = _unit(NAMES)
    assert (unit["Type"], unit["RemainAfterExit"]) == (["oneshot"], ["yes"])
    assert 0 < int(unit["TimeoutStartSec"][0]) <= 300
    assert "RequiredBy" not in unit


def test_host_keys_are_made_where_there_is_a_server_without_any_and_by_nobody_else():
    unit = _unit(KEYS)
    assert unit["ConditionPathExistsGlob"] == ["!/etc/ssh/ssh_host_*_key"]
    assert unit["ConditionFileIsExecutable"] == ["/usr/sbin/sshd"]
    assert unit["Before"] == ["ssh.service", "sshd.service"]
    assert {"cloud-init.service", "sshd-keygen.target"} <= set(unit["After"])
    assert unit["ReadWritePaths"] == ["-/etc/ssh"]


def test_systemd_understands_every_line(own_root, deb):
    units = f"{AGENT} {NAMES} {KEYS} {WATCH} {SELFTEST} {TIMER} {METRICS} {MINUTELY} {DHCP}"
    said = own_root(
        INSTALL + f"systemd-analyze verify --man=yes {units} 2>&1 | grep neuca || true\n", deb
    )
    assert said == ""


# --- the host itself ---


def test_the_guest_service_starts_after_a_pass_and_no_boot_waits_for_it():
    unit, watch = _unit(GUEST), _unit(WATCH)
    assert watch["PathExists"] == [str(Config().run_directory / outcome.DUE)]
    assert watch["Before"] == [AGENT]
    assert unit["After"] == [AGENT, "nss-user-lookup.target"]
    assert watch["WantedBy"] == ["multi-user.target"]
    assert (unit["Type"], unit["ExecStart"]) == (["exec"], ["/usr/bin/neucad", "--guest"])
    assert not {"WantedBy", "Before", "RequiredBy"} & unit.keys()


def test_a_run_that_fails_at_once_is_not_started_again_at_once():
    unit = _unit(GUEST)
    assert unit["ExecStartPre"][-4:] == [
        "mv",
        "-f",
        *_unit(WATCH)["PathExists"],
        f"{Config().run_directory / outcome.BEGUN}'",
    ]
    assert (unit["Restart"], [float(word) for word in unit["RestartSec"]]) == (
        ["on-failure"],
        [RETRY_SECONDS],
    )


# --- the self-test ---


def test_the_self_test_holds_up_no_boot_and_runs_where_somebody_is_to_be_tested():
    unit, timer = _unit(SELFTEST), _unit(TIMER)
    assert unit["After"] == [AGENT]
    assert not {"Before", "Wants", "Requires", "BindsTo", "WantedBy", "RequiredBy"} & unit.keys()
    assert (unit["Nice"], unit["IOSchedulingClass"], unit["StateDirectory"]) == (
        ["10"],
        ["idle"],
        ["neuca"],
    )
    assert unit["ExecStart"] == ["/usr/bin/neuca-selftest", "--at-boot"]
    assert (timer["OnActiveSec"], timer["RandomizedDelaySec"]) == (["30"], ["60"])
    assert (timer["After"], timer["WantedBy"]) == (["multi-user.target"], ["multi-user.target"])
    assert timer["DefaultDependencies"] == ["no"], (
        "it would come before timers.target, and that before multi-user.target"
    )


def test_the_self_test_sees_the_sysctls_as_the_agent_does():
    """Where they are read-only, they cannot be tuned: nothing would be as planned."""
    unit, agent, metrics = _unit(SELFTEST), _unit(AGENT), _unit(METRICS)
    assert "ProtectKernelTunables" not in {*unit, *agent, *metrics}
    assert unit["ReadWritePaths"] == ["/proc/sys/net"]
    assert set(unit["ReadOnlyPaths"]) | {"/run"} == set(metrics["ReadOnlyPaths"])
    assert set(agent["ReadOnlyPaths"]) == {"/run", "/proc", "/sys"}
    assert {"/proc/sys", "/sys"} <= set(unit["ReadOnlyPaths"])


@pytest.mark.parametrize(
    ("text", "code"),
    [("peers = 172.16.0.2", 0), ("  peers=x", 0), (";peers = x", 2), ("# peers", 2)],
)
def test_the_condition_of_the_self_test_is_a_line_with_peers(tmp_path, text, code):
    (tmp_path / "config").write_text(f"[selftest]\n{text}\n")
    assert _condition(SELFTEST, {"/etc/neuca": tmp_path}) == code


# --- the services of Amazon ---


@pytest.mark.parametrize(
    ("nics", "address", "code"),
    [
        (MACS[:2], MACS[1], 1),
        (MACS[:2], MACS[2], 0),
        ([], MACS[0], 0),
        (MACS[:1], None, 0),
    ],
    ids=["dataplane", "management", "no document", "no NIC"],
)
def test_the_services_of_amazon_skip_nics_that_networkd_is_kept_away_from(
    tmp_path, nics, address, code
):
    for name, content in marks.networkd_files(nics, []).items():
        (tmp_path / name).write_bytes(content)
    if address:
        (tmp_path / "address").write_text(f"{address}\n")
    places = {"/sys/class/net/%i": tmp_path, "/etc/systemd/network": tmp_path}
    assert _condition("neuca-policy-routes.conf", places) == code


# --- the removal of a package ---


def test_a_removal_stops_every_unit():
    """Debhelper stops those that it starts; host keys that are being made are finished."""
    paths = (ROOT / "systemd").glob("neuca-*.*")
    units = {path.name for path in paths if path.suffix in (".service", ".path", ".timer")}
    single = {name for name in units if "@" not in name}
    prerm = (ROOT / "packaging" / "debian" / "prerm").read_text()
    assert single - set(re.split(r"\s", prerm)) == {AGENT, WATCH, KEYS}
    spec = (ROOT / "packaging" / "rpm" / "neuca-guest-tools.spec").read_text()
    assert set(re.search(r"^%systemd_preun (.*)$", spec, re.MULTILINE)[1].split()) == single


# --- what a report of a bug contains ---


def test_the_logs_of_every_service_are_collected_and_not_those_of_scripts():
    services = {path.stem for path in (ROOT / "systemd").glob("*.service")}
    assert set(UNITS) == {name.replace("@", "@*") for name in services}
    assert f"--unit={NAMES.partition('.')[0]}" in PROGRAMS["journal.txt"]


# --- the metrics ---


def test_metrics_are_written_where_the_node_exporter_looks_and_nowhere_else():
    unit, timer = _unit(METRICS), _unit(MINUTELY)
    (place,) = unit["ConditionPathIsDirectory"]
    assert unit["Environment"] == [f"NEUCA_METRICS={place}/neuca.prom"]
    assert unit["ExecStart"] == [
        *("/usr/bin/neuca", "status", "--quiet"),
        "--prometheus=${NEUCA_METRICS}",
    ]
    assert (unit["ReadWritePaths"], unit["CapabilityBoundingSet"]) == (
        [f"-{place}", "/proc/sys/net"],
        [],
    )
    states = {EXIT_FAILED, EXIT_PENDING, EXIT_DEGRADED, EXIT_INVALID}
    assert set(map(int, unit["SuccessExitStatus"])) == states
    assert not {"WantedBy", "Before", "RequiredBy"} & unit.keys()
    assert timer["WantedBy"] == ["timers.target"]
    assert float(unit["TimeoutStartSec"][0]) < float(timer["OnUnitActiveSec"][0])


# --- the DHCP clients ---


def test_a_dhcp_client_outlives_the_agent_and_cannot_set_the_host_name():
    unit, place = _unit(DHCP), str(Config().run_directory / PLACE)
    helper, request = str(Config().dhcp_helper), f"{place}/%i.json"
    assert unit["ConditionPathExists"] == [request]
    assert (unit["ExecStart"], unit["ExecStop"]) == (
        [helper, "run", request],
        [helper, "stop", request],
    )
    assert (unit["Restart"], unit["ProtectHostname"]) == (["always"], ["yes"])
    assert {"PartOf", "BindsTo", "Requires", "Install"} & unit.keys() == set()
    assert "CAP_SYS_ADMIN" not in unit["CapabilityBoundingSet"]
    figure = re.search(r"Overall exposure level for \S+: ([\d.]+)", _security(DHCP))
    assert float(figure[1]) <= 4.6


# --- the drives ---


def test_drives_are_read_ahead_by_a_unit_that_may_mount_and_little_else():
    unit = _unit(DRIVE)
    assert {AGENT, NAMES} <= set(unit["Before"])
    assert unit["ExecStart"] == ["/usr/bin/neuca", "read-drive", "/dev/%i"]
    assert unit["CapabilityBoundingSet"] == ["CAP_SYS_ADMIN", "CAP_DAC_READ_SEARCH"]
    assert (unit["PrivateNetwork"], unit["PrivateMounts"]) == (["yes"], ["yes"])
    figure = re.search(r"Overall exposure level for \S+: ([\d.]+)", _security(DRIVE))
    assert float(figure[1]) <= 2.3


def test_a_drive_is_judged_by_the_record_and_a_refused_one_is_not_retried():
    unit = _unit(DRIVE)
    assert unit["RequiresMountsFor"] == [str(Config().state_directory)]
    assert unit["SuccessExitStatus"] == [str(NOT_USED)]


RULE = (ROOT / "systemd" / "90-neuca-drives.rules").read_text()


def _rule(words: str) -> list[str]:
    """The alternatives of the one match in the rules that begins with these words."""
    (found,) = re.findall(rf'{re.escape(words)}"([^"]*)"', RULE)
    return found.split("|")


def test_udev_starts_it_for_the_labels_that_clouds_give():
    assert _rule("ENV{ID_FS_LABEL}!=") == ["config-2", "CONFIG-2", "cidata", "CIDATA"]
    assert {label.lower() for label in _rule("ENV{ID_FS_LABEL}!=")} == udev.VOLUME_LABELS
    assert set(_rule("ENV{ID_FS_TYPE}!=")) == set(namespace.FILE_SYSTEMS)
    assert 'ENV{SYSTEMD_WANTS}+="neuca-drive@%k.service"' in RULE
    assert f'TAG+="{udev.VOLUME_TAG}"' in RULE


def test_udev_starts_it_for_the_devices_that_the_program_would_take():
    trusted, refused = re.findall(r'^SUBSYSTEMS=="([^"]*)", ([^\n]*)', RULE, re.MULTILINE)[::-1]
    assert set(trusted[0].split("|")) == volumes.TRUSTED_BUSES | {"nvme-subsystem"}
    assert trusted[1] == "\\"  # the line with SYSTEMD_WANTS follows
    assert set(refused[0].split("|")) == volumes.REFUSED_BUSES.keys()
    assert refused[1] == 'GOTO="neuca_drives_end"'
    names = [pattern for pattern, _ in volumes.REFUSED_NAMES]
    for name in ("loop0", "dm-1", "nbd2", "rbd3", "drbd4"):
        assert any(pattern.fullmatch(name) for pattern in names)
        assert any(fnmatch.fnmatch(name, one) for one in _rule("\nKERNELS=="))


def test_the_rule_that_refuses_devices_precedes_the_one_that_starts_the_unit():
    order = [
        RULE.index(words)
        for words in (
            "TAG+=",
            "\nKERNELS==",
            '\nSUBSYSTEMS=="usb',
            "\nATTRS{",
            "SYSTEMD_WANTS",
            "\nLABEL=",
        )
    ]
    assert order == sorted(order)
