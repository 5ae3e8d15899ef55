"""The host name, the router word, routes, users, scripts and storage of a document."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

from ipaddress import ip_address, ip_network

import pytest

from neuca_tools.commands.data import _section_json
from neuca_tools.documents import parse
from neuca_tools.model import RouteRequest
from neuca_tools.model.rows import Storage, User

SECRET = "AAAAcanary"


def reasons(document):
    return [fault.reason for fault in document.faults]


@pytest.mark.parametrize(
    ("written", "name"),
    [
        ("Node0", "Node0"),
        ("NodeGroup0/1", "NodeGroup0-1"),
        ("a.example.org", "a.example.org"),
        ("0", "0"),
        ("x" * 63, "x" * 63),
        ("Not Specified", None),
        ("a_b.c.", "a_b.c"),
    ],
)
def test_a_host_name(written, name):
    document = parse(f"[global]\nhost_name = {written}")
    assert (document.hostname, document.faults) == (name, ())


NO_HOST_NAME = 'is not a host name: letters, digits, "-" and "_" only, in labels of 1 to 63'


@pytest.mark.parametrize(
    ("written", "reason"),
    [
        ("a b", f'"a b" {NO_HOST_NAME}'),
        ("-a", f'"-a" {NO_HOST_NAME}'),
        ("a/", f'"a-" {NO_HOST_NAME}'),
        ("a..b", f'"a..b" {NO_HOST_NAME}'),
        ("nöde", f'"nöde" {NO_HOST_NAME}'),
        ("x" * 64, f'"{"x" * 64}" {NO_HOST_NAME}'),
        ("x." * 32 + "x", f'"{"x." * 32}x" is longer than the 64 bytes of a host name'),
    ],
)
def test_what_is_no_host_name(written, reason):
    document = parse(f"[global]\nhost_name = {written}")
    assert (document.hostname, reasons(document)) == (None, [reason])


@pytest.mark.parametrize(
    ("written", "word"), [("true", "true"), ("FALSE", "false"), ("User", "user"), ("", "user")]
)
def test_the_router_word(written, word):
    document = parse(f"[global]\nrouter = {written}")
    assert (document.router, document.faults) == (word, ())


def test_another_router_word_leaves_forwarding_to_the_user():
    document = parse("[global]\nrouter = yes")
    assert (document.router, reasons(document)) == (
        "user",
        ['"yes" is not "true", "false" or "user"'],
    )


@pytest.mark.parametrize(
    ("line", "to", "state", "via"),
    [
        ("10.20.0.0/16 = 172.16.0.254", "10.20.0.0/16", "present", "172.16.0.254"),
        ("10.20.0.5 = 172.16.0.254", "10.20.0.5/32", "present", "172.16.0.254"),
        ("2001:db8::/32 = fe80::1", "2001:db8::/32", "present", "fe80::1"),
        ("2001:DB8:0:0::5 = FD00::1", "2001:db8::5/128", "present", "fd00::1"),
        ("0.0.0.0/0 = 172.16.0.254", "0.0.0.0/0", "present", "172.16.0.254"),
        ("10.20.0.0/16 = DOWN", "10.20.0.0/16", "absent", None),
        ("10.20.0.0/16 = user ; x", "10.20.0.0/16", "user", None),
    ],
)
def test_a_route(line, to, state, via):
    document = parse(f"[routes]\n{line}")
    expected = RouteRequest(ip_network(to), state, via and ip_address(via), "line 2, [routes]")
    assert (document.routes, document.faults) == ((expected,), ())


@pytest.mark.parametrize(
    ("key", "value", "reason"),
    [
        ("10.0.0.1/8", "1.1.1.1", '"10.0.0.1/8" has host bits set, its network is "10.0.0.0/8"'),
        ("fd00::1/64", "down", '"fd00::1/64" has host bits set, its network is "fd00::/64"'),
        ("10.0.0.0/33", "1.1.1.1", 'the prefix length "33" is not a number from 0 to 32'),
        (
            "10.0.0.0/255.0.255.0",
            "1.1.1.1",
            '"255.0.255.0" is not a netmask',
        ),
        ("default", "1.1.1.1", '"default" is not an IP address'),
        ("[fd00::]/64", "fd00::1", '"[fd00::]" is not an IP address'),
        ("10.0.0.0/8", "fd00::1", 'the next hop "fd00::1" is not of the family of "10.0.0.0/8"'),
        ("10.0.0.0/8", "up", '"up" is not an IP address'),
        ("10.0.0.0/8", "1.1.1.1/24", '"1.1.1.1/24" is not an IP address'),
        ("10.0.0.0/8", "127.0.0.1", '"127.0.0.1" cannot be a next hop'),
        ("fd00::/8", "::", '"::" cannot be a next hop'),
        ("fd00::/8", "ff02::1", '"ff02::1" cannot be a next hop'),
        ("fd00::/8", "fe80::1%eth1", '"fe80::1%eth1" is not an IP address'),
        ("127.0.0.0/8", "10.0.0.1", '"127.0.0.0/8" is the loopback network'),
        ("::1", "fd00::1", '"::1/128" is the loopback network'),
    ],
)
def test_a_bad_route_costs_only_itself(key, value, reason):
    document = parse(f"[routes]\n{key} = {value}\n10.1.0.0/16 = 10.0.0.1")
    assert [fault.text for fault in document.faults] == [
        f'line 2: [routes] "{key}" = "{value}": {reason}'
    ]
    assert len(document.routes) == 1


def test_a_route_names_its_interface_in_the_case_of_the_section():
    bond = "[bond Bond0]\nmode = active-backup\nmembers = fe163e006daf\n"
    for words in ("interface bond Bond0", "INTERFACE BOND Bond0 METRIC 5"):
        (route,) = parse(f"{bond}[routes]\n10.9.0.0/16 = {words}").routes
        assert str(route.link) == "bond Bond0"


@pytest.mark.parametrize(
    "words", ["blackhole on-link", "interface fe163e006daf on-link", "172.16.0.254 on-link"]
)
def test_on_link_means_nothing_without_a_next_hop(words):
    (route,) = parse(f"[routes]\n10.9.0.0/16 = {words}").routes
    assert route.traits.onlink is (route.via is not None)


def test_of_one_prefix_written_two_ways_the_last_wins():
    document = parse("[routes]\n2001:db8::/32 = fd00::1\n2001:DB8:0::/32 = fd00::2")
    assert [route.via for route in document.routes] == [ip_address("fd00::2")]
    assert [fault.text for fault in document.faults] == [
        'line 3: [routes] "2001:db8:0::/32": specified before on line 2, ignoring line 2'
    ]


@pytest.mark.parametrize(
    ("line", "user"),
    [
        ("joe = yes", User("joe", True)),
        ("joe = No:", User("joe", False)),
        ("joe=yes:ssh-rsa AAAA joe@x", User("joe", True, ("ssh-rsa AAAA joe@x",))),
        (
            "Joe = no:ssh-rsa AAAA : ssh-ed25519 BBBB",
            User("joe", False, ("ssh-rsa AAAA", "ssh-ed25519 BBBB")),
        ),
        (
            "joe = no:ssh-rsa AAAA==\n   :ecdsa-sha2-nistp256 BBBB=",
            User("joe", False, ("ssh-rsa AAAA==", "ecdsa-sha2-nistp256 BBBB=")),
        ),
        ("joe = no:ssh-rsa\n   AAAA", User("joe", False, ("ssh-rsa AAAA",))),
        (
            'joe = no:permitopen="[fd00::1]:22",from="fd00::/64" ssh-rsa AAAA j@x:restrict ssh-rsa BBBB',
            User(
                "joe",
                False,
                (
                    'permitopen="[fd00::1]:22",from="fd00::/64" ssh-rsa AAAA j@x',
                    "restrict ssh-rsa BBBB",
                ),
            ),
        ),
        (
            'joe = no:ssh-rsa AAAA 19" rack:ssh-rsa BBBB',
            User("joe", False, ('ssh-rsa AAAA 19" rack', "ssh-rsa BBBB")),
        ),
    ],
)
def test_a_user(line, user):
    document = parse(f"[users]\n{line}")
    assert (document.users, document.faults) == ((user,), ())


@pytest.mark.parametrize(
    ("line", "text"),
    [
        (
            f"joe = maybe:{SECRET}",
            'line 2: [users] "joe" = "(redacted)": the sudo word is not "yes" or "no"',
        ),
        (f"joe doe = yes:{SECRET}", "line 2: [users]: the key is not a login name"),
        (f"../joe = yes:{SECRET}", "line 2: [users]: the key is not a login name"),
        (
            f"joe = yes:ssh-rsa {SECRET}\x07",
            'line 2: [users] "joe" = "(redacted)": a public key has control characters',
        ),
        (f":ssh-rsa {SECRET}==", "line 2: [users]: the key is not a login name"),
        (
            f"ssh-rsa {SECRET}",
            'line 2: [users]: it is neither a section, a comment nor "key = value"',
        ),
    ],
)
def test_a_bad_user_costs_only_itself_and_no_text_shows_a_key(line, text):
    document = parse(f"[users]\n{line}\nann = no")
    assert [fault.text for fault in document.faults] == [text]
    assert document.users == (User("ann", False),)


def test_what_does_not_look_like_a_public_key_is_kept_with_a_warning():
    document = parse("[users]\njoe = no:ssh-rsa AAAA joe@x:22")
    assert document.users == (User("joe", False, ("ssh-rsa AAAA joe@x", "22")),)
    assert reasons(document) == ["key 2 is not a public key"]
    assert document.is_complete


@pytest.mark.parametrize(
    "line", [f"export x = {SECRET}", f"../x = {SECRET}", f"x/{SECRET} = y", f"if [ {SECRET} = 1 ]"]
)
def test_a_line_that_lost_its_indentation_becomes_no_script(line):
    document = parse(f"[scripts]\nbootscript = #!/bin/sh\n{line}")
    assert [script.name for script in document.scripts] == ["bootscript"]
    assert [fault.text for fault in document.faults] == [
        "line 3: [scripts]: the key is not the name of a script (or this line of a script is not indented)"
    ]


def test_scripts_keep_their_order():
    assert [script.name for script in parse("[scripts]\nz = 1\nbootscript = 2\na = 3").scripts] == [
        "z",
        "bootscript",
        "a",
    ]


def device(**changes):
    fields = {
        "device": "dev1",
        "ip": ip_address("10.0.0.5"),
        "port": 3260,
        "lun": 1,
        "chap_user": "joe",
        "chap_secret": SECRET,
    }
    return Storage(**{**fields, "attach": True, **changes})


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (f"iscsi:10.0.0.5:3260:1:joe:{SECRET}:yes", device()),
        (f"ISCSI:10.0.0.5:3260:1:joe:{SECRET}:No", device(attach=False)),
        (f"iscsi:[fd00::5]:3260:1:joe:{SECRET}:yes", device(ip=ip_address("fd00::5"))),
        (f"iscsi:10.0.0.5:3260:1:joe:{SECRET}:yes:ext4", device(fs_type="ext4")),
        (
            f"iscsi:10.0.0.5:3260:1:joe:{SECRET}:yes:ext4:-F -b 2048:yes:/mnt/target",
            device(fs_type="ext4", fs_options="-F -b 2048", format=True, mount_point="/mnt/target"),
        ),
        (f"iscsi:10.0.0.5:3260:1:joe:{SECRET}:yes:Not Specified:::", device()),
        ("iscsi:10.0.0.5:3260:1:::yes", device(chap_user="", chap_secret="")),
        (f"iscsi:10.0.0.5:3260:1:joe:{SECRET}:yes:::no:/mnt/a:b", device(mount_point="/mnt/a:b")),
    ],
)
def test_a_storage_device(value, expected):
    document = parse(f"[storage]\ndev1 = {value}")
    assert (document.storage, document.faults) == ((expected,), ())


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (f"nfs:10.0.0.5:3260:1:joe:{SECRET}:yes", 'the kind is not "iscsi"'),
        (SECRET, 'the kind is not "iscsi"'),
        (f"iscsi:10.0.0.5:3260:1:{SECRET}", "fewer than 7 fields"),
        (
            f"iscsi:{SECRET}:3260:1:joe:x:yes",
            "the target is not an IP address (an IPv6 one in brackets)",
        ),
        (
            f"iscsi:fd00::5:3260:1:joe:{SECRET}:yes",
            "the target is not an IP address (an IPv6 one in brackets)",
        ),
        (f"iscsi:10.0.0.5:{SECRET}:1:joe:x:yes", "the port is not a number from 1 to 65535"),
        (f"iscsi:10.0.0.5:0:1:joe:{SECRET}:yes", "the port is not a number from 1 to 65535"),
        (f"iscsi:10.0.0.5:3260:{SECRET}:joe:x:yes", "the LUN is not a number from 0 to 16383"),
        (f"iscsi:10.0.0.5:3260:1:joe:x:{SECRET}", 'the attach word is not "yes" or "no"'),
        (
            f"iscsi:10.0.0.5:3260:1:joe:x:yes:{SECRET}/x",
            "the type of the file system cannot be used",
        ),
        (
            f"iscsi:10.0.0.5:3260:1:joe:x:yes:ext4:{SECRET}\n  x",
            "the text of file system options cannot be used",
        ),
        (
            f"iscsi:10.0.0.5:3260:1:joe:x:yes:ext4::{SECRET}:/mnt",
            'the format word is not "yes" or "no"',
        ),
        (f"iscsi:10.0.0.5:3260:1:joe:x:yes:ext4::no:{SECRET}", "the mount point cannot be used"),
        (
            f"iscsi:10.0.0.5:3260:1:joe:{SECRET}:yes:ext4::no:/mnt/../etc",
            "the mount point cannot be used",
        ),
    ],
)
def test_bad_storage_costs_only_itself_and_no_text_shows_the_secret(value, reason):
    document = parse(f"[storage]\ndev0 = {value}\ndev1 = iscsi:10.0.0.5:3260:1:joe:{SECRET}:yes")
    assert [fault.text for fault in document.faults] == [
        f'line 2: [storage] "dev0" = "(redacted)": {reason}'
    ]
    assert document.storage == (device(),)


def test_a_device_needs_a_name():
    document = parse(f"[storage]\n{SECRET} {SECRET} = iscsi")
    assert [fault.text for fault in document.faults] == [
        "line 2: [storage]: the key is not the name of a device"
    ]


def test_a_repeated_secret_is_not_shown():
    text = f"[global]\ncometreadtoken = {SECRET}\ncometreadtoken = x\n[storage]\na = {SECRET}\na = iscsi"
    assert [fault.text for fault in parse(text).faults] == [
        'line 3: [global] "cometreadtoken": specified before on line 2, ignoring line 2',
        'line 6: [storage] "a": specified before on line 5, ignoring line 5',
        'line 6: [storage] "a" = "(redacted)": fewer than 7 fields',
    ]


def test_the_repr_of_a_document_shows_no_secret():
    text = f"[global]\ntoken = {SECRET}\n[scripts]\na = {SECRET}\n[storage]\na = iscsi:10.0.0.5:3260:1:joe:{SECRET}:yes"
    document = parse(text)
    assert len(document.items) == 3
    assert SECRET not in repr(document)


@pytest.mark.parametrize("field", ["user", "secret"])
@pytest.mark.parametrize("bad", ["a\n  node.startup = automatic", "a\tb", "ä", "x" * 256])
def test_a_credential_is_printable_ascii_on_one_line(field, bad):
    """Each becomes a line of open-iscsi's record."""
    user, secret = (bad, SECRET) if field == "user" else ("joe", bad)
    document = parse(f"[storage]\ndev1 = iscsi:10.0.0.5:3260:1:{user}:{secret}:yes")
    reason = f"the CHAP {field} is not 1 to 255 printable ASCII characters"
    assert [fault.reason for fault in document.faults] == [reason]
    assert document.storage == ()


ONE = f"[storage]\ndev1 = iscsi:10.0.0.5:3260:1:joe:{SECRET}:yes\n"


def test_mutual_chap_is_asked_for_in_a_line_of_its_own():
    for text in (
        ONE + "dev1.mutual-chap = disks:other secret",
        f"[storage]\nDEV1.mutual-CHAP = disks : other secret\n{ONE}",
    ):
        document = parse(text)
        assert document.storage == (device(mutual_chap=("disks", "other secret")),)
        assert document.faults == ()
        assert "other" not in repr(document.storage)


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("", None),
        ("disks", "the CHAP secret of the target is not 1 to 255 printable ASCII characters"),
        (":other", "the CHAP user of the target is not 1 to 255 printable ASCII characters"),
        (
            "disks:a\n  b",
            "the CHAP secret of the target is not 1 to 255 printable ASCII characters",
        ),
        (f"disks:{SECRET}", "the secret of the target is that of this host, which CHAP forbids"),
    ],
)
def test_a_device_whose_target_cannot_be_checked_as_asked_is_not_attached(line, reason):
    document = parse(f"{ONE}dev1.mutual-chap = {line}")
    assert [fault.reason for fault in document.faults] == ([reason] if reason else [])
    assert document.storage == (() if reason else (device(),))
    assert all(SECRET not in fault.text for fault in document.faults)


def test_mutual_chap_needs_chap():
    document = parse("[storage]\nd = iscsi:10.0.0.5:3260:1:::yes\nd.mutual-chap = a:b")
    assert document.storage == ()
    reason = "mutual CHAP needs a user and a secret of this host too"
    assert [fault.reason for fault in document.faults] == [reason]


def test_mutual_chap_of_no_device_is_a_fault():
    document = parse(f"{ONE}dev2.mutual-chap = a:b")
    assert document.storage == (device(),)
    assert [fault.text for fault in document.faults] == [
        'line 3: [storage] "dev2.mutual-chap" = "(redacted)": it is for a device that is not listed'
    ]


def test_a_section_for_a_program_has_its_own_lines():
    document = parse(
        "[global]\nrouter = true\n[users]\nann = yes\n[routes]\n10.2.0.0/16 = 10.1.0.9\n"
    )
    assert _section_json("users", document)["items"] == {"ann": "yes"}
    routes = _section_json("routes", document)
    assert (routes["items"], routes["router"]) == ({"10.2.0.0/16": "10.1.0.9"}, document.router)
