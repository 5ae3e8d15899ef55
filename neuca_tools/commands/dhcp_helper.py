"""Becomes the DHCP client of a link, receives its leases, and releases them.

`run FILE` becomes dhcpcd for the request in FILE, or listens to routers itself; so does
`start FILE` where there are no units of systemd; `stop FILE` releases the lease.
Without arguments it is the script of the client, with the lease in its environment.
"""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Optional

from neuca_tools.agent import dhcp_helper
from neuca_tools.commands import collect_rarely
from neuca_tools.errors import NeucaError

ACTIONS: dict[str, Callable[[Path], object]] = {
    "run": partial(dhcp_helper.become_client, is_plain=False),
    "start": partial(dhcp_helper.become_client, is_plain=True),
    "stop": dhcp_helper.give_up,
}


def main(arguments: Optional[Sequence[str]] = None) -> int:
    """Exit code 0, also for a lease that is not used; 1 for an error.

    A client whose script fails would decline the lease, and ask for another one at once.
    """
    given = sys.argv[1:] if arguments is None else list(arguments)
    if arguments is None:
        collect_rarely()
    try:
        if len(given) == 2 and given[0] in ACTIONS:
            ACTIONS[given[0]](Path(given[1]))
        elif not given and dhcp_helper.REQUEST_VARIABLE in os.environ:
            dhcp_helper.process_report(os.environ)
        else:
            print("dhcp-helper: it is run by neucad and by DHCP clients", file=sys.stderr)
            return 2
    except NeucaError as error:
        print(f"dhcp-helper: {error.text}", file=sys.stderr)
        return 1 if given else 0
    return 0


if __name__ == "__main__":
    sys.exit(main())
