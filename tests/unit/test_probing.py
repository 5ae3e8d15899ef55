"""Which NICs are probed, and whom they ask; the probe itself is tested over a veth (`tests/netns/test_netns_tuning.py`)."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

from ipaddress import ip_address

from test_tuning_layer import TWO, VM, Tuned, host, own
from worlds import key

from neuca_tools.agent import mtu_probe
from neuca_tools.config import Config
from neuca_tools.tuning.environment import Environment
from neuca_tools.tuning.layer import Facts

PEERS = (ip_address("192.0.2.9"), ip_address("10.0.0.9"))  # the first is on the management network
MAC = key(2).mac


def waiting(environment=VM, probed=None, start=True, peers=PEERS, mtu=9000):
    agent = Tuned(host(), TWO, [own(mtu=mtu)], facts=Facts(environment))
    agent.run()
    survey = agent.survey()
    return mtu_probe.probe_candidates(survey.resolution, survey.have, peers, probed or {}, start)


def test_a_nic_of_a_virtual_machine_asks_the_peer_on_its_own_network():
    (one,) = waiting()
    assert (one.target.name, one.now, one.asked, str(one.neighbour)) == (
        "eth2",
        1500,
        9000,
        "10.0.0.9",
    )
    assert one.operation.text == "set the MTU of eth2 from 1500 to 9000"


def test_nothing_is_probed_without_need():
    assert waiting(environment=Environment()) == []
    assert waiting(peers=()) == []
    assert (
        waiting(peers=(ip_address("192.0.2.9"), ip_address("10.0.0.1"), ip_address("fd00::1")))
        == []
    )
    assert waiting(mtu=1400) == []


def test_a_silent_peer_is_asked_again_at_a_start_alone():
    assert len(waiting(probed={MAC: mtu_probe.NO_RESPONSE})) == 1
    assert waiting(probed={MAC: mtu_probe.NO_RESPONSE}, start=False) == []
    assert waiting(probed={MAC: 0}) == []


def test_the_peers_are_the_literal_addresses():
    text = "10.0.0.9, node-b, data@fd00::9,, 300.1.1.1"
    assert list(map(str, mtu_probe.configured_peers(Config(selftest={"peers": text})))) == [
        "10.0.0.9",
        "fd00::9",
    ]
    assert mtu_probe.configured_peers(Config(selftest={"peers": text}, mtu_probe=False)) == ()
    assert mtu_probe.configured_peers(Config()) == ()


def test_the_outcome_in_words():
    assert [mtu_probe.describe_outcome(mtu) for mtu in (9000, 0, mtu_probe.NO_RESPONSE)] == [
        "an MTU of 9000 is acknowledged", "no larger MTU is acknowledged", "no response"]  # fmt: skip
