"""What a document asks of the guest apart from its network: host name, users, storage, scripts.

run         one run of all features, in a process of its own (`neucad --guest`)
base        the types of a feature: its input, its findings, and the table of features
outcome     the findings of the last run, for `neuca status`; and the mark that a run is due
programs    runs another program, within limits
blocks      edits marked lines in a file that others write to as well
users       accounts, public keys and sudo files; `authorized_keys` edits a user's keys
hostname    the host name, and its line in the hosts file
storage     iSCSI disks; `iscsi` calls open-iscsi, `blockdev` examines, formats and mounts a disk
scripts     runs each script once for each instance; `supervisor` is the process that runs one

A feature is one module, a row of `base.FEATURES`, and a row of `run.RUNS`; `[guest]` of the
configuration has a switch for each.
"""

# SPDX-License-Identifier: MIT
