"""neuca-guest-tools: the agent that keeps a guest's dataplane network as its user-data asks.

The map of the house, in the order in which a pass goes through it (start reading at `reconcile`):

sources/      where a document comes from: bytes, or a SourceError (which never means "there is no document")
approach      which NICs the sources may use (`outlets` decides), through a compact look of its own
drives        what a config drive or NoCloud volume says, copied to where the sources find it; `volumes`: which of them count
documents/    what the bytes say: a Document, its faults beside it
observe       what this host has: a World, read through the backends
roles, names  which NIC is dataplane, management, ignored or unlisted; which name each one keeps
layers        configuration over NEuca document over platform's documents; and so, which NIC the platform may name
tuning/       profiles/*.conf, judged against the host: the weakest layer of what is wanted
stacks, sizes which bonds, bridges, VXLANs and macvlans can be made, and of what; the MTU that each link may have
desired       the Document resolved against the World: a NetworkState
forwarding    whether the host is a router, and when it may not be
guard, marks  what must be refused, with its reason; which files tell other managers to keep off
coverage      how many public addresses a document may route
sysctls       which settings of the whole host a document may change
leftovers     what a network manager had put on a NIC before it was ours
plan          two NetworkStates become a tuple of operations: the only place that decides
apply         operations become calls: the only place that acts; a journal before, a rollback after a failure
verify        asks again until nothing is left to do, or patience ends
record        what we added and what was there before us, in the state directory
store         how state files are read and written; where they are while the disk takes nothing
rounds        which operations of a plan a pass carries out now
firstboot     what another machine left on this disk is set aside; `machine` tells whose it is
status        how far the host is from what is asked, with a reason for each shortfall
guest/        what is not network: host name, users; in a process of its own, after a pass
sealing       which files of this host the clones of its image must not inherit
reconcile     one pass over all of the above; `daemon` makes passes when something changes
backends/     one module for each thing we speak to: netlink, sysctl, udev, the D-Bus, systemd
selftest/     what an iperf run says of a path, and what to do: readers, evidence, conditions, reports; no part of a pass.
              selftest/running measures
plain         texts of others, shown without what a terminal would obey
commands/     `neucad` and `neuca SUBCOMMAND`: thin
model, errors the types and the exceptions that all of them share (`stored`: the last
              document); config is the agent's own configuration

Data flows one way and imports point down: commands, daemon, reconcile, then the stages, then backends. The stages that
decide touch neither files nor clocks. tests/unit/test_layering.py holds all of this.
"""

# SPDX-License-Identifier: MIT

__version__ = "2.0.0"
