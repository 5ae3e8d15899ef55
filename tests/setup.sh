#!/usr/bin/env bash
# Installs the distribution packages that the named tiers need: `tests/setup.sh unit dbus`. Quick when nothing is missing.
# Needs root or sudo, and only then. PyPI's tools are the business of tests/venvs.py.
set -euo pipefail
# A service or a container may have no HOME: then it is that of the user database.
export HOME=${HOME:-~}

# The agent runs on these; everything else here is for its tests.
product=(python3 python3-pyroute2 python3-pyudev python3-yaml python3-dbus python3-systemd)

packages_of() {
    case $1 in
        demo) echo "${product[@]}" iproute2 procps mount ;;
        unit) echo "${product[@]}" python3-pytest python3-hypothesis python3-venv python3-pip git ca-certificates mandoc \
                python3-jsonschema python3-prometheus-client e2fsprogs; packages_of docs ;;
        docs) echo python3 mkdocs mkdocs-material mandoc ;;
        # What unpacks the oracles of this tier is below.
        wild) echo "${product[@]}" python3-pytest python3-hypothesis mandoc util-linux ;;
        dbus) echo "${product[@]}" python3-pytest python3-hypothesis python3-dbusmock dbus ;;
        netns) echo "${product[@]}" python3-pytest python3-hypothesis mount iproute2 procps iperf3 iputils-tracepath openssh-client dropbear-bin \
                  python3-jsonschema dbus clustershell systemd ;;
        sequences) echo "${product[@]}" python3-pytest iproute2 util-linux ;;
        uml) echo user-mode-linux ;;
        world) packages_of netns ;;
        attack) packages_of netns; echo xorriso dosfstools mtools util-linux libfaketime ;;
        package) echo "${product[@]}" python3-pytest git build-essential dpkg-dev debhelper dh-python fakeroot lintian man-db rpm \
                 rpmlint shellcheck systemd util-linux openssh-client sudo make python3-setuptools python3-wheel iproute2 mount acl xz-utils ;;
        machine) echo "${product[@]}" python3-pytest qemu-system-x86 qemu-utils ovmf mmdebstrap e2fsprogs uidmap debian-archive-keyring \
                 dpkg-dev debhelper dh-python fakeroot git xorriso ;;
        fleet) echo "${product[@]}" python3-pytest python3-venv python3-pip python3-apt git ca-certificates util-linux mount iproute2 procps \
                 iperf3 coreutils dpkg-dev debhelper dh-python fakeroot ;;
        # Ubuntu's chromium is a snap, which cannot be used here: the tests are skipped there.
        browser) if apt-cache show chromium >/dev/null 2>&1; then echo chromium chromium-driver python3-selenium poppler-utils fonts-dejavu-core util-linux; fi ;;
        parallel) echo python3-pytest-xdist python3-pytest-rerunfailures ;;
        bench) echo "${product[@]}" iproute2 procps iperf3 ;;
        # dbus-python and systemd-python come from PyPI as sources; the lanes run the three tiers above.
        lanes) packages_of unit; packages_of dbus; packages_of netns
               echo gcc make pkg-config python-apt-common python3-dev libdbus-1-dev libglib2.0-dev libsystemd-dev ;;
        *) echo "tests/setup.sh: no tier is called \"$1\"" >&2; return 2 ;;
    esac
}

wanted=$(for tier; do packages_of "$tier"; done | tr ' ' '\n' | sort -u)
# dpkg-query says nothing about a package that it has never heard of: what is asked for and not listed is missing.
installed=$(dpkg-query --show --showformat='${db:Status-Abbrev} ${Package}\n' $wanted 2>/dev/null | awk '$1 == "ii" { print $2 }' | sort -u) || true
missing=$(comm -23 <(echo "$wanted") <(echo "$installed"))
# What these tests run is unpacked, not installed: cloud-init would set up this machine at its next boot, netplan, NetworkManager,
# systemd-resolved and the DHCP clients would take over its network.
oracles=${XDG_CACHE_HOME:-$HOME/.cache}/neuca-guest-tools/oracles
unpack=
case " $* " in *" wild "*) unpack="cloud-init netplan.io" ;; esac
case " $* " in *" netns "* | *" attack "* | *" lanes "*) unpack="$unpack network-manager systemd-resolved isc-dhcp-client dhcpcd-base dnsmasq-base busybox" ;; esac
for package in $unpack; do [ -e "$oracles/unpacked/$package" ] || break; unpack=${unpack#*"$package"}; done
# A root file system that was never booted has no machine ID, which the agent and systemd-networkd need.
[ -n "$missing$unpack" ] || [ ! -s /etc/machine-id ] || exit 0

as_root=()
if [ "$(id -u)" != 0 ]; then
    command -v sudo >/dev/null || {
        echo "tests/setup.sh: there is no sudo here; as root: apt-get install --no-install-recommends" $missing $unpack >&2
        exit 1
    }
    as_root=(sudo)
fi
# A fresh machine runs its own apt in the first minutes: wait for the lock rather than fail.
apt=("${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get -q -y -o DPkg::Lock::Timeout=300 -o DPkg::Options::=--force-unsafe-io)
"${apt[@]}" update
if [ -n "$missing" ]; then
    echo "installing:" $missing
    "${apt[@]}" install --no-install-recommends $missing
fi

if [ -n "$unpack" ]; then
    echo "unpacking:" $unpack
    mkdir -p "$oracles/archives/partial" "$oracles/unpacked"
    # Debian 13 is the last release that has dhclient; its test is skipped on later ones.
    available=$unpack
    [ -n "$(apt-cache madison isc-dhcp-client)" ] || available=${unpack//isc-dhcp-client/}
    "${apt[@]}" install --download-only --reinstall --no-install-recommends -o APT::Sandbox::User=root \
        -o Dir::Cache::archives="$oracles/archives" $available
    for archive in "$oracles"/archives/*.deb; do dpkg-deb --extract "$archive" "$oracles"; done
    (cd "$oracles/unpacked" && touch $unpack)
fi
[ -s /etc/machine-id ] || ! command -v systemd-machine-id-setup >/dev/null || "${as_root[@]}" systemd-machine-id-setup
