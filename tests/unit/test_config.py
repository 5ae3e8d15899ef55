"""The agent's configuration file: defaults, every option, and what happens to values that cannot be used."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import os
import pty
import subprocess
import sys
from argparse import Namespace
from ipaddress import IPv4Address, ip_interface
from pathlib import Path

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from neuca_tools.commands.context import load_configuration
from neuca_tools.config import Config, load_config
from neuca_tools.config.options import OBSOLETE, OPTIONS
from neuca_tools.errors import ConfigError
from neuca_tools.model import LinkKey
from neuca_tools.model.clouds import CLOUDS

KNOWN = (
    "it must be one of auto, file:PATH, configdrive[=PATH], nocloud[=PATH],"
    f" {', '.join(cloud.usage for cloud in CLOUDS)}, lxd[=SOCKET], imds[=SOCKET], none"
)

MAC = "fe:16:3e:00:6d:af"


@pytest.fixture
def config(tmp_path):
    """A function that loads a configuration from texts: the file itself, then drop-ins by name."""

    def load_texts(text="", **drop_ins):
        (tmp_path / "config").write_text(text)
        (tmp_path / "config.d").mkdir(exist_ok=True)
        for name, content in drop_ins.items():
            (tmp_path / "config.d" / f"{name}.conf").write_text(content)
        return load_config(tmp_path / "config")

    return load_texts


def texts(config, path):
    return [f"{fault.severity}: {fault.text.replace(f'{path}/', '')}" for fault in config.faults]


def test_without_a_file_there_are_the_defaults(tmp_path):
    assert load_config(tmp_path / "nothing" / "config") == Config()


def test_the_defaults_are_those_of_1_7_where_it_had_the_option():
    assert Config() == Config(
        set_loopback_hostname=True,
        loopback_address=IPv4Address("127.255.255.1"),
        ignored_macs=frozenset(),
        state_directory=Path("/var/lib/neuca"),
        pid_directory=Path("/var/run"),
        pid_file="neucad.pid",
        command_timeout=300.0,
        udev_directory=Path("/etc/udev/rules.d"),
        udev_substring="neuca-persistent",
        data_udev_priority=10,
        mgmt_udev_priority=15,
        log_directory=Path("/var/log/neuca"),
        log_file="neuca-agent.log",
        log_level="DEBUG",
    )


def test_the_defaults_of_new_options():
    found = Config()
    assert (found.run_directory, found.hosts_file) == (Path("/run/neuca"), Path("/etc/hosts"))
    assert found.networkmanager_directory == Path("/etc/NetworkManager/conf.d")
    assert found.networkmanager_profiles == Path("/etc/NetworkManager/system-connections")
    assert (found.networkd_directory, found.sysctl_directory) == (
        Path("/etc/systemd/network"),
        Path("/etc/sysctl.d"),
    )
    assert (found.managers, found.drift, found.allow_default_route) == ("auto", "report", False)
    assert (found.sources, found.poll_interval, found.timeout) == (("auto",), 10.0, 10.0)


GOOD = [
    ("runtime", "set-loopback-hostname", "No", False),
    ("runtime", "loopback-address", "127.0.1.1", IPv4Address("127.0.1.1")),
    ("runtime", "state-directory", "/a b", Path("/a b")),
    ("runtime", "run-directory", "/r", Path("/r")),
    ("runtime", "pid-directory", "/p", Path("/p")),
    ("runtime", "pid-file", "x.pid", "x.pid"),
    ("runtime", "command-timeout", "5", 5.0),
    ("runtime", "hosts-file", "/h", Path("/h")),
    ("linux", "udev-directory", "/u", Path("/u")),
    ("linux", "udev-substring", "mine", "mine"),
    ("linux", "data-udev-priority", "0", 0),
    ("linux", "mgmt-udev-priority", "99", 99),
    ("linux", "networkmanager-directory", "/n", Path("/n")),
    ("linux", "networkmanager-profiles", "/q", Path("/q")),
    ("linux", "networkd-directory", "/d", Path("/d")),
    ("linux", "sysctl-directory", "/s", Path("/s")),
    ("linux", "managers", "None", "none"),
    ("linux", "dhcp-client", "dhcpcd", "dhcpcd"),
    ("linux", "dhcp-client", "/opt/sbin/dhcpcd", "/opt/sbin/dhcpcd"),
    ("linux", "dhcp-helper", "/srv/dhcp-helper", Path("/srv/dhcp-helper")),
    (
        "linux",
        "allow-sysctls",
        "net.ipv4.tcp_base_mss, NET/core/dev_weight",
        frozenset({"net/ipv4/tcp_base_mss", "net/core/dev_weight"}),
    ),
    ("logging", "log-directory", "/l", Path("/l")),
    ("logging", "log-file", "x.log", "x.log"),
    ("logging", "log-level", "info", "INFO"),
    ("metadata", "sources", "auto", ("auto",)),
    (
        "metadata",
        "sources",
        "file:/x/y, ec2=http://127.0.0.1:8080,ec2",
        ("file:/x/y", "ec2=http://127.0.0.1:8080", "ec2"),
    ),
    ("metadata", "platform", "Any", "any"),
    ("metadata", "poll-interval", "1", 1.0),
    ("metadata", "timeout", "0.5 s", 0.5),
    ("network", "drift", "enforce", "enforce"),
    ("network", "allow-default-route", "on", True),
    ("network", "policy-routing", "No", "no"),
    ("tuning", "profile", "many-peers, bdp,site_1", ("many-peers", "bdp", "site_1")),
    ("tuning", "profile", " , ", ("auto",)),
    ("metadata", "sources", ",", ("auto",)),
    ("tuning", "rate", "2.5 Gbit/s", 2500000000),
    ("tuning", "rtt", "50 ms", 0.05),
    ("tuning", "profile-directory", "/t", Path("/t")),
    ("guest", "hostname", "no", False),
    ("guest", "router", "off", False),
    ("guest", "users", "false", False),
    ("guest", "login", "debian", "debian"),
    ("guest", "storage", "no", False),
    ("guest", "scripts", "no", False),
    ("guest", "script-timeout", "60 s", 60.0),
]


@pytest.mark.parametrize(("section", "option", "value", "expected"), GOOD)
def test_an_option(config, section, option, value, expected):
    name, _ = OPTIONS[section, option]
    for written in (
        f"[{section}]\n{option} = {value}",
        f"[{section}]\n{option.upper()}={value} ; comment\n# comment",
    ):
        assert config(written) == Config()._replace(**{name: expected})


def test_every_option_is_tried_above():
    assert {(section, option) for section, option, _, _ in GOOD} == set(OPTIONS)
    assert {name for name, _ in OPTIONS.values()} <= {*Config._fields}


@pytest.mark.parametrize("option", sorted(OPTIONS))
def test_an_empty_value_is_the_default(config, option):
    assert config(f"[{option[0]}]\n{option[1]} =\n") == Config()


@pytest.mark.parametrize(
    ("section", "option", "value", "reason"),
    [
        (
            "runtime",
            "set-loopback-hostname",
            "maybe",
            '"maybe" is not "true", "yes", "on", "1", "false", "no", "off" or "0"',
        ),
        ("runtime", "loopback-address", "10.0.0.1", "it is not in 127.0.0.0/8"),
        ("runtime", "loopback-address", "::1", "it is not in 127.0.0.0/8"),
        ("runtime", "loopback-address", "x", '"x" is not an IP address'),
        ("runtime", "state-directory", "var/lib", "it is not an absolute path"),
        ("runtime", "hosts-file", "/a\x07", "it is not an absolute path"),
        ("runtime", "pid-file", "x/", "it is not the name of a file"),
        ("runtime", "pid-file", "\u201cx\u201d", "it has a quotation mark, markup or a comment"),
        ("runtime", "state-directory", "/a&nbsp;", "it has a quotation mark, markup or a comment"),
        ("runtime", "command-timeout", "0", "it is not a number of seconds from 1 to 86400"),
        ("runtime", "command-timeout", "inf", "it is not a number of seconds from 1 to 86400"),
        (
            "linux",
            "udev-substring",
            "../x",
            'it is not part of a file name: letters, digits, "_", "." and "-" only',
        ),
        ("linux", "data-udev-priority", "100", '"100" is not a number from 0 to 99'),
        ("linux", "mgmt-udev-priority", "x", '"x" is not a number from 0 to 99'),
        ("linux", "managers", "networkd", '"networkd" is not "auto" or "none"'),
        (
            "linux",
            "dhcp-client",
            "/bin/sh",
            '"/bin/sh" is not "auto", "none" or "dhcpcd", nor the path of dhcpcd',
        ),
        (
            "linux",
            "allow-sysctls",
            "net.core.dev_weight, kernel.hostname",
            'the sysctl key "kernel.hostname" is not below "net."',
        ),
        (
            "linux",
            "allow-sysctls",
            "net.ipv4.ip_forward",
            '"net/ipv4/ip_forward": it changes every interface; use router in [global]',
        ),
        (
            "linux",
            "allow-sysctls",
            "net.ipv4.conf.all.rp_filter",
            '"net/ipv4/conf/all/rp_filter": it would change "all", not this interface alone',
        ),
        (
            "linux",
            "allow-sysctls",
            "net.ipv4.conf.{interface}.rp_filter",
            '"net/ipv4/conf/{interface}/rp_filter": {interface} does not belong in it',
        ),
        (
            "logging",
            "log-level",
            "loud",
            '"loud" is not "debug", "info", "warning", "error" or "critical"',
        ),
        ("metadata", "platform", "ec2", '"ec2" is not "dmi" or "any"'),
        ("metadata", "poll-interval", "0.5", "it is not a number of seconds from 1 to 86400"),
        ("metadata", "timeout", "301", "it is not a number of seconds from 0.1 to 300"),
        ("metadata", "timeout", "nan", "it is not a number of seconds from 0.1 to 300"),
        ("network", "drift", "ignore", '"ignore" is not "report" or "enforce"'),
        (
            "tuning",
            "profile",
            "auto, ../x",
            '"../x" cannot be the name of a profile: letters, digits, "_" and "-" only',
        ),
        ("tuning", "rate", "10", '"10" is not a rate such as "10Gbit"'),
        ("tuning", "rate", "10 GB", '"10 GB" is not a rate such as "10Gbit"'),
        ("tuning", "rtt", "50", '"50" is not a round-trip time such as "50ms"'),
        ("tuning", "rtt", "0ms", '"0ms" is not a round-trip time such as "50ms"'),
    ],
)
def test_a_value_that_cannot_be_used_is_named_and_the_default_is_used(
    config, tmp_path, section, option, value, reason
):
    found = config(f"[{section}]\n{option} = {value}")
    shown = value.replace("\x07", "?")
    assert texts(found, tmp_path) == [
        f'error: config: [{section}] "{option}" = "{shown}": {reason}, using the default'
    ]
    assert found._replace(faults=()) == Config()
    assert not found.is_complete


@pytest.mark.parametrize(
    ("written", "kept", "reason"),
    [
        ("floppy", ("auto",), f'invalid source "floppy": {KNOWN}'),
        ("zip, ec2", ("ec2",), f'invalid source "zip": {KNOWN}'),
        (
            "file:/x, ec2=ftp://x",
            ("file:/x",),
            'invalid source "ec2=ftp://x": "ftp://x" is not http://ADDRESS[:PORT][/PATH]',
        ),
    ],
)
def test_a_source_that_cannot_be_used_costs_only_itself(config, tmp_path, written, kept, reason):
    found = config(f"[metadata]\nsources = {written}\n")
    assert found.sources == kept
    assert texts(found, tmp_path) == [
        f'error: config: [metadata] "sources" = "{written}": {reason}, ignoring this one'
    ]


@pytest.mark.parametrize(
    "written",
    [
        "fe163e006daf,FE:16:3E:00:6D:B0",
        " fe 16 3e 00 6d af ,, fe-16-3e-00-6d-b0, ",
        "fe163e006daf,\n  fe16.3e00.6db0",
    ],
)
def test_the_list_of_nics_to_ignore_in_every_notation(config, written):
    found = config(
        f"[runtime]\ndataplane-macs-to-ignore = {written}\n[network]\nmanagement-macs = {written}"
    )
    assert found.ignored_macs == found.management_macs == {MAC, "fe:16:3e:00:6d:b0"}
    assert found.is_complete


def test_a_bad_mac_does_not_make_the_list_shorter_unseen(config, tmp_path):
    found = config("[runtime]\ndataplane-macs-to-ignore = fe163e006daf, fe163e006dag, 0")
    assert found.ignored_macs == {MAC}
    start = (
        'error: config: [runtime] "dataplane-macs-to-ignore" = "fe163e006daf, fe163e006dag, 0": '
    )
    assert texts(found, tmp_path) == [
        f'{start}"fe163e006dag" is not a MAC address, ignoring this one',
        f'{start}"0" is not a MAC address, ignoring this one',
    ]


@pytest.mark.parametrize(("section", "option"), sorted(OBSOLETE))
def test_an_obsolete_option_is_accepted_with_any_value_and_a_note(
    config, tmp_path, section, option
):
    found = config(f"[{section}]\n{option} = anything")
    assert texts(found, tmp_path) == [
        f'note: config: [{section}] "{option}" = "anything": obsolete, it has no effect'
    ]
    assert (found._replace(faults=()), found.is_complete) == (Config(), True)


OLD = "[logging]\nlog-retain = 7\n"
NOTE = 'neuca: note: {}: [logging] "log-retain" = "7": obsolete, it has no effect\n'


def test_a_note_is_not_for_scripts(tmp_path, capsys):
    path = tmp_path / "config"
    path.write_text(OLD)
    arguments = Namespace(config=str(path))
    assert (load_configuration(arguments).is_complete, capsys.readouterr().err) == (True, "")
    load_configuration(arguments, notes=True)
    assert capsys.readouterr().err == NOTE.format(path)


def test_a_note_is_for_people(tmp_path):
    path = tmp_path / "config"
    path.write_text(OLD)
    master, slave = pty.openpty()
    program = "import sys; from neuca_tools.commands.neuca import main; main(sys.argv[1:])"
    words = [sys.executable, "-c", program, "get", "hostname", "--config", path]
    done = subprocess.run(words, stderr=slave, stdout=subprocess.PIPE, timeout=60, check=False)
    os.close(slave)
    said = os.read(master, 65536).decode().replace("\r\n", "\n")
    os.close(master)
    assert (NOTE.format(path) in said, b"note" in done.stdout) == (True, False)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            "[runtime]\nstate-dir = /x",
            'warning: config: [runtime] "state-dir" = "/x": unknown option, ignoring it; did you mean "state-directory"?',
        ),
        (
            "[runtime]\ncolour = red",
            'warning: config: [runtime] "colour" = "red": unknown option, ignoring it',
        ),
        (
            "[Runtime]\nx = 1",
            'warning: config: [Runtime]: unknown section, ignoring it; did you mean "runtime"?',
        ),
        ("[DEFAULT]\ntimeout = 1", "warning: config: [DEFAULT]: unknown section, ignoring it"),
        (
            "[runtime]\nword",
            'error: config: line 2 is neither a section nor "option = value", ignoring it',
        ),
        (
            "[runtime]\npid-file x",
            'error: config: line 2 is neither a section nor "option = value", ignoring it',
        ),
        (
            "x = 1\n[runtime]",
            'error: config: "x" = "1": it precedes the first section, ignoring it',
        ),
        (
            "[runtime]\n= 1",
            'error: config: line 2 is neither a section nor "option = value", ignoring it',
        ),
        (
            "[runtime] x = 1",
            "error: config: line 1 has text after a section header, ignoring the text",
        ),
        ("[]", 'error: config: line 1 is neither a section nor "option = value", ignoring it'),
        (
            "[interface x]\nmtu = 1",
            'error: config: [interface x]: "x" is not a MAC address, ignoring the section',
        ),
        (
            "[interface fe163e006daf]\nmtu = 9",
            'error: config: [interface fe163e006daf] "mtu" = "9": the MTU "9" is not a number from 68 to 65535',
        ),
    ],
)
def test_what_is_wrong_costs_only_itself(config, tmp_path, text, expected):
    found = config(f"{text}\n[network]\ndrift = enforce\n")
    assert texts(found, tmp_path) == [expected]
    assert found.drift == "enforce"
    assert found.is_complete == expected.startswith("warning")


def test_values_are_taken_as_they_are_written(config):
    found = config("[runtime]\npid-file = %(here)s\n[selftest]\nPeer = wan ; x\n")
    assert (found.pid_file, found.selftest) == ("%(here)s", {"peer": "wan"})


def test_a_comment_may_follow_a_section_header(config):
    found = config("[network] ; of the site\ndrift = enforce\n[runtime] # [old]\npid-file = x\n")
    assert (found.faults, found.drift, found.pid_file) == ((), "enforce", "x")


def test_the_sections_of_other_parts_are_kept_raw(config):
    found = config("[selftest]\ntarget = x\npeers = y")
    assert (found.selftest, found.faults) == ({"target": "x", "peers": "y"}, ())


def test_later_files_win_and_the_last_of_two_equal_options(config, tmp_path):
    (tmp_path / "config.d").mkdir()
    (tmp_path / "config.d" / "99-not-a-conf").write_text("[metadata]\ntimeout = 9")
    found = config(
        "[metadata]\ntimeout = 1\ntimeout = 2\npoll-interval = 2",
        **{"20-b": "[metadata]\ntimeout = 4", "10-a": "[metadata]\ntimeout = 3"},
    )
    assert (found.timeout, found.poll_interval, found.faults) == (4.0, 2.0, ())


def test_a_drop_in_counts_without_the_file_itself(tmp_path):
    (tmp_path / "config.d").mkdir()
    (tmp_path / "config.d" / "a.conf").write_text("[network]\ndrift = enforce")
    assert load_config(tmp_path / "config").drift == "enforce"


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"\xff", "it is not UTF-8 text"),
        (b"#" * 1048577, "it is longer than 1048576 bytes"),
        (None, "Is a directory"),
    ],
    ids=["rubbish", "long", "directory"],
)
def test_a_file_that_cannot_be_read_is_an_error(tmp_path, data, reason):
    path = tmp_path / "config"
    path.mkdir() if data is None else path.write_bytes(data)
    with pytest.raises(ConfigError) as caught:
        load_config(path)
    assert caught.value.text == f'cannot read the configuration file "{path}": {reason}'


def test_a_fifo_in_place_of_a_file_is_an_error_and_a_masked_file_is_empty(tmp_path):
    os.mkfifo(tmp_path / "config")
    (tmp_path / "null").symlink_to(os.devnull)
    assert load_config(tmp_path / "null").faults == ()
    with pytest.raises(ConfigError, match=r'file "\S+/config": it is not a regular file'):
        load_config(tmp_path / "config")


def test_a_directory_in_place_of_a_file_is_an_error_that_leaves_no_descriptor_open(tmp_path):
    """The daemon lives on, and loads it again with each reload."""
    before = [*Path("/proc/self/fd").iterdir()]
    with pytest.raises(ConfigError, match=r"Is a directory$"):
        load_config(tmp_path)
    assert [*Path("/proc/self/fd").iterdir()] == before


def test_line_ends_and_a_byte_order_mark_make_no_difference(tmp_path):
    (tmp_path / "config").write_bytes(b"\xef\xbb\xbf[network]\r\ndrift = enforce\r\n")
    assert load_config(tmp_path / "config") == Config(drift="enforce")


def test_links(config, tmp_path):
    found = config(
        f"[interface {MAC}]\nname = p2p1\nMTU = 1500\naddresses = 10.0.0.1/24,\n  fd00::1/64\n"
        "[vlan fe163e006daf.7]\nmtu = 9000\nsysctl.net.ipv4.conf.Data0.rp_filter = 2\n",
        late="[interface FE163E006DAF]\nmtu = 9000\n",
    )
    nic, vlan = found.links
    assert found.faults == ()
    assert (nic.key, nic.state, nic.name, nic.mtu) == (LinkKey(MAC), None, "p2p1", 9000)
    assert nic.addresses == (ip_interface("10.0.0.1/24"), ip_interface("fd00::1/64"))
    assert (vlan.key, vlan.state, vlan.sysctls) == (
        LinkKey(MAC, 7),
        None,
        (("net/ipv4/conf/Data0/rp_filter", "2"),),
    )
    (origin,) = [origin for origin in nic.origins if origin.setting == "mtu"]
    assert origin.where == f"{tmp_path}/config.d/late.conf, [interface FE163E006DAF]"
    assert origin.overrode == f"1500 from {tmp_path}/config, [interface {MAC}]"


def test_a_vlan_lists_its_parent(config):
    assert [str(link.key) for link in config("[vlan fe163e006daf.7]\nname = x").links] == [
        MAC,
        f"{MAC}.7",
    ]


def test_faults_of_links_name_the_file_that_they_are_in(config, tmp_path):
    found = config(
        f"[interface {MAC}]\nname = x\naddresses = fd00::1/64\n",
        late=f"[interface {MAC}]\nmtu = 1000\n[interface fe163e006db0]\nname = x\nmtu = 9000\nstate = user\n",
    )
    late = "config.d/late.conf: [interface"
    assert texts(found, tmp_path) == [
        f'error: {late} {MAC}] "mtu" = "1000": an MTU below 1280 cannot carry the IPv6 addresses of this link',
        f'warning: {late} fe163e006db0] "mtu" = "9000": the state is "user", ignoring mtu',
        f'error: {late} fe163e006db0] "name" = "x": the name "x" is requested for {MAC} too',
    ]


@pytest.mark.parametrize(
    "key", [f"net.core.{'x' * 200}", "net.ipv6.conf.{interface}.stable_secret"]
)
def test_a_fault_about_a_key_that_cannot_be_shown_has_its_file_too(config, tmp_path, key):
    found = config(f"[interface {MAC}]\nstate = user\nsysctl.{key} = 1\n")
    assert [fault.file for fault in found.faults] == [f"{tmp_path}/config"]


def test_a_state_that_cannot_be_read_costs_the_link(config):
    assert config(f"[interface {MAC}]\nstate = dwon\nmtu = 9000").links == ()


def test_where_the_pid_and_the_log_are(config):
    found = config("[runtime]\npid-directory = /p\n[logging]\nlog-file = /elsewhere/x.log")
    assert (found.pid_path, found.log_path) == (Path("/p/neucad.pid"), Path("/elsewhere/x.log"))


PIECES = [
    "[runtime]",
    "[interface fe163e006daf]",
    "[",
    "]",
    "=",
    ";",
    " ;",
    "#",
    "\n",
    "\t",
    "timeout",
    "mtu",
    "9",
    "[]",
    "%",
    "\r",
]
anything = st.lists(st.one_of(st.sampled_from(PIECES), st.text(max_size=4)), max_size=50).map(
    "".join
)


@settings(
    max_examples=300, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(anything)
@example("[runtime]\n = 1\n")
@example("[runtime]\n  x\n a = \n  b\n")
@example("[a]\n\x1c[b\n")
@example("\u3000[a]\n")
def test_no_text_raises(tmp_path, text):
    path = tmp_path / "config"
    path.write_bytes(text.encode("utf-8", "replace"))
    assert all(fault.text.isprintable() for fault in load_config(path).faults)


def test_an_empty_value_of_a_later_file_selects_the_default_of_a_link_too(config):
    found = config(
        "[interface fe163e006daf]\nmtu = 9000\ntxqueuelen = 5\n"
        "sysctl.net.ipv4.conf.{interface}.rp_filter = 2\n",
        site="[interface fe:16:3e:00:6d:af]\nMTU =\nsysctl.net/ipv4/conf/{interface}/rp_filter =\n",
    )
    (link,) = found.links
    assert (link.mtu, link.txqueuelen, link.sysctls, found.faults) == (None, 5, (), ())


# A section, an unusable line of it in one file, and the line of a later file that sets the same.
CORRECTED = [
    ("[bond bond0]\nmembers = 020000000002\n", "mode = x\n", "mode = active-backup\n"),
    ("[interface 020000000002]\n", "gateway = x\n", "gateway = 10.0.0.1\n"),
    ("[interface 020000000002]\n", "state = x\n", "state = up\n"),
]


@pytest.mark.parametrize(("section", "wrong", "right"), CORRECTED)
def test_an_unusable_line_does_no_harm_once_a_later_file_sets_the_same(
    tmp_path, section, wrong, right
):
    path, later = tmp_path / "config", tmp_path / "config.d" / "a.conf"
    later.parent.mkdir()
    later.write_text(f"{section.splitlines()[0]}\n{right}")
    path.write_text(section)
    expected = load_config(path)
    path.write_text(section + wrong)
    corrected = load_config(path)
    assert (len(corrected.faults), corrected.links) == (1, expected.links)
    later.unlink()
    assert load_config(path).links != expected.links
