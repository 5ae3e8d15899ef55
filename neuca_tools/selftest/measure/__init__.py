"""The self-test, running: it measures, and fills the Evidence that the rest of the package is about.

session, phases   a whole test of one peer, in order: each step has its own verdict, and can be left out
plans             what a test consists of, and the search for the loss-free rate
conduct           one run of iperf3 with both ends looked at every second; program, iperf: how it is started, what it says
counters, tcpinfo, driver, kernel, facts
                  what this host knows of itself
reaching, roundtrip, pathsize
                  neighbours, pings, connections; latency; the path MTU
rdma              which RDMA device and GID belong to the way, and the programs that measure them
broadcast, answering
                  a request to everybody, and who answers; which messages are answered
planned           what the agent wants of this host, and which devices no test may use
peer, heard       the near end of a helper, and what it takes from it; serve, serving, echo: the far end
greeting, lobby, channel
                  the handshake, who waits for it to end, and the signed messages after it
confine           what iperf3 runs with
fixing, trial         an advice, set for the time of a test, and kept if it helps
apart             a test in a process of its own, for another network namespace
store             the reports of earlier tests
"""

# SPDX-License-Identifier: MIT
