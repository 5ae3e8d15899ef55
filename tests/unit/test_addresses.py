"""Addresses that keep their hash and host, compared with those of the library."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import copy
import pickle
from ipaddress import ip_interface

import pytest

from neuca_tools.model.addresses import address_of

WRITTEN = ["0.0.0.0/0", "10.1.2.3/24", "10.1.2.3/32", "::/0", "fe80::1/64", "2001:db8::5/128"]


@pytest.mark.parametrize("text", WRITTEN)
def test_an_address_is_that_of_the_library(text):
    theirs = ip_interface(text)
    ours = address_of(theirs.packed, theirs.network.prefixlen)
    assert ours == theirs
    assert {ours} == {theirs}
    for view in (str, repr, hash):
        assert view(ours) == view(theirs)
    assert (ours.ip, ours.network, ours.netmask) == (theirs.ip, theirs.network, theirs.netmask)


@pytest.mark.parametrize("text", WRITTEN)
def test_a_copy_of_an_address_is_the_same(text):
    theirs = ip_interface(text)
    ours = address_of(theirs.packed, theirs.network.prefixlen)
    for same in (copy.copy(ours), pickle.loads(pickle.dumps(ours))):
        assert (same, hash(same), same.ip) == (theirs, hash(theirs), theirs.ip)
