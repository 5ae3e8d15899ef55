"""What of the guest is not network: its host name, its users, and whatever else a document asks of the host itself.

run         one run over all features, in a process of its own (`neucad --guest`): no pass waits for it, or breaks with it
base        what a feature is given, and what it says of what it did
outcome     what features have said, kept for `neuca status`; and the mark that a run is due
programs    running another program, within limits
blocks      marked lines in a file that others write to as well
users       logins, their public keys and sudo files: accounts, authorized_keys, sudoers are its parts
hostname    the host name, and its line in the hosts file
storage     iSCSI disks; `iscsi` speaks to open-iscsi, `blockdev` looks at a disk, makes a file system, mounts it
scripts     each script once for each instance; `supervisor` is the process that one runs under

A feature is one module and one row of `FEATURES` in `run`; each has its switch in `[guest]` of the configuration.
"""

# SPDX-License-Identifier: MIT
