"""Tests between many hosts: which pairs to test when, and which host, group or pair is at fault.

model       a plan of a mesh, its hosts, and the result of one test (Row)
hosts       the list of hosts as people write it
schedule    hosts and a seed become slots of disjoint pairs; retests of suspects
entities    what can be at fault, and the tests that each would affect
tally       how many tests of each of these are bad
localise    the entities that explain the bad tests best
verdict     findings with their kinds, suspected or confirmed, and the exit code
report      one line and a list; `record` is JSON, `metrics` OpenMetrics and Nagios, `page` HTML

All of this is pure. `measure/mesh` runs the tests.
"""

# SPDX-License-Identifier: MIT
