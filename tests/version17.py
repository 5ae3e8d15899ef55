"""What version 1.7 leaves on a guest: a package of its files, and what it wrote for two NICs that its document named.

From its customizer.py, script.py, `config` and debian/ (RENCI-NRIG/neuca-guest-tools). Its programs need Python 2, which no
supported release has: a shell script stands in for neucad.
"""

# SPDX-License-Identifier: MIT

from __future__ import annotations

# The NICs, with the names that 1.7 gave them; FE163E006DB9 is on its list of NICs to ignore.
MANAGEMENT, FIRST, SECOND = (f"fe:16:3e:00:6d:{last}" for last in ("ae", "af", "b0"))
NAMES = {MANAGEMENT: "mgmt", FIRST: "dp1", SECOND: "dp2"}

VERSION_17 = r"""
old=/tmp/one/old; mkdir -p $old/DEBIAN $old/etc/neuca $old/etc/init.d $old/usr/bin $old/lib/systemd/system $old/var/lib/neuca/storage
cat > $old/DEBIAN/control <<END
Package: neuca-guest-tools
Version: 1.7-1
Architecture: all
Maintainer: somebody <somebody@example.org>
Description: the version before
END
printf '/etc/neuca/config\n/etc/init.d/neuca-guest-tools\n' > $old/DEBIAN/conffiles
printf '[runtime]\n#set-loopback-hostname = true\n' > $old/etc/neuca/config
printf '#!/bin/sh\nexit 0\n' > $old/etc/init.d/neuca-guest-tools
printf '#!/bin/sh\necho "the old neucad: $1" > /tmp/stopped\n' > $old/usr/bin/neucad
printf '[Service]\nExecStart=/usr/bin/neucad start\n' > $old/lib/systemd/system/neuca-guest-tools.service
chmod 755 $old/usr/bin/neucad $old/etc/init.d/neuca-guest-tools
dpkg-deb --root-owner-group -b $old /tmp/one/old.deb > /dev/null
dpkg --force-unsafe-io -i /tmp/one/old.deb > /dev/null
cat > /etc/neuca/config <<END
[runtime]
set-loopback-hostname = true
loopback-address = 127.255.255.7
dataplane-macs-to-ignore = FE163E006DB9
pidfile-timeout = 5
testing = false
[logging]
log-level = INFO
log-retain = 5
[linux]
mgmt-udev-priority = 20
END
mkdir -p /etc/udev/rules.d
rule() { printf '### NEuca generated udev persistent naming file - MANUAL UPDATES MAY BE OVERWRITTEN.\n### Config: %s\n' "$3"
         printf 'SUBSYSTEM=="net", ACTION=="add", ATTR{address}=="%s", NAME="%s"\n' $1 $2; }
rule fe:16:3e:00:6d:ae mgmt management > /etc/udev/rules.d/20-neuca-persistent-fe163e006dae.rules
for nic in "af dp1" "b0 dp2"; do
    set -- $nic
    { rule fe:16:3e:00:6d:$1 $2 up:ipv4:172.16.0.1/24; echo "ATTR{address}==\"fe:16:3e:00:6d:$1\", ENV{NM_UNMANAGED}=\"1\""; } \
        > /etc/udev/rules.d/10-neuca-persistent-fe163e006d$1.rules
done
printf '#!/bin/sh\necho ran >> /tmp/ran' > /var/lib/neuca/bootscript; chmod 100 /var/lib/neuca/bootscript
printf 'chap_pass = secret\n' > /var/lib/neuca/storage/disk1
mkdir -p /var/log/neuca /usr/local/bin; echo x > /var/log/neuca/neuca-agent.log; touch /usr/local/bin/neuca-get
marks='NEuca loopback modifications - DO NOT EDIT BETWEEN THESE LINES. ###'
printf '127.0.0.1 localhost\n\n### BEGIN %s\n127.255.255.7\tNode0\n### END %s\n\n' "$marks" "$marks" > /etc/hosts
mkdir -p /var/run; echo 1 > /var/run/neucad.pid
"""
