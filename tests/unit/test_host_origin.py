"""Plan, which records nothing, decides with the NIC through which its own answer came, as the pass after it does."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import pytest

from neuca_tools.apply.host import Host
from neuca_tools.config import Config
from neuca_tools.model.machine import Machine, MetadataService
from neuca_tools.state.active_document import Intake, keep_document
from neuca_tools.state.records import save_machine

URL = "http://169.254.169.254"
FIRST, SECOND = (
    MetadataService("openstack", URL, mac) for mac in ("02:00:00:00:00:01", "02:00:00:00:00:02")
)


@pytest.fixture
def config(tmp_path):
    return Config()._replace(state_directory=tmp_path / "state", run_directory=tmp_path / "run")


def origin(config, intake):
    return Host(config, intake, None, None)._origin()


def test_the_answer_counts_before_it_is_recorded_and_also_afterwards(config):
    config.run_directory.mkdir()
    assert origin(config, Intake()) == ""
    answer = Intake(origin=FIRST)
    assert origin(config, answer) == FIRST.mac
    keep_document(answer, config.state, config.run_directory)
    assert origin(config, answer) == origin(config, Intake()) == FIRST.mac


def test_another_answer_takes_the_place_of_the_recorded_one_as_in_a_pass(config):
    save_machine(config.state, Machine(origin=FIRST))
    assert origin(config, Intake(origin=SECOND)) == SECOND.mac
    ignored = config._replace(ignored_macs=frozenset({SECOND.mac}))
    assert origin(ignored, Intake(origin=SECOND)) == ""
