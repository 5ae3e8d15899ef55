"""Read the clouds' own documents, each with all NICs of the guest: one row of FORMATS for each.

`ec2` reads EC2's tree. References: Microsoft, "Azure Instance Metadata Service" and "Virtual
network subnets"; DigitalOcean, "Droplet Metadata API"; Google, "VPC networks: subnets"; Hetzner,
"Networks: FAQ"; Oracle, "Virtual Network Interface Cards" and "Networking Overview"; Vultr,
"Metadata API".
"""

# SPDX-License-Identifier: MIT

from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple, Optional

from neuca_tools.documents.neuca import values
from neuca_tools.documents.platform import ec2, nocloud_v1, virtual_links
from neuca_tools.documents.platform.drafts import PRIMARY, Draft, finish_document
from neuca_tools.documents.platform.nics import (
    Subnets,
    add_masked,
    add_subnet,
    draft_by_mac,
    drafts_by_mac,
)
from neuca_tools.documents.platform.parts import Part, masked_network
from neuca_tools.documents.platform.tree import Tree, from_json, from_yaml
from neuca_tools.errors import unreadable
from neuca_tools.model import LinkKey, Network, PlatformDocument


class Format(NamedTuple):
    """A kind of document: `load` parses it, `read` interprets it.

    `keys` are those whose values are kept, None if `instance` says what is. `unknown` is what the
    values of other keys become; None if these keys are dropped, such as a token or a timestamp.
    `nics` is the key at the top of the document below which all NICs are listed; empty if not all
    are.
    """

    name: str
    keys: Optional[frozenset[str]]
    read: Callable[[Part], PlatformDocument]
    nics: str = ""
    load: Callable[[bytes, str], Tree] = from_json
    unknown: Optional[str] = None


# --- Azure ----------------------------------------------------------------------------------------

AZURE = "Azure instance"
ANY = "Azure has DHCP on each NIC, and does not say which one is the primary one"


def _read_azure(root: Part) -> PlatformDocument:
    """Each NIC of the network part of `/metadata/instance`, with all its addresses.

    The NICs are in no particular order, and nothing marks the primary one: it is the only one that
    reaches the service.
    """
    drafts = drafts_by_mac(root.child("network").parts("interface"), "macAddress")
    for draft in drafts:
        draft.hint_management(ANY)
        subnets = _add_azure_addresses(draft, draft.part.child("ipv4"))
        # The gateway, which is not given, is the first host address of the subnet.
        if subnets and subnets[0].num_addresses > 2:
            gateway = str(subnets[0].network_address + 1)
            draft.add_gateway(draft.part.child("ipv4"), "subnet", gateway)
        _add_azure_addresses(draft, draft.part.child("ipv6"))
    return finish_document(drafts, root)


def _add_azure_addresses(draft: Draft, family: Part) -> list[Network]:
    """Add the addresses of a family, and return its subnets; IPv6 often comes without any."""
    subnets = Subnets(family, map(_azure_subnet, family.parts("subnet")))
    for entry in family.parts("ipAddress"):
        text = entry.text("privateIpAddress")
        if text:
            subnets.add_address(draft, entry, "privateIpAddress", text)
    return subnets.networks


def _azure_subnet(part: Part) -> Optional[Network]:
    address, prefix = part.text("address"), part.text("prefix")
    if address is None or prefix is None:
        return None
    return part.parse("address", f"{address}/{prefix}", masked_network)


# --- DigitalOcean ---------------------------------------------------------------------------------

DIGITALOCEAN = "DigitalOcean droplet"
_MASKS = {"ipv4": "netmask", "ipv6": "cidr", "anchor_ipv4": "netmask"}


def _read_digitalocean(root: Part) -> PlatformDocument:
    """The interfaces by their type, each with its addresses.

    Of the gateways, only that of a public interface is for the default route. Anchor addresses,
    which reserved addresses are mapped to, are on the public interface.
    """
    interfaces = root.child("interfaces")
    public = drafts_by_mac(interfaces.parts("public"), "mac")
    private = drafts_by_mac(interfaces.parts("private"), "mac")
    for draft in public + private:
        for name, mask in _MASKS.items():
            add_masked(draft, draft.part.child(name), "ip_address", mask)
    for family in ("ipv4", "ipv6"):
        for draft in public:
            draft.add_default_route(draft.part.child(family), "gateway")
        for draft in private:
            draft.add_gateway(draft.part.child(family), "gateway")
    return finish_document(public + private, root)


# --- Google Compute Engine ------------------------------------------------------------------------

GCE = "GCE instance"
_GCE_NICS = "networkInterfaces"
_GCE_ADDRESSES = tuple(
    "ip ipv6s ipv6 ipAliases forwardedIps targetInstanceIps forwardedIpv6s".split()
)
_GCE_GATEWAYS = ("gateway", "gatewayIpv6")


def _read_gce(root: Part) -> PlatformDocument:
    """The NICs of `instance/?recursive=true`: the first one is for management.

    Google routes every packet, so an address is a /32 (a /128) and even its subnet is reached
    through the gateway. Single addresses of load balancers and alias ranges are the guest's too.
    """
    nics: dict[str, Draft] = {}
    for number, nic in root.numbered(_GCE_NICS):
        draft = draft_by_mac(nic, "mac", mtu=nic.mtu())
        if draft is None:
            continue
        if number == 0:
            draft.hint_management(PRIMARY, firm=True)
        else:
            if nic.text("ip"):
                nic.has_all("gateway")
            _add_gce_addresses(draft)
        nics[str(number)] = draft
    return finish_document([*nics.values(), *_gce_vlans(root, nics)], root)


def _gce_vlans(root: Part, nics: Mapping[str, Draft]) -> Iterator[Draft]:
    """The VLAN NICs: an object by number of the parent NIC, then by VLAN ID."""
    for index, group in root.named("vlanNetworkInterfaces"):
        if index not in nics:
            group.fault("", index, "there is no NIC with this number, ignoring its VLANs")
            continue
        mac = nics[index].key.mac
        for number in group.tree:
            vlan = group.child(number).for_nic(mac)
            tag = vlan.parse("", number, values.vlan_id)
            if tag is not None:
                draft = Draft(LinkKey(mac, tag), vlan, mtu=vlan.mtu())
                if virtual_links.set_options(draft, vlan, {"mac": "mac"}):
                    _add_gce_addresses(draft)
                    yield draft


def _add_gce_addresses(draft: Draft) -> None:
    """The addresses and gateways; a wider range is for containers, and gets no address.

    `ipv6` may be the range of the NIC, which begins with the address in `ipv6s`.
    """
    nic = draft.part
    for where in _GCE_ADDRESSES:
        for text in nic.texts(where):
            _add_gce_address(draft, where, text)
    for key in _GCE_GATEWAYS:
        draft.add_gateway(nic, key)
    gateway, mask = nic.text("gateway"), nic.text("subnetmask")
    if gateway and mask:
        add_subnet(draft, "subnetmask", gateway, mask)


def _add_gce_address(draft: Draft, where: str, text: str) -> None:
    host, _, length = text.partition("/")
    address = draft.part.parse(where, host, values.host)
    if address is None:
        return
    if length in ("", str(address.max_prefixlen)):
        draft.add_address(draft.part, where, f"{address}/{address.max_prefixlen}")
    elif all(address != known.ip for known in draft.addresses):
        draft.part.warn(where, f"{text} is a range, and not set as addresses of the guest")


# --- Hetzner --------------------------------------------------------------------------------------

HETZNER = "Hetzner private networks"
_HETZNER_ROOT = "networks"
HETZNER_MTU = 1450  # bytes


def _load_hetzner(data: bytes, name: str) -> Tree:
    """The list, as the object that all documents are. Raises DocumentError."""
    tree = from_yaml(data, name)
    if tree is None:
        return None
    if not isinstance(tree, list):
        raise unreadable("it is not a list", name)
    return {_HETZNER_ROOT: tree}


def _read_hetzner(root: Part) -> PlatformDocument:
    """The private networks, each a NIC; the one that is missing from the list is the public NIC.

    Hetzner routes every packet of a private network: an address is a /32, and the network is
    reached through its gateway.
    """
    drafts = drafts_by_mac(root.parts(_HETZNER_ROOT), "mac_address", mtu=HETZNER_MTU)
    for draft in drafts:
        nic = draft.part
        for key in ("ip", "alias_ips"):
            for address in nic.texts(key):
                draft.add_address(nic, key, f"{address}/32")
        if nic.has_all("ip", "network", "gateway"):
            add_subnet(draft, "network", nic.text("network") or "")
    return finish_document(drafts, root)


# --- Oracle Cloud ---------------------------------------------------------------------------------

OCI, OCI_ROOT = "OCI VNICs", "vnics"
OCI_MTU = 9000  # bytes: that of every NIC, which no document has
_NONE = "<null>"  # the text of a missing value on an instance without IPv4
_IPV6_LENGTH = 64  # the prefix length of every subnet


def _read_oci(root: Part) -> PlatformDocument:
    """The list of `/opc/v2/vnics/`, which `sources.clouds` wraps; the first one is for management.

    On a virtual machine each VNIC is a NIC, and its `vlanTag` is used by the hypervisor only. On
    bare metal, where the items have a `nicIndex`, a VNIC with a `vlanTag` other than 0 is a VLAN on
    the physical NIC with the same index.
    """
    vnics = list(root.numbered(OCI_ROOT))
    bare_metal = any(vnic.text("nicIndex") is not None for _, vnic in vnics)
    physical: dict[str, Draft] = {}
    drafts = []
    # The VLANs after the physical NICs that they are on.
    for number, vnic in sorted(vnics, key=lambda item: bare_metal and _is_vlan(item[1])):
        if bare_metal and _is_vlan(vnic):
            draft = _oci_vlan(vnic, physical)
        else:
            draft = draft_by_mac(vnic, "macAddr", mtu=OCI_MTU)
        if draft is None:
            continue
        if not draft.key.vlan_id:
            physical.setdefault(vnic.text("nicIndex") or "", draft)
        if number == 0:
            draft.hint_management(PRIMARY, firm=True)
        else:
            _add_oci_addresses(draft)
        drafts.append(draft)
    return finish_document(drafts, root)


def _is_vlan(vnic: Part) -> bool:
    return vnic.text("vlanTag") not in (None, "0")


def _oci_vlan(vnic: Part, physical: Mapping[str, Draft]) -> Optional[Draft]:
    """A VLAN with the MAC of its VNIC on the physical NIC with its index."""
    index = vnic.text("nicIndex") or ""
    parent, number = physical.get(index), vnic.read("vlanTag", values.vlan_id)
    if parent is None:
        vnic.fault("nicIndex", index, "no VNIC is the physical NIC, ignoring the VLAN")
        return None
    if number is None:
        return None
    mac = parent.key.mac
    draft = Draft(LinkKey(mac, number), vnic.for_nic(mac), mtu=OCI_MTU)
    return draft if virtual_links.set_options(draft, vnic, {"macAddr": "mac"}) else None


def _add_oci_addresses(draft: Draft) -> None:
    vnic = draft.part
    network, address = _oci_subnet(vnic, "subnetCidrBlock"), vnic.text("privateIp")
    if address not in (None, _NONE):
        vnic.has_all("subnetCidrBlock", "virtualRouterIp")
    if network and address:
        draft.add_address(vnic, "privateIp", f"{address}/{network.prefixlen}")
    with draft.all_or_nothing():
        network = _oci_subnet(vnic, "ipv6SubnetCidrBlock")
        length = network.prefixlen if network else _IPV6_LENGTH
        for text in vnic.texts("ipv6Addresses"):
            draft.add_address(vnic, "ipv6Addresses", f"{text}/{length}")
    for key in ("virtualRouterIp", "ipv6VirtualRouterIp"):
        if vnic.text(key) != _NONE:
            draft.add_gateway(vnic, key)


def _oci_subnet(vnic: Part, key: str) -> Optional[Network]:
    return None if vnic.text(key) == _NONE else vnic.read(key, masked_network)


# --- Vultr ----------------------------------------------------------------------------------------

VULTR = "Vultr instance"
VULTR_PRIVATE_MTU = 1450  # bytes


def _read_vultr(root: Part) -> PlatformDocument:
    """The interfaces; a gateway makes one a likely primary.

    The public interface gets its address by DHCP and is the primary one; each private network is an
    interface without a gateway, with a smaller MTU. Additional addresses are single ones unless
    they say more; an additional prefix of IPv6 is routed to the guest and no address of it. The
    optional keys are those of cloud-init (sources/helpers/vultr.py), with the routes of NoCloud's
    version 1.
    """
    drafts = drafts_by_mac(root.parts("interfaces"), "mac")
    for draft in drafts:
        nocloud_v1.set_mtu_and_accept_ra(draft, draft.part)
        if draft.mtu is None and draft.part.text("network-type") == "private":
            draft.mtu = VULTR_PRIVATE_MTU
        nocloud_v1.add_routes(draft, draft.part)
        for name, mask, host in (("ipv4", "netmask", "255.255.255.255"), ("ipv6", "prefix", "128")):
            family = draft.part.child(name)
            add_masked(draft, family, "address", mask)
            draft.add_default_route(family, "gateway")
            for more in family.parts("additional"):
                add_masked(draft, more, "address", mask, host)
                nocloud_v1.add_routes(draft, more)
        if draft.part.flag("unconfigured"):
            draft.leave_to_user()
    return finish_document(drafts, root)


def _keys(words: str, *more: str) -> frozenset[str]:
    return frozenset((*words.split(), *more))


FORMATS = (
    Format(AZURE, _keys("macAddress privateIpAddress address prefix"), _read_azure, "network"),
    Format(
        DIGITALOCEAN,
        _keys("interfaces public private mac ip_address gateway", *_MASKS, *_MASKS.values()),
        _read_digitalocean,
        "interfaces",
    ),
    Format(ec2.NAME, ec2.KEYS, ec2.read, "macs"),
    Format(
        GCE, _keys("mac mtu vlan subnetmask", *_GCE_ADDRESSES, *_GCE_GATEWAYS), _read_gce, _GCE_NICS
    ),
    # Those of private networks only.
    Format(
        HETZNER,
        _keys("ip alias_ips mac_address network gateway", _HETZNER_ROOT),
        _read_hetzner,
        load=_load_hetzner,
    ),
    Format(
        OCI,
        _keys(
            "macAddr privateIp virtualRouterIp subnetCidrBlock vlanTag nicIndex"
            " ipv6Addresses ipv6SubnetCidrBlock ipv6VirtualRouterIp"
        ),
        _read_oci,
        OCI_ROOT,
    ),
    Format(
        VULTR,
        _keys(
            "interfaces mac ipv4 ipv6 additional address netmask network prefix gateway"
            " mtu accept-ra unconfigured routes destination metric network-type"
        ),
        _read_vultr,
        "interfaces",
    ),
)
