"""Runs the tests of a mesh: `pair` one test, `host` the part of one host, `coordinate` all of them.

The coordinator starts `neuca-selftest mesh join -` on every host with one command (ClusterShell),
which connects its standard input to theirs and puts the name of a host before each line of output.
Messages are JSON, one on each line:

to the hosts    {"plan": …, "secret": …}, {"slots": [[number, pairs], …]}, and where to go on:
                {"next": place in these slots, "start": seconds since 1970, "clock": the same, now}
from a host     {"mesh": 1, "ready": name, "clock": …}, then a row for each test it was client of

After "next", hosts keep time by their own clocks; a further one only brings a slot forward, after
all clients have reported. The end of standard input stops a host, however the coordinator ended.
"""

# SPDX-License-Identifier: MIT
