"""The part of the self-test that sends packets and starts programs, to fill in the Evidence.

session     a whole test of one peer, step by step
iperf/      the throughput steps: plans, one run of iperf3 with both ends sampled
probes/     reachability, round trips, path MTU
host/       the state of this host, and what the agent has planned for it
helper/     the server that a peer runs, its client, and the signed channel between them
program     a program started for a test, and what iperf3 may do; wait: until a deadline
archive     the reports of earlier tests

It knows the agent only as the `AgentPlan` of `host.planned`. Of `backends` it uses what reads the
kernel (netlink, ethtool, sysctl), and the packet filter for iperf3.
"""

# SPDX-License-Identifier: MIT
