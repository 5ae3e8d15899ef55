"""Plays a network manager or systemd-hostnamed on the bus with python-dbusmock, until it is killed: NAME DEVICES FAULTS.

Both are JSON. A device is [interface, state]. A fault: `ghosts` (devices of that name are listed, but gone when asked),
`malformed` (Describe returns no JSON), `refuse` (an error answers Reload), `slow` (Reload takes longer than a query may).
The one device of hostnamed is the file that it writes the name to.
"""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import json
import os
import sys

import dbus
import dbus.mainloop.glib
from dbusmock import mockobject
from dbusmock.templates import networkmanager
from gi.repository import GLib

NETWORKD = "/org/freedesktop/network1"
SLOW = "__import__('time').sleep(1.5)"
REFUSE = r"raise dbus.exceptions.DBusException('no,\n  not now', name='org.example.Error.Refused')"


def play_networkmanager(name, devices, faults):
    main = mockobject.DBusMockObject(
        name, "/org/freedesktop", "org.example.Main", {}, is_object_manager=True
    )
    mockobject.objects["/org/freedesktop"] = main
    main.AddTemplate("networkmanager", {})
    if "refuse" in faults:
        manager = mockobject.objects[networkmanager.MANAGER_OBJ]
        manager.AddMethod(networkmanager.MANAGER_IFACE, "Reload", "u", "", REFUSE)
    for interface, state in devices:
        device = mockobject.objects[main.AddEthernetDevice(interface, interface, state)]
        managed = dbus.Boolean(state != networkmanager.DeviceState.UNMANAGED)
        device.UpdateProperties(networkmanager.DEVICE_IFACE, {"Managed": managed})
        device.AddProperties(
            networkmanager.DEVICE_IFACE, {"Real": dbus.Boolean(interface != "placeholder")}
        )
        if "ghosts" in faults and interface.startswith("ghost"):
            device.remove_from_connection()


def play_networkd(name, devices, faults):
    main = mockobject.DBusMockObject(name, NETWORKD, "org.freedesktop.network1.Manager", {})
    mockobject.objects[NETWORKD] = main
    described = {
        "Interfaces": [
            {"Name": interface, "AdministrativeState": state} for interface, state in devices
        ]
    }
    text = "no JSON" if "malformed" in faults else json.dumps(described)
    main.AddMethod("", "Describe", "", "s", f"ret = {text!r}")
    reload = {"refuse": REFUSE, "slow": SLOW}.get(
        "".join(faults), "self.EmitSignal('', 'Reloaded', '', [])"
    )
    main.AddMethod("", "Reload", "", "", reload)


def play_hostnamed(name, devices, faults):
    main = mockobject.DBusMockObject(
        name, "/org/freedesktop/hostname1", "org.freedesktop.hostname1", {}
    )
    mockobject.objects["/org/freedesktop/hostname1"] = main
    write = f"open({devices[0][0]!r}, 'w').write(f'{{args[0]}} {{bool(args[1])}}')"
    main.AddMethod("", "SetStaticHostname", "sb", "", REFUSE if "refuse" in faults else write)


def play_systemd(name, devices, faults):
    """`devices` are the units of DHCP clients with their states; a job for one adds a line to the file of the first."""
    path, manager = "/org/freedesktop/systemd1", "org.freedesktop.systemd1.Manager"
    main = mockobject.DBusMockObject(name, path, manager, {})
    mockobject.objects[path] = main
    (log, _), *units = devices
    rows = [(unit, "", "loaded", state, "", "", path, 0, "", path) for unit, state in units]
    main.AddMethod("", "ListUnitsByPatterns", "asas", "a(ssssssouso)", f"ret = {rows!r}")
    for member in ("RestartUnit", "StopUnit"):
        write = f"open({log!r}, 'a').write(f'{member} {{args[0]}} {{args[1]}}\\n'); ret = {path!r}"
        main.AddMethod("", member, "ss", "o", REFUSE if "refuse" in faults else write)


def main():
    with os.fdopen(os.dup(1), "w") as parent:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # python-dbusmock writes its log there
        serve(parent)


def serve(parent):
    name, devices, faults = sys.argv[1], json.loads(sys.argv[2]), json.loads(sys.argv[3])
    dbus.mainloop.glib.DBusGMainLoop(set_as_default=True)
    bus_name = dbus.service.BusName(name, dbus.SystemBus(), do_not_queue=True)
    others = {
        "org.freedesktop.network1": play_networkd,
        "org.freedesktop.hostname1": play_hostnamed,
        "org.freedesktop.systemd1": play_systemd,
    }
    play = others.get(name, play_networkmanager)
    play(bus_name, devices, faults)
    print("ready", file=parent, flush=True)
    GLib.MainLoop().run()


if __name__ == "__main__":
    main()
