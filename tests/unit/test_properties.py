"""Laws that hold for every host and every document, tried on the model kernel: repeatable, since it is derandomised."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import tempfile
from collections import Counter
from ipaddress import ip_interface
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kernel import Kernel
from worlds import (
    ADDRESSES,
    LAWS,
    SYSCTLS,
    Agent,
    document_texts,
    kernels,
    mac,
    meddle,
    nic,
    policies,
    texts,
    world,
)

from neuca_tools.desired.names import rename_steps
from neuca_tools.desired.resolve import Settings, resolve_state
from neuca_tools.documents import find_document, parse
from neuca_tools.documents.stacking import lower_of
from neuca_tools.errors import DocumentError
from neuca_tools.model import (
    Incarnation,
    Link,
    LinkKey,
    NicRecord,
    OriginalValues,
    OwnedObjects,
    Record,
    Virtual,
    WrittenSetting,
)
from neuca_tools.model.device_settings import Declined
from neuca_tools.model.provenance import RTPROT_DHCP
from neuca_tools.plan.link_operations import CreateLink, DeleteLink
from neuca_tools.plan.operations import SetMtu
from neuca_tools.plan.plan import plan_operations
from neuca_tools.plan.sides import must_recreate
from neuca_tools.state import updates
from neuca_tools.state.records import load_record, save_record


@LAWS
@given(kernels(), document_texts(), policies())
def test_a_pass_fails_at_nothing_and_leaves_nothing_to_do(kernel, text, policy):
    agent = Agent(kernel, text, policy)
    _, result, _ = agent.run()
    assert [failure.text for failure in result.failures] == []
    assert [operation.text for operation in agent.plan()] == []


@LAWS
@given(
    kernels(),
    st.lists(document_texts(), min_size=2, max_size=3),
    st.lists(st.booleans(), min_size=3, max_size=3),
)
def test_after_a_document_has_changed_too_nothing_is_left_to_do(kernel, documents, reboots):
    agent = Agent(kernel)
    for text, reboot in zip(documents, reboots):
        if reboot:
            agent.reboot()
        agent.ask(text)
        _, result, _ = agent.run(start=reboot)
        assert [failure.text for failure in result.failures] == []
        assert texts(agent.plan(agent.survey().changed())) == []


@LAWS
@given(kernels(), st.lists(document_texts(), min_size=2, max_size=2), st.data())
def test_what_users_do_between_two_polls_makes_no_poll_fail(kernel, documents, data):
    agent = Agent(kernel)
    for text in documents:
        agent.ask(text)
        agent.run(start=False)
        for _ in range(data.draw(st.integers(0, 4))):
            meddle(data.draw, agent.kernel)
        _, result, _ = agent.run(start=False)
        assert [failure.text for failure in result.failures] == []


@LAWS
@given(kernels(), document_texts(), policies())
def test_what_is_there_already_needs_no_operation(kernel, text, policy):
    agent = Agent(kernel, text, policy)
    agent.run()
    observed = agent.survey().observed
    owned = OwnedObjects(
        frozenset((key, one) for key, link in observed.links.items() for one in link.addresses),
        frozenset(observed.links),
        True,
    )
    assert plan_operations(observed, observed, owned) == ()
    assert plan_operations(observed, observed, owned, rename_while_up=False) == ()


def forbidden(kernel, policy):
    """Every device that is management or ignored, or stacked on one that is; found anew here, not by the product."""
    world = kernel.world()
    defaults = [one for one in world.routes if one.to.prefixlen == 0]
    if any({one.mac, one.permanent_mac} & policy.management for one in world.devices.values()):
        # The configuration decides: a DHCP server cannot make another NIC a management NIC.
        defaults = [one for one in defaults if one.protocol != RTPROT_DHCP]
    best = {
        one.index
        for one in defaults
        if one.metric
        == min(other.metric for other in defaults if other.to.version == one.to.version)
    }
    ways = {one.index for one in world.routes if one.protocol == RTPROT_DHCP} - best
    reached = {index for index in (*best, world.metadata_index) if index} - ways
    while True:  # down to what carries them
        lower = {world.devices[index].lower for index in reached} | {
            one.index for one in world.devices.values() if one.master in reached
        }
        if lower - {0} <= reached:
            break
        reached |= lower - {0}
    hands_off = {
        one.index
        for one in world.devices.values()
        if {one.mac, one.permanent_mac} & (policy.ignored | policy.management)
    }
    twins = {
        one.permanent_mac or one.mac
        for one in world.devices.values()
        if one.index in reached and (one.hardware or one.kind == "veth")
    }
    reached |= hands_off | {
        one.index for one in world.devices.values() if one.permanent_mac in twins
    }
    while True:  # and up to what is stacked on them
        upper = {one.index for one in world.devices.values() if one.lower in reached}
        upper |= {world.devices[index].master for index in reached} - {0}
        if upper <= reached:
            return reached
        reached |= upper


def _without_comments(content):
    """A rule file quotes what the document says of the NIC, which may be the MAC of another one."""
    return "\n".join(line for line in content.decode().splitlines() if not line.startswith("#"))


@LAWS
@given(kernels(), st.lists(document_texts(), min_size=1, max_size=2), policies())
def test_nothing_is_written_to_management_or_ignored_nics_or_their_upper_devices(
    kernel, documents, policy
):
    shut = forbidden(kernel, policy)
    seen = {index: one for index, one in kernel.devices.items() if index in shut}
    agent = Agent(kernel, "", policy)
    kernel.written.clear()
    for text in documents:
        agent.ask(text)
        _, result, _ = agent.run()
        assert [failure for failure in result.failures if "may write to" in failure.reason] == []
    assert [kernel.devices.get(index) for index in set(kernel.written) & shut] == []
    assert {index: one for index, one in kernel.devices.items() if index in shut} == seen
    assert [
        path
        for path, content in kernel.files.items()
        for one in policy.ignored
        if content and (one.replace(":", "") in path or one in _without_comments(content))
    ] == []


@LAWS
@given(kernels(), document_texts(), policies())
def test_no_operation_is_about_a_default_route(kernel, text, policy):
    operations, _, _ = Agent(kernel, text, policy).run()
    assert [
        one.text
        for one in operations
        if getattr(one, "to", None) is not None and one.to.prefixlen == 0
    ] == []


@LAWS
@given(kernels(), st.lists(document_texts(), min_size=1, max_size=2))
def test_no_prefix_of_the_operations_puts_a_vlan_above_its_nic(kernel, documents):
    agent = Agent(kernel)
    for text in documents:
        agent.ask(text)
        survey = agent.survey()
        mtus = {key: link.mtu for key, link in survey.observed.links.items()}
        # One whose MTU was refused, or that would have to be recreated and may not be deleted (an incomplete document), is
        # left to the kernel, which lowers it with its NIC.
        deleted = {step.on.key for step in survey.plan() if isinstance(step, DeleteLink)}
        planned = {
            key
            for key, link in survey.desired.links.items()
            if link.mtu
            and (key in deleted or not must_recreate(survey.observed.links.get(key, link), link))
        }
        for operation in survey.plan():
            if isinstance(operation, SetMtu):
                mtus[operation.on.key] = operation.after
            elif isinstance(operation, CreateLink) and operation.on.key.vlan_id:
                mtus[operation.on.key] = operation.mtu or mtus[operation.on.key.nic]
            elif isinstance(operation, DeleteLink):
                del mtus[operation.on.key]
            above = {key for key, mtu in mtus.items() if mtu > mtus.get(key.nic, mtu)}
            assert above & planned == set(), operation.text
        agent.run()


@LAWS
@given(kernels(), document_texts(), st.integers(0, 30), st.booleans())
def test_from_any_point_of_a_pass_the_way_back_leads_to_the_state_before(
    kernel, text, steps, all_nics
):
    agent = Agent(kernel, text)
    before = agent.survey()
    before = before._replace(record=updates.remember_nics(before.record, before.resolution))
    operations = [one for one in before.plan() if one.domain]
    done = agent.carry_out(before, operations[:steps]).done
    now = agent.survey(before.record)
    owned = OwnedObjects(
        frozenset((one.on.key, one.address) for one in done if one.kind == "add-address"),
        frozenset(one.on.key for one in done if one.kind == "create-link"),
        True,
    )
    scope = None if all_nics else {one.domain for one in operations}
    was = before.observed._replace(files=now.observed.files)
    for _ in range(2):  # the kernel's own side effects need a second round, as in a pass
        now = agent.survey(before.record._replace(owned=owned))
        agent.carry_out(
            now,
            plan_operations(
                now.observed, was, owned, scope=scope, rename_while_up=now.world.rename_while_up
            ),
        )
    assert _own(agent.survey(before.record._replace(owned=owned)).observed) == _own(before.observed)


def _own(state):
    links = {
        key: (
            link.name,
            link.state,
            link.mtu,
            link.txqueuelen,
            link.sysctls,
            {one for one in link.addresses if not one.is_link_local},
        )
        for key, link in state.links.items()
    }
    return links, {hop for hop in state.hops if hop.ours}


def users_keep_theirs(kernel, text, passes):
    """Addresses and routes of users are there after these passes, but for what the kernel itself drops."""
    addresses = {
        (index, one)
        for index, found in kernel.addresses.items()
        for one in found
        if not one.is_link_local
    }
    routes = set(kernel.world().routes)
    was_up = {index for index, device in kernel.devices.items() if device.up}
    masters = {index: device.master for index, device in kernel.devices.items()}
    agent = Agent(kernel, text)
    for _ in range(passes):
        agent.run()
    banned = set(agent.survey().resolution.desired.banned)
    # An MTU below 1280 ends IPv6. A new member of a bond or a VRF goes down, which ends IPv6 addresses and all routes.
    ipv6 = {
        index
        for index, device in kernel.devices.items()
        if device.mtu >= 1280 and device.master == masters.get(index)
    }
    now = {(index, one) for index, found in agent.kernel.addresses.items() for one in found}
    lost = {(index, one) for index, one in addresses - now if one.version == 4 or index in ipv6}
    assert lost == set()
    still_up = {index for index in was_up & ipv6 if kernel.devices[index].up}
    assert {
        one for one in routes - set(kernel.routes) if one.index in still_up and one.to not in banned
    } == set()


@LAWS
@given(kernels(rename_while_up=True), document_texts(), st.integers(1, 2))
def test_addresses_and_routes_of_users_stay(kernel, text, passes):
    users_keep_theirs(kernel, text, passes)


@pytest.mark.parametrize(
    "text",
    [
        f"[bond bond0]\nmembers = {mac(1)}\nmode = active-backup\n",
        f"[vrf red]\nmembers = {mac(1)}\ntable = 100\n",
    ],
    ids=["bond", "vrf"],
)
def test_a_new_member_keeps_the_ipv4_addresses_of_users(text):
    kernel = Kernel(world(nic(1)))
    kernel.set_up(1, True)
    kernel.add_address(1, ip_interface("10.0.0.1/24"))
    kernel.add_address(1, ip_interface("fd00:1::1/64"))
    users_keep_theirs(kernel, text, 1)


@LAWS
@given(kernels(), document_texts(faulty=False), document_texts(faulty=False), st.integers(2, 4))
def test_an_incomplete_document_takes_nothing_from_nics_that_it_is_not_sure_of(
    kernel, good, other, number
):
    agent = Agent(kernel, good)
    agent.run()
    agent.ask(f"{other}[interface {mac(number)}]\nmtu = much\n[interfaces]\nnonsense = 1\n")
    named = {link.key.mac for link in agent.document.links}
    for operation in agent.plan():
        assert operation.domain in named | {None} or operation.kind == "delete-route", (
            operation.text
        )
        taken = operation.kind in ("delete-address", "delete-link")
        assert not (taken and operation.domain == mac(number)), operation.text


def _addresses_requested_twice(document, roles, one):
    """Those of this NIC that several dataplane links request: none of them gets it."""
    links = [link for link in document.links if link.state != "user"]
    asking = [link for link in links if roles.role_of(link.key) == "dataplane"]
    requests = Counter(ip for link in asking for ip in {address.ip for address in link.addresses})
    own = {address.ip for link in links if link.key.mac == one for address in link.addresses}
    return sorted(
        str(ip) for ip in own if requests[ip] > 1 and not (ip.version == 6 and ip.is_link_local)
    )


def _brought_up(document):
    """The links that no line gives a state, and that an upper link needs up, directly or not."""
    states = {link.key: link.state for link in document.links}
    brought_up = set()
    for _ in document.links:  # as deep as any stack can be
        for link in document.links:
            if states[link.key] == "up":
                below = {link.key.nic, *lower_of(link)}
                brought_up |= {key for key in below if states.get(key, "user") is None}
        states.update(dict.fromkeys(brought_up, "up"))
    return brought_up


def _requests(document, roles, one):
    """Its own, what it is to be a part of, and whether that brings it up."""
    own = sorted(repr(link._replace(origins=())) for link in document.links if link.key.mac == one)
    uppers = [
        str(link.key) for link in document.links for lower in lower_of(link) if lower.mac == one
    ]
    brought_up = sorted(str(key) for key in _brought_up(document) if key.mac == one)
    return own, sorted(uppers), brought_up, _addresses_requested_twice(document, roles, one)


def _waits_for_ipv6(document, resolution, one):
    """Whether it may have IPv6 addresses that are not set before its link has IPv6."""
    own = [link for link in document.links if link.key.mac == one]
    return resolution.lacks_ipv6 and any(
        address.version == 6 for link in own for address in link.addresses
    )


def _without_routes(text):
    return text.partition("[routes]")[0]


@LAWS
@given(kernels(), kernels(), document_texts(faulty=False), document_texts(faulty=False))
def test_the_digest_of_a_nic_changes_exactly_when_its_request_does(
    one_kernel, other_kernel, text, other_text
):
    first, second = (
        parse(_without_routes(text)),
        parse("# another line\n" + _without_routes(other_text)),
    )
    before = resolve_state(first, Settings(), one_kernel.world(), Record())
    after = resolve_state(second, Settings(), other_kernel.world(), Record())
    for one in {link.key.mac for link in first.links} & {link.key.mac for link in second.links}:
        is_same = _requests(first, before.roles, one) == _requests(second, after.roles, one)
        waits = _waits_for_ipv6(first, before, one) or _waits_for_ipv6(second, after, one)
        if before.digests[one] == after.digests[one]:
            assert is_same
        else:
            assert waits or not is_same


@LAWS
@given(st.text(max_size=200), document_texts(), kernels(), policies())
def test_no_document_makes_a_plan_raise(noise, text, kernel, policy):
    for content in (noise, text.replace("up", noise[:5]), text + noise):
        try:
            document = parse(content)
        except DocumentError:
            continue
        agent = Agent(kernel, "", policy)
        agent.document = document
        agent.plan()
        agent.plan({mac(2)})


@LAWS
@given(st.binary(max_size=300), kernels())
def test_no_bytes_make_a_plan_raise(data, kernel):
    try:
        text = find_document(data)
        agent = Agent(kernel, text or "")
    except DocumentError:
        return
    agent.plan()


@LAWS
@given(
    st.permutations([f"eth{number}" for number in range(8)]),
    st.lists(st.integers(0, 11), min_size=8, max_size=8, unique=True),
)
def test_renames_never_meet_a_name_in_use_and_end_as_wanted(order, numbers):
    keys = [LinkKey(mac(number)) for number in range(8)]
    current = dict(zip(keys, order))
    wanted = {key: f"eth{number}" for key, number in zip(keys, numbers)}
    now = dict(current)
    for step in rename_steps(current, wanted):
        assert now[step.key] == step.old
        assert step.new not in now.values()
        now[step.key] = step.new
    assert now == wanted


@pytest.mark.parametrize("length", [2, 3, 7, 40])
def test_a_cycle_of_names_costs_one_step_more_than_it_has_names(length):
    keys = [LinkKey(mac(number)) for number in range(length)]
    current = {key: f"eth{number}" for number, key in enumerate(keys)}
    wanted = {key: f"eth{(number + 1) % length}" for number, key in enumerate(keys)}
    assert len(rename_steps(current, wanted)) == length + 1


names = st.text(min_size=1, max_size=15)
nic_names = st.one_of(
    st.just(""), st.from_regex(r"[A-Za-z0-9é@_][A-Za-z0-9@._-]{0,13}", fullmatch=True)
)
link_keys = st.builds(
    LinkKey, st.integers(1, 255).map(mac), st.one_of(st.none(), st.integers(1, 4094))
)
values = st.dictionaries(st.sampled_from(SYSCTLS), names, max_size=2)
numbers = st.one_of(st.none(), st.integers(0, 1 << 31))
owned = st.builds(
    OwnedObjects,
    st.frozensets(
        st.tuples(
            link_keys,
            st.sampled_from(ADDRESSES).map(
                lambda text: (
                    parse(f"[interface {mac(1)}]\naddresses = {text}\n").links[0].addresses[0]
                )
            ),
        ),
        max_size=4,
    ),
    st.frozensets(link_keys, max_size=4),
    st.just(False),
)
indexes = st.integers(1, 1 << 31)
incarnations = st.builds(
    Incarnation,
    st.uuids().map(str),
    indexes,
    st.lists(st.tuples(st.integers(1, 4094), indexes), max_size=3).map(tuple),
)
written = st.builds(WrittenSetting, st.sampled_from(("mtu", "txqueuelen")), link_keys) | st.builds(
    WrittenSetting, st.sampled_from(("net/core/rmem_max", "net/ipv4/tcp_rmem")), st.none()
)
virtual = st.builds(
    Virtual,
    st.lists(link_keys, max_size=2).map(tuple),
    st.none() | link_keys,
    st.dictionaries(names, names, max_size=2).map(lambda options: tuple(options.items())),
)
made = st.dictionaries(link_keys, st.none() | virtual, max_size=3).flatmap(
    lambda parts: st.builds(
        lambda sysctls, device: {
            key: Link(key, key.kind, "dataplane", virtual=part, sysctls=sysctls, device=device)
            for key, part in parts.items()
        },
        values,
        values,
    )
)
records = st.builds(
    Record,
    names,
    st.dictionaries(
        st.integers(1, 255).map(mac),
        st.builds(
            NicRecord,
            nic_names,
            st.sampled_from(("", "dataplane", "management")),
            st.booleans(),
            names,
            st.none() | incarnations,
            st.just(""),
            st.just(()),
            st.just(False),
        ),
        max_size=3,
    ),
    owned,
    st.dictionaries(
        link_keys, st.builds(OriginalValues, numbers, numbers, values, values), max_size=3
    ),
    values,
    names,
    declined=st.dictionaries(
        link_keys,
        st.dictionaries(
            names,
            st.builds(Declined, names, st.sampled_from(("not applicable", "unsupported")), names),
            max_size=2,
        ),
        max_size=2,
    ),
    written=st.dictionaries(written, names, max_size=4),
    management_networks=st.just(()),
    tables=st.just({}),
    routers=st.dictionaries(link_keys, st.ip_addresses(v=6), max_size=2),
    retry=st.just(()),
    made=made,
)


@LAWS
@given(records)
def test_a_record_comes_back_as_it_was_written(record):
    with tempfile.TemporaryDirectory() as directory:
        save_record(Path(directory), record)
        assert load_record(Path(directory)) == record


def test_a_vxlan_that_an_incomplete_document_asks_for_otherwise_keeps_its_mtu():
    """It cannot be made anew, and what it was made with leaves less room than what is asked for."""
    agent = Agent(Kernel(world(nic(1))))
    link = f"[interface {mac(1)}]\naddresses = 10.0.0.1/24\n[vxlan vx0]\nid = 5\nlocal = "
    agent.ask(f"{link}fd00:1::1\nparent = {mac(1)}\n")
    agent.run()
    agent.ask(f"{link}10.0.0.1\nname = eth1\n")
    assert not agent.document.is_complete
    assert [failure.text for failure in agent.run()[1].failures] == []
    assert agent.plan() == ()


def test_files_follow_a_name_that_only_a_rename_of_the_same_pass_frees():
    agent = Agent(Kernel(world(nic(1), nic(2, "br0"))))
    agent.ask(f"[interface {mac(2)}]\nname = data0\n[bridge br0]\nstate = up\n")
    assert agent.run()[1].failures == ()
    assert [operation.text for operation in agent.plan()] == []
