"""What the text around iperf's rows says of the path: limiters, emulated loss, CPUs, tunnels.

Only what configures or measures something counts: commands, settings, and what tools print.
"""

# SPDX-License-Identifier: MIT

from __future__ import annotations

import re
from functools import lru_cache
from typing import NamedTuple, Optional

MOST = 64 * 1024  # characters of a text that are searched
_SCALE = {"": 1.0, "k": 1e3, "m": 1e6, "g": 1e9, "t": 1e12}
_AMOUNT = r"(?P<digits>\d{1,12}(?:\.\d{1,6})?)\s?(?P<scale>[KMGT]?)i?"
_UNIT = r"(?P<unit>bit/s|bits/s(?:ec)?|bits?|bps|b/s|B/s|Bytes?/s)?"
# tc(8) counts "bps" in bytes; everyone else in bits.
_TC = re.compile(
    rf"\b(?:rate|ceil|maxrate|bandwidth)\s+{_AMOUNT}(?P<unit>bit|bps)\b", re.IGNORECASE
)
_IS_TC = re.compile(r"\b(?:tbf|htb|netem|cake|police|hfsc)\b|\btc\s", re.IGNORECASE)
# Settings of CNI plug-ins, Kubernetes, Open vSwitch, Mininet, and routers.
_SETTING = re.compile(
    r"(?:(?:in|e)gress[-_ ]?(?:rate|bandwidth|policing_rate)|max[-_]?(?:rate|limit)|link_?speed"
    rf"|\bbw|rate[-_]?limit(?:er)?)[\"']?\s{{0,3}}[=:]\s{{0,3}}[\"']?{_AMOUNT}{_UNIT}\b",
    re.IGNORECASE,
)
_IN_WORDS = re.compile(
    r"\b(?:limit(?:ed|s|ing)?|shap(?:ed|es|ing|er)|throttl(?:ed|es|ing)|capped|polic(?:ed|er|ing)"
    rf"|restricted)\b[^\n\d]{{0,40}}\b{_AMOUNT}(?P<unit>bit/s|bits?|bps|b/s)\b",
    re.IGNORECASE,
)
_MEGABITS = re.compile(r"\bbw", re.IGNORECASE)  # Mininet: without a unit
_KILOBITS = re.compile(r"policing_rate", re.IGNORECASE)  # Open vSwitch: without a unit
_LOSS = re.compile(r"\bloss(?:\s+random)?\s+(\d{1,2}(?:\.\d{1,4})?)\s?%", re.IGNORECASE)
_DELAY = re.compile(r"\bnetem\b[^\n]{0,60}\bdelay\s+(\d{1,5}(?:\.\d{1,4})?)\s?ms", re.IGNORECASE)
_HALF = re.compile(r"\bDuplex:\s*Half\b|\bhalf[- ]duplex\b", re.IGNORECASE)
_CPU = re.compile(
    r"\b(?:9[5-9]|100)(?:\.\d)?\s?%\s*(?:of\s+)?(?:a\s+|one\s+|the\s+)?(?:single\s+)?(?:cpu|core)\b"
    r"|\b(?:cpu|core)s?\b(?! util)[^.\n%]{0,24}\b(?:9[5-9]|100)(?:\.\d)?\s?%"
    r"|\bcpu[- ](?:bound|limited)\b|\bksoftirqd\S*\s[^\n]{0,40}\b(?:9\d|100)\.\d\b",
    re.IGNORECASE,
)
_TUNNEL = re.compile(
    r"\b(?:wireguard|openvpn|tailscaled?|zerotier(?:-one)?|nebula|cjdns|yggdrasil|n2n|tinc|vpncloud"
    r"|\w{0,20}vpn|wg\d|tun\d{1,3}|utun\d{1,3}|tap\d{1,3}|slirp4netns|slirp|passt?|pasta|gvisor"
    r"|user[- ]?space|user[- ]mode|socks5?|socat|haproxy|relay|ssh tunnel|tls|openssl"
    r"|ipsec|strongswan|macsec|vpnkit|vmnet)\b",
    re.IGNORECASE,
)
# A row of iperf, whose numbers are no settings.
_ROW = re.compile(r"^.{0,200}(?:bits|Bytes)/sec.{0,400}$", re.MULTILINE | re.IGNORECASE)


class Around(NamedTuple):
    """Rates in bit/s, `loss` as a share, `delay` in seconds."""

    rates: tuple[float, ...] = ()
    loss: float = 0.0
    delay: Optional[float] = None
    is_half_duplex: bool = False
    is_cpu_full: bool = False
    tunnel: Optional[str] = None


@lru_cache(maxsize=4)
def around(text: str) -> Around:
    """What the lines say that are not iperf's own."""
    rest = _ROW.sub("", text[:MOST])
    loss, delay, tunnel = _LOSS.search(rest), _DELAY.search(rest), _TUNNEL.search(rest)
    return Around(
        rates=tuple(dict.fromkeys([*_tc_rates(rest), *_settings(rest)])),
        loss=float(loss[1]) / 100 if loss and _IS_TC.search(rest) else 0.0,
        delay=float(delay[1]) / 1000 if delay else None,
        is_half_duplex=_HALF.search(rest) is not None,
        is_cpu_full=_CPU.search(rest) is not None,
        tunnel=tunnel[0] if tunnel else None,
    )


def _tc_rates(text: str) -> list[float]:
    lines = filter(_IS_TC.search, text.split("\n"))
    found = (one for line in lines for one in _TC.finditer(line))
    return [_rate(one, 8 if one["unit"].casefold() == "bps" else 1) for one in found]


def _settings(text: str) -> list[float]:
    rates = []
    for one in (*_SETTING.finditer(text), *_IN_WORDS.finditer(text)):
        unit, factor = one["unit"] or "", 1.0
        if not unit and not one["scale"]:
            factor = 1e6 if _MEGABITS.match(one[0]) else factor
            factor = 1e3 if _KILOBITS.search(one[0]) else factor
        rates.append(_rate(one, 8 * factor if unit.startswith("B") else factor))
    return rates


def _rate(found: re.Match[str], factor: float) -> float:
    return float(found["digits"]) * _SCALE[found["scale"].casefold()] * factor
