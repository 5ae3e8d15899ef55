"""What a document asks of the host itself, in guests with real systemd, hostnamed, sudo and sshd, and in one without systemd."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import pytest
from guest import mac
from steps import assert_nothing_odd, in_force, serve

KEY = "ssh-keygen -q -t ed25519 -N '' -C a@b -f /root/key; cut -d ' ' -f 1,2 /root/key.pub"
SSH = "ssh -i /root/key -o BatchMode=yes -o StrictHostKeyChecking=no -o UserKnownHostsFile=/dev/null -o LogLevel=ERROR"
FORWARDING = "cat /proc/sys/net/ipv4/ip_forward /proc/sys/net/ipv6/conf/all/forwarding"
LOGIN = "/etc/neuca/config.d/login.conf"  # who gets the keys that the cloud itself has
KEYS = "/latest/meta-data/public-keys/"
PLAIN = f"[interfaces]\n{mac(1)} = up:ipv4:172.16.0.1/24\n"


def asked(guest):
    """A document with a key that the guest has the other half of; the cloud gives the same for the login of the configuration."""
    key = guest.check(KEY).strip()
    guest.cloud.files = {KEYS: "0=mine", f"{KEYS}0/openssh-key": f"{key}\n"}
    guest.put(LOGIN, "[guest]\nlogin = cay\n")
    guest.check(
        "service neuca-guest-tools restart", 300
    )  # it has just heard that this cloud has no keys, and asks seldom
    return f"[global]\nhost_name = node0.example.org\nrouter = true\n[users]\nann = yes:{key}\nbob = no:{key}\n{PLAIN}"


def log_in(guest, login):
    """What they are told who log in over SSH, with the key that the document has: their name, and what sudo says."""
    return guest.run(f"{SSH} {login}@127.0.0.1 'id -un; sudo -n id -u' 2>&1", 120)


def assert_as_asked(guest):
    assert guest.check(
        "uname -n; cat /etc/hostname; getent ahostsv4 node0 | cut -d ' ' -f 1 | sort -u"
    ).split() == ["node0.example.org", "node0.example.org", "127.255.255.1"]
    assert log_in(guest, "ann") == (0, "ann\n0\n")
    for login in ("bob", "cay"):
        done = log_in(guest, login)
        assert (done.code, done.output.split()[0], "password is required" in done.output) == (
            1,
            login,
            True,
        )
    assert guest.check(FORWARDING).split() == ["1", "1"]


def become_what_is_asked_and_be_it_no_more(guest):
    guest.serve(PLAIN)
    guest.boot()
    in_force(guest, PLAIN)
    document = asked(guest)
    serve(guest, document)
    assert_as_asked(guest)
    guest.reboot()
    status = in_force(guest, document)
    assert_as_asked(guest)
    assert [(one["feature"], one["state"]) for one in status["guest"]][:2] == [
        ("hostname", "ok"),
        ("users", "ok"),
    ]
    assert_nothing_odd(guest)
    serve(guest, PLAIN)
    assert log_in(guest, "ann").code == 255
    assert guest.check(FORWARDING).split() == ["0", "0"]
    left = guest.check(
        "getent passwd ann bob | cut -d: -f1; ls -d /home/ann /etc/sudoers.d/neuca-* 2> /dev/null || true"
    )
    assert left.split() == ["ann", "bob", "/home/ann"]
    assert guest.check("uname -n").strip() == "node0.example.org"


def test_a_guest_is_what_its_document_asks_until_it_asks_no_more(guests):
    guest = guests("G")
    become_what_is_asked_and_be_it_no_more(guest)
    assert guest.check("hostnamectl --static").strip() == "node0.example.org"
    assert guest.check("systemctl is-system-running").strip() == "running"


@pytest.mark.long
def test_a_guest_without_systemd_is_what_its_document_asks_until_it_asks_no_more(guests):
    become_what_is_asked_and_be_it_no_more(guests("H"))


@pytest.mark.long
def test_no_boot_waits_for_the_host_itself_and_a_pulled_plug_costs_nothing(guests):
    guest = guests("G")
    guest.serve(PLAIN)
    guest.boot()
    in_force(guest, PLAIN)
    guest.check("mv /usr/sbin/useradd /usr/sbin/useradd.real")
    guest.put("/usr/sbin/useradd", "#!/bin/sh\nexec sleep 600\n")
    guest.check("chmod +x /usr/sbin/useradd")
    document = asked(guest)
    guest.serve(document)
    guest.check("neuca apply || true", 120)
    guest.eventually("pgrep -f 'sleep 600'", lambda done: done.code == 0, 120)
    assert guest.check(FORWARDING).split() == ["1", "1"]
    guest.check("mv /usr/sbin/useradd.real /usr/sbin/useradd; sync")
    guest.power_cut()
    guest.boot()
    in_force(guest, document)
    assert_as_asked(guest)
