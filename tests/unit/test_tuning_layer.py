"""Profiles as the weakest layer: precedence, never worse, and back again; over the model kernel, with laws."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from test_tuning_profile import shipped
from worlds import LAWS, PLACES, Agent, Policy, bare, mac, machine, nic, texts, vlan

from neuca_tools.agent.change import Restore
from neuca_tools.apply.decide import Observation
from neuca_tools.apply.transaction import Transaction
from neuca_tools.desired.marks import SYSCTL_FILE
from neuca_tools.model import Record, WrittenSetting
from neuca_tools.plan.operations import SetMtu, SetTxQueueLen, WriteSysctl
from neuca_tools.status import audit
from neuca_tools.tuning.choice import Choice
from neuca_tools.tuning.environment import Environment
from neuca_tools.tuning.layer import (
    AVAILABLE,
    CONGESTION,
    PERMITTED,
    Facts,
    Obstacle,
    TuningInputs,
    judge_profiles,
)
from neuca_tools.tuning.profile import Profile
from neuca_tools.tuning.sysctl_values import is_same_sysctl
from neuca_tools.tuning.sysctld import parse_files

RMEM, TCP = "net/core/rmem_max", "net/ipv4/tcp_rmem"
KERNEL = {
    RMEM: "212992",
    TCP: "4096 131072 6291456",
    CONGESTION: "cubic",
    AVAILABLE: "reno cubic",
    PERMITTED: "reno cubic",
}
VM = Environment("vm", "kvm")
TWO = f"[interfaces]\n{bare(2)} = up:ipv4:10.0.0.1/24\n"


class Tuned(Agent):
    """An agent whose profiles are judged anew at each look, as `backends.hostfacts` does it."""

    def __init__(self, kernel, text="", profiles=(), choice=None, facts=None):
        super().__init__(kernel, text)
        self.profiles, self.facts = profiles, facts or Facts()
        self.choice = choice or Choice(tuple(profile.name for profile in profiles))

    def look(self, wanted):
        paths = {AVAILABLE, PERMITTED, *(path for one in self.profiles for path in one.sysctls)}
        facts = self.facts._replace(sysctls={path: self.kernel.read_sysctl(path) for path in paths})
        seen = super().look(wanted)
        world = replace(seen.world, sysctls={**facts.sysctls, **seen.world.sysctls})
        return Observation(world, TuningInputs(tuple(self.profiles), (), facts))

    def revert(self):
        purpose = Restore(PLACES.sysctl / SYSCTL_FILE)
        outcome = Transaction(self, purpose, purpose.adapt(self.survey())).run()
        self.kernel.allowed = None
        self.record = outcome.decision.record

    def rows(self):
        survey = self.survey()
        return {
            (row.name, row.setting): row
            for row in audit.audit_rows(survey.resolution, survey.observed)
        }


def host(*devices, **sysctls):
    kernel = machine(nic(1), nic(2), *devices, mgmt=1)
    kernel.sysctls.update({**KERNEL, **sysctls})
    return kernel


def own(mtu=None, txqueuelen=None, name="site", **sysctls):
    return Profile(
        name,
        {path.replace("__", "/"): value for path, value in sysctls.items()},
        mtu,
        txqueuelen,
    )


def tuning_texts(operations):
    return [one.text for one in operations if isinstance(one, (SetMtu, SetTxQueueLen, WriteSysctl))]


def test_the_origin_of_a_value_is_not_a_request_that_was_refused():
    text = f"{TWO}[interface {bare(2)}]\nsysctl.net.ipv4.tcp_rmem = 1 1 1\n"
    agent = Tuned(host(), text, [own(net__ipv4__tcp_rmem="- - 16777216")])
    row = agent.rows()["", TCP]
    assert (row.desired, row.origin) == ("4096 131072 16777216", "profile site")


class Killed(Tuned):
    """A host on which a pass can be killed once it has saved what it intends."""

    is_killed = False

    def save_record(self, record):
        self.record = record
        if self.is_killed:
            raise KeyboardInterrupt


def test_what_a_killed_pass_has_not_lowered_is_lowered_by_the_next_one():
    agent = Killed(host(), TWO, [own(txqueuelen=5000, net__ipv4__tcp_rmem="- - 16777216")])
    agent.run()
    agent.profiles = [own(txqueuelen=3000, net__ipv4__tcp_rmem="- - 8388608")]
    agent.is_killed = True
    with pytest.raises(KeyboardInterrupt):
        agent.run()
    agent.is_killed = False
    agent.run()
    assert agent.kernel.devices[2].txqueuelen == 3000
    assert agent.kernel.sysctls[TCP] == "4096 131072 8388608"


class KilledAtTheEnd(Tuned):
    """A host on which a pass can be killed after its changes."""

    is_killed = False

    def save_record(self, record):
        self.record = record

    def wait_for_udev(self, _):
        if self.is_killed:
            raise KeyboardInterrupt


@pytest.mark.parametrize("is_completed", [False, True])
def test_what_a_killed_pass_has_set_is_restored(is_completed):
    agent = KilledAtTheEnd(host(), TWO, [own(txqueuelen=500)])
    agent.ask(f"{TWO}[interface {bare(2)}]\ntxqueuelen = 2000\n")
    agent.run()
    agent.ask(f"{TWO}[interface {bare(2)}]\ntxqueuelen = 4000\n")
    agent.is_killed = True
    with pytest.raises(KeyboardInterrupt):
        agent.run()
    agent.is_killed = False
    if is_completed:
        agent.run()
    agent.ask(TWO)
    agent.run()
    assert agent.kernel.devices[2].txqueuelen == 1000


# --- values of the host ----------------------------------------------------------------------------------------------


def test_numbers_are_raised_one_by_one_and_a_second_pass_writes_nothing():
    agent = Tuned(
        host(),
        TWO,
        [own(net__core__rmem_max="16777216", net__ipv4__tcp_rmem="4096 87380 16777216")],
    )
    assert tuning_texts(agent.run()[0]) == [
        'set the sysctl net.core.rmem_max from "212992" to "16777216"',
        'set the sysctl net.ipv4.tcp_rmem from "4096 131072 6291456" to "4096 131072 16777216"',
    ]
    assert texts(agent.plan()) == []
    assert agent.rows()["", TCP].effect == "effective"


def test_what_is_higher_already_stays():
    agent = Tuned(host(**{RMEM: "33554432"}), TWO, [own(net__core__rmem_max="16777216")])
    assert tuning_texts(agent.run()[0]) == []
    assert (agent.rows()["", RMEM].desired, agent.rows()["", RMEM].effect) == (
        "33554432",
        "effective",
    )


@pytest.mark.parametrize("asked", ["2048", "4096 131072 6291456 7", "0x800 0x800 0x800"])
def test_other_notations_and_counts_of_numbers_lower_nothing(asked):
    agent = Tuned(host(), TWO, [own(net__ipv4__tcp_rmem=asked)])
    assert tuning_texts(agent.run()[0]) == []
    effect = "effective" if "0x" in asked else "not applicable"
    assert (agent.rows()["", TCP].effect, agent.kernel.read_sysctl(TCP)) == (effect, KERNEL[TCP])


def test_a_value_that_somebody_raised_by_hand_stays():
    agent = Tuned(host(), TWO, [own(net__core__rmem_max="16777216")])
    agent.run()
    agent.kernel.write_sysctl(RMEM, "67108864")
    assert texts(agent.plan()) == []
    agent.run()
    assert (agent.kernel.read_sysctl(RMEM), texts(agent.plan())) == ("67108864", [])


def test_another_profile_may_ask_for_less_than_the_one_before():
    agent = Tuned(host(), TWO, [own(net__core__rmem_max="16777216")])
    agent.run()
    agent.profiles = [own(net__core__rmem_max="1048576")]
    assert tuning_texts(agent.run()[0]) == [
        'set the sysctl net.core.rmem_max from "16777216" to "1048576"'
    ]
    agent.profiles = [own(net__core__rmem_max="7")]
    assert tuning_texts(agent.run()[0]) == [
        'set the sysctl net.core.rmem_max from "1048576" to "212992"'
    ]


def test_what_no_profile_asks_for_any_more_goes_back():
    agent = Tuned(host(), TWO, [own(net__core__rmem_max="16777216", mtu=9000)])
    agent.run()
    agent.profiles = []
    assert tuning_texts(agent.run()[0]) == [
        "set the MTU of eth2 from 9000 to 1500",
        'set the sysctl net.core.rmem_max from "16777216" to "212992"',
    ]
    assert (agent.record.original_sysctls, agent.record.originals) == ({}, {})


def test_the_document_comes_before_a_profile():
    text = TWO + f"[interface {bare(2)}]\nsysctl.net.core.rmem_max = 1048576\nmtu = 1400\n"
    agent = Tuned(host(), text, [own(net__core__rmem_max="16777216", mtu=9000)])
    agent.run()
    row = agent.rows()["", RMEM]
    assert (row.desired, row.origin, row.effect) == (
        "1048576",
        f"line 4, [interface {bare(2)}]",
        "effective",
    )
    assert agent.kernel.devices[2].mtu == 1400
    assert agent.rows()["eth2", "mtu"].origin == f"line 5, [interface {bare(2)}]"


def test_the_word_of_the_administrator_comes_before_a_profile():
    facts = Facts(
        file_settings=parse_files([("/etc/sysctl.d/own.conf", "net.core.rmem_max = 1048576")])
    )
    agent = Tuned(
        host(**{RMEM: "1048576"}), TWO, [own(net__core__rmem_max="16777216")], facts=facts
    )
    assert tuning_texts(agent.run()[0]) == []
    row = agent.rows()["", RMEM]
    assert (row.desired, row.effect, row.reason) == (
        "16777216",
        "overridden",
        'by /etc/sysctl.d/own.conf, which sets it to "1048576"',
    )
    survey = agent.survey()
    assert audit.overridden_notes(survey.resolution, survey.observed) == [
        'net.core.rmem_max: overridden by /etc/sysctl.d/own.conf, which sets it to "1048576"'
    ]


def test_a_later_word_of_the_administrator_takes_back_what_a_profile_did():
    agent = Tuned(host(), TWO, [own(net__core__rmem_max="16777216")])
    agent.run()
    agent.facts = Facts(
        file_settings=parse_files([("/etc/sysctl.d/own.conf", "net.core.rmem_max = 1048576")])
    )
    assert tuning_texts(agent.run()[0]) == [
        'set the sysctl net.core.rmem_max from "16777216" to "1048576"'
    ]
    assert (agent.record.original_sysctls, texts(agent.plan())) == ({}, [])


def test_the_word_of_the_administrator_is_no_obstacle_where_it_asks_for_more():
    facts = Facts(file_settings=parse_files([("x", "net.core.rmem_max = 67108864")]))
    agent = Tuned(
        host(**{RMEM: "67108864"}), TWO, [own(net__core__rmem_max="16777216")], facts=facts
    )
    assert tuning_texts(agent.run()[0]) == []
    assert agent.rows()["", RMEM].effect == "effective"


def test_the_document_comes_before_the_word_of_the_administrator():
    facts = Facts(file_settings=parse_files([("x", "net.core.rmem_max = 7")]))
    agent = Tuned(
        host(),
        TWO + f"[interface {bare(2)}]\nsysctl.net.core.rmem_max = 90000\n",
        [shipped("exogeni")],
        facts=facts,
    )
    agent.run()
    assert agent.kernel.read_sysctl(RMEM) == "90000"


def test_what_cannot_be_set_here_is_neither_done_nor_a_problem():
    facts = Facts(
        obstacles={
            RMEM: Obstacle("not applicable", "it is read-only here: only the host can set it")
        }
    )
    agent = Tuned(host(), TWO, [own(net__core__rmem_max="16777216")], facts=facts)
    assert tuning_texts(agent.run()[0]) == []
    assert agent.survey().resolution.problems == ()
    row = agent.rows()["", RMEM]
    assert (row.effect, row.current, row.desired) == ("not applicable", "212992", "16777216")


def test_several_profiles_give_the_highest_and_say_who_it_was():
    profiles = [own(name="a", net__ipv4__tcp_rmem="1 2 9000000", net__core__rmem_max="5000000"),
                own(name="b", net__ipv4__tcp_rmem="- 200000 -", net__core__rmem_max="4000000")]  # fmt: skip
    agent = Tuned(host(), TWO, profiles)
    agent.run()
    rows = agent.rows()
    assert (rows["", TCP].current, rows["", TCP].origin) == ("4096 200000 9000000", "profile a, b")
    assert (rows["", RMEM].current, rows["", RMEM].origin) == ("5000000", "profile a")


def test_bdp_needs_a_path():
    agent = Tuned(host(), TWO, [shipped("bdp")])
    problems = agent.survey().resolution.problems
    assert [(problem.code, problem.text) for problem in problems] == [
        ("invalid", 'profile "bdp": it requires rate and rtt')
    ]


def test_bdp_computes_the_maxima_and_leaves_the_rest():
    agent = Tuned(host(), TWO, [shipped("bdp")], Choice(("bdp",), 10**9, 0.1), Facts(memory=2**30))
    agent.kernel.sysctls["net/ipv4/tcp_wmem"] = "4096 16384 4194304"
    agent.run()
    assert agent.kernel.read_sysctl(TCP) == "4096 131072 31250000"
    assert agent.kernel.read_sysctl("net/ipv4/tcp_wmem") == "4096 16384 31250000"
    survey = agent.survey()
    assert audit.to_json(survey.resolution, survey.observed)["notes"] == [
        "1 Gbit/s at 100 ms RTT needs TCP buffers of 29.8 MiB",
        "29.8 MiB at 100 ms RTT allows 1.2 Gbit/s",
    ]


def test_bdp_says_when_the_kernel_permits_no_buffer_of_that_size():
    agent = Tuned(host(), TWO, [shipped("bdp")], Choice(("bdp",), 10**11, 0.1))
    survey = agent.survey()
    assert audit.to_json(survey.resolution, survey.observed)["notes"][:2] == [
        "100 Gbit/s at 100 ms RTT needs TCP buffers of 2.9 GiB",
        "their limit here is that of the kernel, 2 GiB",
    ]


def test_bdp_stays_within_the_memory_and_says_so():
    facts = Facts(sysctls=KERNEL, memory=2**30)
    inputs = TuningInputs((shipped("bdp"),), facts=facts)
    found = judge_profiles(Choice(("bdp",), 10**10, 0.1), inputs, Record())
    assert found.sysctls[TCP] == f"4096 131072 {2**26}"
    assert found.notes[1] == "their limit here is a sixteenth of the memory, 64 MiB"


# --- congestion control ----------------------------------------------------------------------------------------------


def control(facts, record=None):
    profile = own(**{CONGESTION.replace("/", "__"): "htcp"})
    inputs = TuningInputs((profile,), facts=facts)
    return next(iter(judge_profiles(Choice(("site",)), inputs, record or Record()).values))


def test_a_congestion_control_that_can_be_loaded_is_wanted():
    assert control(Facts(sysctls=KERNEL, modules=frozenset({"htcp"}))).wanted == "htcp"
    assert control(Facts(sysctls=KERNEL)).wanted == "htcp"  # not known: the kernel is asked


def test_a_congestion_control_that_there_is_not():
    missing = control(Facts(sysctls=KERNEL, modules=frozenset({"bbr"})))
    assert (missing.wanted, missing.effect, missing.reason) == (
        None,
        "unsupported",
        'this kernel has no "htcp"',
    )
    tried = control(Facts(sysctls=KERNEL), Record(written={WrittenSetting(CONGESTION): "htcp"}))
    assert tried.effect == "unsupported"


def test_a_congestion_control_that_the_host_does_not_allow():
    found = {**KERNEL, AVAILABLE: "reno cubic htcp"}
    value = control(Facts(sysctls=found, own_namespace=True))
    assert (value.effect, value.reason) == (
        "not applicable",
        'the host does not allow "htcp" in this network namespace',
    )
    assert (
        control(Facts(sysctls={**found, PERMITTED: "reno htcp"}, own_namespace=True)).wanted
        == "htcp"
    )


# --- links -----------------------------------------------------------------------------------------------------------

VLAN = TWO + f"[vlan {bare(2)}.7]\n"


def test_bare_metal_gets_mtu_and_queue_on_the_nic_and_then_on_its_vlan():
    agent = Tuned(host(), VLAN, [own(mtu=9000, txqueuelen=10000)])
    assert tuning_texts(agent.run()[0]) == [
        "set the MTU of eth2 from 1500 to 9000",
        "set the transmit queue length of eth2 from 1000 to 10000",
        "set the transmit queue length of eth2.7 to 10000",
    ]
    assert (agent.rows()["eth2.7", "mtu"].current, agent.rows()["eth2.7", "mtu"].effect) == (
        "9000",
        "effective",
    )
    assert agent.kernel.devices[1].mtu == 1500
    assert texts(agent.plan()) == []


def test_a_vlan_that_is_there_is_raised_after_its_nic():
    agent = Tuned(host(vlan(9, 2, 7, name="eth2.7")), VLAN, [own(mtu=9000)])
    assert tuning_texts(agent.run()[0]) == [
        "set the MTU of eth2 from 1500 to 9000",
        "set the MTU of eth2.7 from 1500 to 9000",
    ]


def test_our_vlan_follows_a_nic_that_gets_more_than_the_profile_asks_for():
    agent = Tuned(host(), VLAN, [])
    agent.run()
    agent.profiles = [own(mtu=2000)]
    agent.ask(VLAN + f"[interface {bare(2)}]\nmtu = 9000\n")
    planned = tuning_texts(agent.plan())
    assert planned == [
        "set the MTU of eth2 from 1500 to 9000",
        "set the MTU of eth2.7 from 1500 to 9000",
    ]
    assert tuning_texts(agent.run()[0]) == planned


def test_an_mtu_goes_as_far_as_the_device():
    agent = Tuned(machine(nic(1), nic(2, max_mtu=4000), mgmt=1), TWO, [own(mtu=9000)])
    agent.run()
    row = agent.rows()["eth2", "mtu"]
    assert (row.current, row.effect, row.reason) == (
        "4000",
        "effective",
        '"eth2" supports at most 4000',
    )
    small = Tuned(machine(nic(1), nic(2, max_mtu=1500), mgmt=1), TWO, [own(mtu=9000)])
    assert tuning_texts(small.run()[0]) == []
    assert (small.rows()["eth2", "mtu"].effect, small.rows()["eth2", "mtu"].reason) == (
        "not applicable", '"eth2" supports at most 1500')  # fmt: skip


def test_a_larger_mtu_stays_also_if_it_was_set_by_hand_after_ours():
    agent = Tuned(host(), TWO, [own(mtu=9000)])
    agent.run()
    agent.kernel.set_mtu(2, 9216)
    assert texts(agent.plan()) == []


def test_a_profile_does_not_lower_what_we_have_restored():
    nic_lines = f"[interface {bare(2)}]\nmtu = 2000\ntxqueuelen = 2000\n"
    agent = Tuned(host(), f"{VLAN}mtu = 1300\n{nic_lines}")
    agent.run()
    agent.ask(VLAN)
    agent.run()
    agent.profiles = [own(mtu=1400, txqueuelen=500)]
    assert tuning_texts(agent.plan()) == []


def test_a_profile_does_not_lower_the_queue_of_a_new_vlan():
    agent = Tuned(host(), VLAN, [own(txqueuelen=500)])
    assert tuning_texts(agent.run()[0]) == []


def test_an_mtu_from_a_bond_is_not_taken_for_one_of_the_user():
    bond = f"[bond bond0]\nmode = active-backup\nmembers = {bare(2)}\n"
    agent = Tuned(host(), f"{bond}mtu = 1400\n", [own(mtu=1300)])
    agent.run()
    agent.ask(TWO)
    agent.run()
    assert agent.kernel.devices[2].mtu == 1500
    agent.ask(f"{bond}mtu = 1400\n")
    agent.run()
    agent.ask(bond.replace("active-backup", "broadcast"))
    agent.run()
    assert agent.kernel.named("bond0").mtu == 1500


@pytest.mark.parametrize("asked", ["", "mtu = 9000\n"])
def test_a_vlan_gets_no_more_than_a_member_that_stays_in_its_bond(asked):
    bond = f"[bond bond0]\nmode = balance-rr\nmembers = {bare(2)}, {bare(3)}\n"
    kernel = machine(nic(1, "mgmt0"), nic(2, max_mtu=9000), nic(3, max_mtu=9000), mgmt=1)
    agent = Tuned(kernel, bond, [])
    agent.run()
    agent.settings = agent.settings._replace(policy=Policy(ignored=frozenset({mac(3)})))
    agent.profiles = [own(mtu=2000)]
    agent.ask(f"[interface {bare(2)}]\n{asked}[vlan {bare(2)}.7]\n")
    done, result, _ = agent.run()
    assert not result.failures
    assert "create VLAN 7 on eth2 as eth2.7" in texts(done)
    assert (kernel.devices[2].mtu, kernel.named("eth2.7").mtu) == (1500, 1500)
    assert not agent.plan()


def test_what_was_set_on_a_nic_is_known_after_a_revert_while_the_nic_was_ignored():
    agent = Tuned(
        host(), f"{TWO}[interface {bare(2)}]\nmtu = 1300\n", [own(mtu=2000)], facts=Facts(VM)
    )
    agent.run()
    heeding = agent.settings
    agent.settings = heeding._replace(policy=Policy(ignored=frozenset({mac(2)})))
    agent.revert()
    agent.settings = heeding
    agent.ask(TWO)
    assert tuning_texts(agent.run()[0]) == ["set the MTU of eth2 from 1300 to 1500"]


def test_the_mtu_of_a_virtual_machine_is_not_raised():
    agent = Tuned(host(), TWO, [own(mtu=9000)], facts=Facts(VM))
    assert tuning_texts(agent.run()[0]) == []
    assert agent.rows()["eth2", "mtu"].reason == (
        "in a virtual machine (kvm) its maximum says nothing about the path; request an MTU by name")  # fmt: skip
    assert agent.kernel.devices[2].mtu == 1500


def test_auto_is_the_same_on_every_host_and_changes_no_link():
    auto = Choice(("auto",))
    for environment in (Environment(), VM):
        facts = Facts(environment, sysctls=KERNEL)
        found = judge_profiles(auto, TuningInputs((shipped("auto"),), facts=facts), Record())
        assert (found.mtu, found.txqueuelen, found.notes) == (None, None, ())
        assert found.sysctls[TCP] == "4096 131072 16777216"


@pytest.mark.parametrize("chosen", ["bbr", "cubic", "reno"])
def test_auto_leaves_the_congestion_control_of_the_host_alone(chosen):
    agent = Tuned(host(**{CONGESTION: chosen, AVAILABLE: f"reno htcp {chosen}"}), TWO)
    agent.profiles = [shipped("auto")]
    agent.run()
    assert agent.kernel.read_sysctl(CONGESTION) == chosen
    agent.profiles = [shipped("exogeni")]
    agent.run()
    assert agent.kernel.read_sysctl(CONGESTION) == "htcp"


def test_a_nic_in_state_user_or_down_is_left_alone():
    for state in ("user", "down"):
        agent = Tuned(
            host(), f"[interfaces]\n{bare(2)} = {state}\n", [own(mtu=9000, txqueuelen=10000)]
        )
        assert tuning_texts(agent.run()[0]) == []


# --- laws ------------------------------------------------------------------------------------------------------------

PATHS = (RMEM, TCP, "net/core/netdev_max_backlog", "net/ipv4/tcp_mtu_probing")
WIDTH = {TCP: 3}
SMALL = st.integers(0, 9)


@st.composite
def trees(draw):
    return {path: " ".join(str(draw(SMALL)) for _ in range(WIDTH.get(path, 1))) for path in PATHS}


@st.composite
def profiles(draw):
    asked = {path: " ".join(draw(st.sampled_from(("-", *"0123456789"))) for _ in range(WIDTH.get(path, 1)))
             for path in draw(st.lists(st.sampled_from(PATHS), unique=True))}  # fmt: skip
    return Profile(draw(st.sampled_from("abc")), asked, draw(st.sampled_from((None, 1400, 4000, 9000))),
                   draw(st.sampled_from((None, 500, 10000))))  # fmt: skip


HOSTS = st.builds(
    lambda tree, mtu: host(vlan(9, 2, 7, mtu=mtu, name="eth2.7"), **tree),
    trees(),
    st.sampled_from((1400, 1500)),
)


@given(
    HOSTS,
    st.lists(st.lists(profiles(), max_size=3), min_size=1, max_size=4),
    st.booleans(),
)
@LAWS
def test_applying_profiles_and_reverting_is_the_identity(kernel, rounds, restarts):
    before = (
        dict(kernel.sysctls),
        {index: (one.mtu, one.txqueuelen) for index, one in kernel.devices.items()},
    )
    agent = Tuned(kernel, VLAN)
    for some in rounds:
        agent.profiles = some
        agent.run(start=restarts or some is rounds[0])
    agent.revert()
    after = {path: value for path, value in kernel.sysctls.items() if path in before[0]}
    assert after == before[0]
    assert {index: (one.mtu, one.txqueuelen) for index, one in kernel.devices.items()} == before[1]


@given(HOSTS, st.lists(profiles(), max_size=3))
@LAWS
def test_no_profile_lowers_a_value_and_two_passes_write_once(kernel, some):
    before, mtus = dict(kernel.sysctls), {index: one.mtu for index, one in kernel.devices.items()}
    agent = Tuned(kernel, VLAN, some)
    agent.run()
    for path in PATHS:
        pairs = zip(map(int, kernel.sysctls[path].split()), map(int, before[path].split()))
        assert all(now >= then for now, then in pairs), path
    assert all(one.mtu >= mtus[index] for index, one in kernel.devices.items())
    assert texts(agent.plan()) == []
    assert all(
        is_same_sysctl(row.setting, row.current, row.desired)
        for row in agent.rows().values()
        if row.effect == "effective"
    )


@given(HOSTS, st.lists(profiles(), max_size=3), st.sampled_from(PATHS), st.integers(10, 12))
@LAWS
def test_what_somebody_raises_further_stays_over_any_number_of_passes(kernel, some, path, number):
    agent = Tuned(kernel, VLAN, some)
    agent.run()
    by_hand = " ".join([str(number)] * WIDTH.get(path, 1))
    kernel.write_sysctl(path, by_hand)
    for _ in range(3):
        agent.run()
    asked = any(path in one.sysctls for one in some)
    assert kernel.read_sysctl(path) == by_hand or not asked
