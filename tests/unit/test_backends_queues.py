"""CPUs of queues over a tree of files as the kernel has them: more CPUs than this machine has."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import pytest

from neuca_tools.backends import queues as backend
from neuca_tools.backends.queues import Queues, _cpu_list, _cpu_mask
from neuca_tools.errors import ApplyError
from neuca_tools.model.device_settings import DeviceSettings


@pytest.fixture
def tree(tmp_path):
    """eth1, index 2, with three receive queues, on a host with eight CPUs."""
    files = {
        "sys/class/net/eth1/ifindex": "2\n",
        "sys/class/net/eth1/queues/rx-0/rps_cpus": "00000000,0000000f\n",
        "sys/class/net/eth1/queues/rx-1/rps_cpus": "00000000,0000000f\n",
        "sys/class/net/eth1/queues/rx-10/rps_cpus": "00000000,00000000\n",
        "sys/devices/system/cpu/online": "0-7\n",
    }
    for path, text in files.items():
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(text)
    return tmp_path


def queues(tree, index=2):
    return Queues(index, "eth1", tree / "sys")


def test_the_cpus_of_each_receive_queue_in_the_order_of_their_numbers(tree):
    assert queues(tree).read(["rps"]) == DeviceSettings(
        {"rps": "0-3 / 0-3 / none"}, {"rps": "0-7", "rps.queues": "3"}, {}
    )
    queues(tree).write("rps", "0,33")
    assert queues(tree).read(["rps"]).values == {"rps": "0,33"}
    queues(tree).write("rps", "0-3 / 0-3 / none")
    assert (tree / "sys/class/net/eth1/queues/rx-10/rps_cpus").read_text() == "0"
    assert queues(tree).read(["rps"]).values == {"rps": "0-3 / 0-3 / none"}


@pytest.mark.parametrize(
    ("path", "text", "group", "reason"),
    [
        ("sys/class/net/eth1/ifindex", "3\n", "rps", "/sys does not show this network namespace"),
        (
            "sys/class/net/eth1/ifindex",
            "2\n",
            "xps",
            "the device has no transmit queues to choose from",
        ),
    ],
)
def test_what_is_not_there_has_its_reason(tree, path, text, group, reason):
    (tree / path).write_text(text)
    assert queues(tree).read([group]) == DeviceSettings({}, {}, {group: reason})


def test_another_device_of_that_name_is_not_touched(tree):
    with pytest.raises(ApplyError) as refused:
        queues(tree, 3).write("rps", "0")
    assert refused.value.text == f'"{tree}/sys/class/net/eth1" is a different device now'


@pytest.mark.parametrize("cpus", ["0", "0-3", "1,3,64-95", "31-32", "none"])
def test_a_list_is_a_mask_and_back(cpus):
    assert _cpu_list(_cpu_mask(cpus)) == cpus


def test_a_number_of_the_device_is_read_and_set_in_its_file(tree):
    file = tree / "sys/class/net/eth1/gro_flush_timeout"
    file.write_text("0\n")
    assert queues(tree).read(["gro_flush_timeout"]) == DeviceSettings({"gro_flush_timeout": "0"})
    queues(tree).write("gro_flush_timeout", "20000")
    assert file.read_text() == "20000"


def test_a_number_that_the_kernel_lacks_is_unsupported(tree):
    reason = {"napi_defer_hard_irqs": "this kernel has no napi_defer_hard_irqs"}
    assert queues(tree).read(["napi_defer_hard_irqs"]) == DeviceSettings(
        missing=reason, unsupported=frozenset(reason)
    )


# The handle of the root, its kind, and the qdiscs of its queues; what they are in a document.
QDISCS = [
    (1 << 16, "fq", [], "fq"),
    (0, "noqueue", [], "default noqueue"),
    (0, "mq", [], "default mq"),
    (0, "mq", ["fq_codel", "fq_codel"], "default fq_codel"),
    (0, "mq", ["fq_codel", "fq"], "default mixed"),
    (8 << 16, "mq", ["fq", "fq"], "fq"),
    (8 << 16, "mq", ["fq", "pfifo"], "mixed"),
]


@pytest.mark.parametrize(("handle", "kind", "leaves", "text"), QDISCS)
def test_the_qdisc_of_a_device_is_the_one_that_all_its_queues_share(handle, kind, leaves, text):
    root = backend._Qdisc(handle, backend.ROOT, kind, b"")
    queues_of_root = [
        backend._Qdisc(0, handle | number, leaf, b"") for number, leaf in enumerate(leaves, 1)
    ]
    elsewhere = backend._Qdisc(0, 9 << 16 | 1, "ingress", b"")
    assert backend._device_text([*queues_of_root, elsewhere, root]) == text
    assert backend._device_text([elsewhere]) == "default"
