"""neuca-guest-tools: the agent that configures a guest's dataplane network as its user-data asks.

Data flows one way: sources return bytes, documents parse them, `apply.look` reads the host,
`apply.decide` makes every policy decision, `apply.transaction` changes the host. Start reading at
`agent.reconcile`, which is one pass. The packages, in the order in which they may import others:

errors     one exception class for each stage, and the exit codes
libc       functions that Python lacks
files      reading and writing files: whole, synced, locked, and never through foreign links
model      the frozen types that all stages share, and upper and lower devices (`model.topology`)
documents  parsers from text to a Document with its faults: NEuca's own format and the platforms'
tuning     profiles judged against a host, and which sysctls a document may set
desired    the desired state: roles, names, links, routes, files, and refusals (`desired.safety`)
plan       the operations that lead from one state to another, in order; nothing else orders them
backends   one module for each interface: netlink, sysctl, udev, D-Bus, systemd, ethtool
selftest   diagnosis of iperf runs; `selftest.measure` runs tests, the rest has no side effects
sources    where documents come from: bytes, or a SourceError, which never means "there is none"
state      what is kept: records, the journal, the active document, what managers left behind
config     the agent's own configuration: options with their bounds
status     how far the host is from the desired state (`status.judge`), and its texts
apply      look, decide, transaction: mark, journal, apply, verify, roll back, remember
guest      what is not network: host name, users, scripts, storage
agent      the daemon and its worker, passes, boot names, release, image clean and capture
commands   `neucad` and `neuca SUBCOMMAND`: thin

tests/unit/test_layering.py enforces this order, and that pure modules use no files or clocks.
"""

# SPDX-License-Identifier: MIT

__version__ = "2.0.0"
