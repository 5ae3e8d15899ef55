"""The part of the self-test that sends packets and starts programs: it fills the Evidence of a peer.

session     a whole test of one peer, step by step
iperf/      the throughput steps: plans, one run of iperf3 with both ends sampled, settings on trial
probes/     reachability, round trips, path MTU, RDMA, broadcasts
host/       what this host knows of itself, and what the agent has planned for it
helper/     the server that a peer runs, the client's side of it, and the signed channel between them
program     a program started for a test; confine: what iperf3 may do
store       the reports of earlier tests

It knows the agent only as the `AgentPlan` of `host.planned`. From `backends` it takes what reads the
kernel (netlink, ethtool, sysctl, path probes) and the packet filter that confines iperf3.
"""

# SPDX-License-Identifier: MIT
