"""Tests between many hosts: which pairs to test when, and which host, group or pair is at fault.

model       a plan of a mesh, its hosts, and the result of one test (Row)
schedule    a list of hosts and a seed become slots of disjoint pairs
entities    what can be at fault, and the tests that each would affect
observe     what each test says of each symptom, against the other tests
localise    the entities that explain the bad tests best
retest      the pairs to test again: suspects, and pairs without a result
causes      what a suspect is called, and what the rows say of its cause
verdict     findings, suspected or confirmed, the exit code, and which paths to diagnose
report      text, JSON, OpenMetrics and a line for Nagios
page        HTML with a heat map

All of this is pure. `measure/mesh` runs the tests.
"""

# SPDX-License-Identifier: MIT
