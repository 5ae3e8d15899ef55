"""Read what a document says about DHCP and router advertisements, for the stages that use it."""

# SPDX-License-Identifier: MIT

from dataclasses import replace
from functools import partial

from neuca_tools.documents.neuca import routing, values
from neuca_tools.documents.platform.drafts import Draft
from neuca_tools.documents.platform.parts import Part, read_truth
from neuca_tools.model import Automatic

_OVERRIDES = tuple(
    "hostname route-metric send-hostname use-dns use-domains use-hostname use-mtu use-ntp"
    " use-routes".split()
)
KEYS = frozenset(("dhcp4", "dhcp6", "accept-ra", "link-local", "optional", "critical", *_OVERRIDES))
# Keys with an effect on a link that has DHCP or router advertisements.
_BESIDE = ("dhcp4-overrides", "dhcp6-overrides", "link-local", "optional", "critical")
_FAMILIES = ("ipv4", "ipv6")
# The family of each type of subnet with DHCP, in OpenStack's document and in NoCloud's version 1.
DHCP = {
    "dhcp": 4,
    "dhcp4": 4,
    "ipv4_dhcp": 4,
    "dhcp6": 6,
    "ipv6_dhcp": 6,
    "ipv6_dhcpv6-stateful": 6,
}
ADVERTISED = ("ipv6_slaac", "ipv6_dhcpv6-stateless")


def of_netplan(link: Part) -> Automatic:
    """The settings of a link of netplan. Those beside DHCP count as used if the link has it."""
    part = replace(link, used=set())
    families = None
    if "link-local" in part.tree:
        reader = partial(values.word, allowed=_FAMILIES)
        read = (part.parse("link-local", text, reader) for text in part.texts("link-local"))
        families = tuple(filter(None, read))
    automatic = Automatic(
        dhcp4=part.flag("dhcp4"),
        dhcp6=part.flag("dhcp6"),
        accept_ra=part.flag("accept-ra"),
        link_local=families,
        dhcp4_overrides=_read_overrides(part.child("dhcp4-overrides")),
        dhcp6_overrides=_read_overrides(part.child("dhcp6-overrides")),
        optional=part.flag("optional"),
        critical=part.flag("critical"),
    )
    if automatic.dhcp4 or automatic.dhcp6 or automatic.accept_ra:
        # No client uses the link-local addresses of IPv4: the metadata service has one.
        unused = {"link-local"} if "ipv4" in (families or ()) else set[str]()
        for key in {*_BESIDE} - unused:
            link.close(key)
    return automatic


def set_metric(draft: Draft, subnet: Part, first: int) -> None:
    """Set the metric of a subnet: that of its routes without one, and of those of DHCP.

    `first` is the number of its first route.
    """
    kind = subnet.text("type") or ""
    is_automatic = kind in DHCP or kind in ADVERTISED
    if not is_automatic and len(draft.routes) == first:
        return
    metric = subnet.read("metric", routing.metric)
    if metric is None:
        return
    for number, route in enumerate(draft.routes[first:], first):
        if route.metric is None:
            draft.routes[number] = route._replace(metric=metric)
    override = (("route-metric", str(metric)),)
    if DHCP.get(kind) == 4:
        draft.automatic = draft.automatic._replace(dhcp4_overrides=override)
    elif is_automatic:
        draft.automatic = draft.automatic._replace(dhcp6_overrides=override)


def _read_overrides(part: Part) -> tuple[tuple[str, str], ...]:
    """The overrides that netplan-yaml(5) lists, as texts."""
    overrides = ((name, part.read(name, partial(_checked_override, name))) for name in _OVERRIDES)
    return tuple((name, text) for name, text in overrides if text is not None)


def _checked_override(name: str, text: str) -> str:
    """The value of this override, in one form. Raises UnusableError."""
    if name == "route-metric":
        return str(routing.metric(text))
    if name == "hostname":
        return values.hostname(text)
    if name == "use-domains" and text == "route":
        return text
    return "true" if read_truth(text) else "false"
