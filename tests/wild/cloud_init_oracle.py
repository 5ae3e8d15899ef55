"""Runs with cloud-init's own modules on its path: reads documents as JSON, prints what cloud-init understands."""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import json
import logging
import sys

import yaml
from cloudinit.net.network_state import parse_net_config_data
from cloudinit.sources.helpers.openstack import convert_net_json


def understood(kind, text):
    """Interfaces and routes without a link."""
    tree = yaml.safe_load(text)
    if kind == "network_data.json":
        macs = {
            link["ethernet_mac_address"].lower()
            for link in tree.get("links", ())
            if link.get("ethernet_mac_address")
        }
        tree = convert_net_json(tree, known_macs={mac: f"nic {mac}" for mac in macs})
    elif isinstance(tree.get("network"), dict):
        tree = tree["network"]
    state = parse_net_config_data(tree, skip_broken=False)
    return {"interfaces": list(state.iter_interfaces()), "routes": list(state.iter_routes())}


def answer(kind, text):
    try:
        return understood(kind, text)
    except Exception as error:  # noqa: BLE001 - whatever it raises, it has refused the document
        return {"error": f"{type(error).__name__}: {error}"}


if __name__ == "__main__":
    logging.disable(logging.CRITICAL)
    json.dump([answer(*document) for document in json.load(sys.stdin)], sys.stdout, default=str)
