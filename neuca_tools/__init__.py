"""neuca-guest-tools: the agent that configures a guest's dataplane network as its user-data asks.

Data flows one way: sources give bytes, documents make sense of them, `apply.look` reads the host,
`apply.decide` answers every policy question, `apply.transaction` changes the host. Start reading at
`agent.reconcile`, which is one pass. The packages, in the order in which they may import each other:

errors     one exception class for each stage, and the exit codes
files      reading and writing files: whole, synced, locked, and never through a link of somebody else's
model      the frozen types that all stages share, and what stands on what (`model.topology`)
documents  what bytes say: a Document, with its faults; NEuca's own format and the platforms' formats
tuning     profiles judged against a host, and which sysctls a document may set
desired    what should be: roles, names, links, routes, files, and what is refused (`desired.safety`)
plan       two states become a tuple of operations: the only place that decides what happens in which order
backends   one module for each thing that we speak to: netlink, sysctl, udev, D-Bus, systemd, ethtool
selftest   what an iperf run says of a path, and what to do; `selftest.measure` runs tests, the rest is pure
sources    where documents come from: bytes, or a SourceError, which never means "there is none"
state      what is kept: records, the journal, the active document, what managers left behind
config     the agent's own configuration: options with their bounds
status     how far the host is from what is asked (`status.judge`), and its texts
apply      look, decide, transaction: mark, journal, apply, verify, undo, remember
guest      what is not network: host name, users, scripts, storage
agent      the daemon and its worker, passes, boot names, release, image clean
commands   `neucad` and `neuca SUBCOMMAND`: thin

tests/unit/test_layering.py holds this order, and that what decides touches neither files nor clocks.
"""

# SPDX-License-Identifier: MIT

__version__ = "2.0.0"
