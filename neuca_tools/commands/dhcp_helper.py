"""Becomes the DHCP client of a link, receives its leases, and releases them.

`run FILE` becomes dhcpcd for the request in FILE, or listens to routers itself; so does
`start FILE` where there are no units of systemd; `stop FILE` releases the lease.
Without arguments it is the script of the client, with the lease in its environment.
"""

# SPDX-License-Identifier: MIT

import errno
import json
import os
import signal
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Optional

from neuca_tools.agent import autoconfiguration
from neuca_tools.backends import dhcplease, linkwatch, processes, sysctl
from neuca_tools.backends.dhcpclients import GONE, PATH, forget_client
from neuca_tools.backends.netlink import Netlink
from neuca_tools.errors import ApplyError, NeucaError
from neuca_tools.files import as_apply_error, read_bytes, text_of, write_files

REQUEST_VARIABLE = "NEUCA_DHCP"  # the variable with the path of the request
LEASE_REASONS = ("BOUND", "RENEW", "REBIND", "REBOOT")
LOSS_REASONS = ("EXPIRE", "FAIL", "NAK", "RELEASE")
MAX_REQUEST_BYTES = 1 << 16
RELEASE_SECONDS = 8.0  # for a client to release its lease
END_SECONDS = 10.0  # before the end of a lease: our clock for it starts later than that of dhcpcd
# Nothing is asked of the server that is not used: neither DNS servers nor a host name.
COMMON = """nohook resolv.conf, hostname, timezone, ntp.conf, yp.conf
nogateway
persistent
"""
DHCP4 = """option subnet_mask, routers, classless_static_routes, interface_mtu
ipv4only
noipv4ll
"""
# The identifier is of the link itself: the servers of clouds know the MAC address, and it is the
# same after a boot.
DHCP6 = """ipv6only
noipv6rs
duid ll
ia_na
"""
MODE = ".mode"  # the suffix of the file with the mode before dhcpcd changed it
LINK_LOCAL_SECONDS = 10.0  # for a link to have a link-local address


def main(arguments: Optional[Sequence[str]] = None) -> int:
    """Exit code 0, also for a lease that is not used; 1 for an error, 2 for a wrong call.

    A client whose script fails would decline the lease, and ask for another one at once.
    """
    words = sys.argv[1:] if arguments is None else list(arguments)
    jobs: dict[str, Callable[[Path], None]] = {
        "run": become_client,
        "start": partial(become_client, is_plain=True),
        "stop": give_up,
    }
    try:
        if len(words) == 2 and words[0] in jobs:
            jobs[words[0]](Path(words[1]))
        elif not words and REQUEST_VARIABLE in os.environ:
            process_report(os.environ)
        else:
            print("dhcp-helper: it is run by neucad and by DHCP clients", file=sys.stderr)
            return 2
    except NeucaError as error:
        print(f"dhcp-helper: {error.text}", file=sys.stderr)
        return 1 if words else 0
    return 0


def become_client(path: Path, is_plain: bool = False) -> None:
    """Run the client in place of this process; `is_plain`: it is not a unit. Raises ApplyError."""
    # The child of the daemon ignores these signals, and a trial blocks them.
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    if is_plain:
        processes.write_process_note(path, os.getpid())
    request = _read_request(path)
    write_files({path.with_suffix(processes.CLIENT): processes.process_note(os.getpid())})
    if _protocol(request):
        linkwatch.await_link_local(int(request["index"]), LINK_LOCAL_SECONDS)
    if _protocol(request) == dhcplease.ADVERTISEMENTS:
        autoconfiguration.run_listener(path, request)
    words = _client_command(path, request)
    _keep_mode(path, request)
    with as_apply_error(f'run "{words[0]}"'):
        os.execve(words[0], words, {"PATH": PATH, REQUEST_VARIABLE: str(path)})


def give_up(path: Path) -> None:
    """Have the client tell its server, if the request was withdrawn, and remove what it has set.

    A client that is only started again keeps its lease. Raises ApplyError.
    """
    gone = path.with_suffix(GONE)
    if not gone.exists():
        return
    request = _read_request(gone)
    _signal_client(gone, signal.SIGALRM)  # dhcpcd(8), --release
    # Without its note, a client that is not a unit and has not ended would run for ever.
    _signal_client(gone, signal.SIGKILL, processes.PROCESS)
    _restore_mode(gone, request)
    forget_client(gone)


def process_report(environment: Mapping[str, str]) -> None:
    """What the client reports: a lease, or that it has lost it. Raises ApplyError, ObserveError."""
    path = Path(environment[REQUEST_VARIABLE])
    reason = environment.get("reason", "").removesuffix("6")
    place = path.with_suffix(dhcplease.LEASE)
    if not path.exists():
        return
    request = _read_request(path)
    _restore_mode(path, request)
    try:
        if reason in LOSS_REASONS and _is_lost(reason, environment, place):
            dhcplease.drop_lease(place)
            return
        lease = None
        if reason in LEASE_REASONS:
            lease = _read_lease(environment, request)
        elif reason == "EXPIRE":
            lease = _unexpired_lease(environment, request, place)
        if lease is not None:
            dhcplease.accept_lease(lease, request, place)
    except ApplyError as error:
        # While the link is down it takes no routes. dhcpcd reports again once it is up.
        if reason != "EXPIRE" or error.errno != errno.ENETDOWN:
            raise


def _read_lease(
    environment: Mapping[str, str], request: Mapping[str, Any]
) -> Optional[dhcplease.LeaseContent]:
    if _protocol(request):
        return dhcplease.read_dhcp6_lease(environment)
    return dhcplease.read_dhcp4_lease(environment, request)


def _is_lost(reason: str, environment: Mapping[str, str], place: Path) -> bool:
    """Whether the report ends the remembered lease, and not another IPv6 address.

    dhcpcd says EXPIRE, too, once no server has confirmed a lease for 5 s (IPv6: 10 s) after a
    restart or a loss of the carrier. Such a lease goes on until its end (RFC 2131, 3.2; RFC 8415,
    18.2.3).
    """
    ends = dhcplease.read_lease(place).addresses
    host = dhcplease.lost_address(environment)
    if host is not None and f"{host}/128" not in ends:
        return False
    soon = time.time() + END_SECONDS
    return reason != "EXPIRE" or all(0 < end < soon for end in ends.values())


def _unexpired_lease(
    environment: Mapping[str, str], request: Mapping[str, Any], place: Path
) -> Optional[dhcplease.LeaseContent]:
    """The rest of the remembered lease, if the report is about it.

    If the link was down, its routes are gone; dhcpcd drops IPv6 addresses despite --noconfigure.
    """
    earlier = {name.replace("old_", "new_", 1): environment[name] for name in environment}
    lease = _read_lease(earlier, request)
    ends, now = dhcplease.read_lease(place).addresses, int(time.time())
    if lease is None or not all(str(timed.address) in ends for timed in lease.addresses):
        return None
    left = {text: end - now if end else dhcplease.FOR_EVER for text, end in ends.items()}
    return lease._replace(
        addresses=tuple(
            dhcplease.TimedAddress(
                address, *(min(left[str(address)], seconds) for seconds in times)
            )
            for address, *times in lease.addresses
        )
    )


def _read_request(path: Path) -> dict[str, Any]:
    try:
        request = json.loads(read_bytes(path, MAX_REQUEST_BYTES) or b"")
    except (OSError, ValueError, RecursionError) as error:
        raise ApplyError(f'read "{path}": {error}') from error
    if not isinstance(request, dict):
        raise ApplyError(f'read "{path}": it has no request')
    return request


def _address_mode(request: Mapping[str, Any]) -> str:
    return sysctl.read_value(sysctl.ADDRESS_MODE.format(request["interface"])) or ""


def _keep_mode(path: Path, request: Mapping[str, Any]) -> None:
    """Save addr_gen_mode, which dhcpcd sets to "none". Raises ApplyError.

    Otherwise the link would have no link-local address after it has been down.
    """
    mode = _address_mode(request)
    if _protocol(request) and mode not in ("", sysctl.NO_ADDRESS):
        write_files({path.with_suffix(MODE): mode.encode()})


def _restore_mode(path: Path, request: Mapping[str, Any]) -> None:
    """Undo what dhcpcd has set. Raises ApplyError."""
    before = text_of(path.with_suffix(MODE))
    if before.isdecimal() and _address_mode(request) == sysctl.NO_ADDRESS:
        with Netlink() as netlink:
            netlink.set_address_generation(int(request["index"]), int(before))


def _protocol(request: Mapping[str, Any]) -> str:
    """Empty for DHCPv4."""
    return str(request.get("protocol", ""))


def _client_command(path: Path, request: Mapping[str, Any]) -> list[str]:
    """The command line of the client, whose configuration is written. Raises ApplyError."""
    family, configuration = "-6", COMMON + DHCP6
    if not _protocol(request):
        family, configuration = "-4", COMMON + DHCP4
        if request["hostname"] != "-":  # which is not sent
            configuration += f"hostname {request['hostname']}\n"
    conf = path.with_suffix(".conf")
    write_files({conf: configuration.encode()})
    words = [str(request["program"]), family, "-B", "-q", "--noconfigure", "-f", str(conf)]
    words += ["-c", str(request["helper"]), "-e", f"{REQUEST_VARIABLE}={path}"]
    return [*words, str(request["interface"])]


def _signal_client(gone: Path, number: int, note: str = processes.CLIENT) -> None:
    processes.end_process(processes.noted_pid(gone.with_suffix(note)), number, RELEASE_SECONDS)


if __name__ == "__main__":
    sys.exit(main())
