# Written by tests/ansible_options.py from neuca_tools/config/options.py: do not edit.
# SPDX-License-Identifier: MIT
"""Every option of neuca-config(5), as documentation."""


class ModuleDocFragment:
    """For modules that write the configuration."""

    DOCUMENTATION = r"""
options:
  options:
    description:
      - >-
        The options of each section of the configuration, as in neuca-config(5).
      - >-
        Names have V(_) for V(-). What is not given is not written, and keeps its default.
    type: dict
    default: {}
    suboptions:
      guest:
        description:
          - >-
            The section C([guest]).
        type: dict
        suboptions:
          hostname:
            description:
              - >-
                The host name, and its entry in the hosts file.
              - >-
                Default: true.
            type: "bool"
          login:
            description:
              - >-
                The user who gets the public keys that the platform provides for this guest (in
                the metadata of OpenStack, EC2 and NoCloud), in addition to those of the
                document.
              - >-
                cloud-init, where it runs, adds them to a user of its own.
              - >-
                If the user does not exist, it is created, without the right to use sudo.
              - >-
                Default: none.
            type: "str"
          router:
            description:
              - >-
                Forwarding.
              - >-
                If disabled, what documents request is ignored. Default: true.
            type: "bool"
          script_timeout:
            description:
              - >-
                The time limit of a script [1 to 86400].
              - >-
                After that, the script and its child processes are terminated, and the next one
                starts. Default: 3600.
            type: "float"
          scripts:
            description:
              - >-
                The scripts, each of which runs once for each instance.
              - >-
                Default: true.
            type: "bool"
          storage:
            description:
              - >-
                The iSCSI disks.
              - >-
                If disabled, attached disks stay until the next boot and are not attached again
                then.
              - >-
                Default: true.
            type: "bool"
          users:
            description:
              - >-
                Users, their public keys, and their right to use sudo.
              - >-
                Default: true.
            type: "bool"
      linux:
        description:
          - >-
            The section C([linux]).
        type: dict
        suboptions:
          allow_sysctls:
            description:
              - >-
                Sysctls of the whole host that a document may set to any value, in addition to
                those listed in neuca-user-data(5).
              - >-
                Example: `net.ipv4.tcp_base_mss'.
              - >-
                Keys that change every interface (`net.ipv4.conf.all.*, `net.ipv4.ip_forward'')
                cannot be permitted.
              - >-
                If one key of the list is invalid, none is permitted. Default: none.
            type: "list"
            elements: "str"
          data_udev_priority:
            description:
              - >-
                The number that the file names begin with, for dataplane NICs [0 to 99].
              - >-
                Default: 10.
            type: "int"
          dhcp_client:
            description:
              - >-
                The program that the agent starts for DHCP on dataplane links that no network
                manager serves; see DHCP without a network manager in neucad(8).
              - >-
                With auto, it is dhclient(8), or else dhcpcd(8), if it is installed.
              - >-
                A name or the path of one of the two is used even if a network manager runs, or
                with managers = none.
              - >-
                Under systemd, run-directory must have its default. Default: auto.
            type: "str"
            choices: ["auto", "none", "dhclient", "dhcpcd", "path"]
          dhcp_helper:
            description:
              - >-
                The program of this package that such a client tells of its leases.
              - >-
                Default: /usr/libexec/neuca-guest-tools/dhcp-helper.
            type: "path"
          managers:
            description:
              - >-
                With none, udevd, NetworkManager and systemd-networkd are not contacted.
              - >-
                Their files are written nevertheless.
              - >-
                Default: auto.
            type: "str"
            choices: ["auto", "none"]
          mgmt_udev_priority:
            description:
              - >-
                The same for other NICs [0 to 99].
              - >-
                Default: 15.
            type: "int"
          networkd_directory:
            description:
              - >-
                The directory of the files for systemd-networkd.
              - >-
                Default: /etc/systemd/network.
            type: "path"
          networkmanager_directory:
            description:
              - >-
                The directory of neuca.conf for NetworkManager.
              - >-
                Default: /etc/NetworkManager/conf.d.
            type: "path"
          networkmanager_profiles:
            description:
              - >-
                The directory of the profiles with which NetworkManager does DHCP on dataplane
                NICs.
              - >-
                Default: /etc/NetworkManager/system-connections.
            type: "path"
          sysctl_directory:
            description:
              - >-
                The directory of neuca.conf for systemd-sysctl.
              - >-
                Default: /etc/sysctl.d.
            type: "path"
          udev_directory:
            description:
              - >-
                The directory of the udev rules.
              - >-
                Default: /etc/udev/rules.d.
            type: "path"
          udev_substring:
            description:
              - >-
                The middle part of their file names: letters, digits, `_', `.' and `-', at most
                64 characters.
              - >-
                Every file number-text-MAC.rules in the directory is considered neucad's.
              - >-
                Default: `neuca-persistent'.
            type: "str"
      logging:
        description:
          - >-
            The section C([logging]).
        type: dict
        suboptions:
          log_directory:
            description:
              - >-
                Where the output of the scripts in the document is stored, one file
                script-NAME.log for each.
              - >-
                Log messages of the agent are not stored there; they go to the journal, or to
                standard error. Default: /var/log/neuca.
            type: "path"
          log_file:
            description:
              - >-
                The log file of version 1.7, in log-directory.
              - >-
                This version does not write to it; `neuca clean' removes it together with its
                rotated copies.
              - >-
                Default: neuca-agent.log.
            type: "str"
          log_level:
            description:
              - >-
                The lowest level of messages that are logged.
              - >-
                Default: debug.
            type: "str"
            choices: ["debug", "info", "warning", "error", "critical"]
      metadata:
        description:
          - >-
            The section C([metadata]).
        type: dict
        suboptions:
          platform:
            description:
              - >-
                Which sources auto queries at well-known addresses, where any host on the same
                network can respond too.
              - >-
                dmi selects the services of the cloud that the firmware names in its DMI tables
                (/sys/class/dmi/id), and none if it names no supported cloud. any selects
                OpenStack and EC2; this is for testbeds that do not set DMI.
              - >-
                A source named in sources is always queried.
              - >-
                neuca status shows the selection.
              - >-
                Default: dmi.
            type: "str"
            choices: ["dmi", "any"]
          poll_interval:
            description:
              - >-
                The interval between queries of the sources [1 to 86400].
              - >-
                While no source responds, the interval doubles up to one minute, with a random
                variation of a quarter.
              - >-
                Default: 10.
            type: "float"
          sources:
            description:
              - >-
                Where the document comes from.
              - >-
                The first source in this order that has one is used, regardless of their speed;
                see neuca(1).
              - >-
                A service is requested only through NICs that may be management NICs.
              - >-
                Once a service has answered, only its NIC is used, until another service is
                named here (neucad(8), `Where metadata comes from').
              - >-
                With none, no source is queried: the sections [interface MAC], [vlan MAC.ID],
                [bond NAME] and so on of this file are the whole configuration.
            type: "list"
            elements: "str"
          timeout:
            description:
              - >-
                The time limit of one query of all sources [0.1 to 300]. Default: 10.
            type: "float"
      network:
        description:
          - >-
            The section C([network]).
        type: dict
        suboptions:
          allow_default_route:
            description:
              - >-
                Whether a document may request a route to 0.0.0.0/0 or ::/0 if the host has no
                default route of that family.
              - >-
                Default: false.
            type: "bool"
          drift:
            description:
              - >-
                What happens to manual changes.
              - >-
                report shows them and keeps them until the next start.
              - >-
                enforce corrects them when a link or an address changes.
              - >-
                Default: report.
            type: "str"
            choices: ["report", "enforce"]
          management_macs:
            description:
              - >-
                The management NICs, regardless of the routing table.
              - >-
                If one of them is present, every other NIC that the platform's metadata
                describes is a dataplane NIC.
              - >-
                If this option is set, the record of earlier management NICs is not consulted,
                and metadata is requested through these NICs only.
              - >-
                See "Which NIC is which" in neucad(8).
              - >-
                Default: none.
            type: "list"
            elements: "str"
          policy_routing:
            description:
              - >-
                Whether packets from the addresses of a dataplane NIC with a gateway leave
                through this NIC; see Policy routing of neucad(8). auto is yes for a NIC whose
                gateway is from the platform (OpenStack, EC2) or from a gateway key, and no for
                all others. yes includes the gateways of NoCloud and netplan documents.
              - >-
                no removes all of these rules and tables at the next pass.
              - >-
                A policy-routing key in the section of a NIC in this file takes precedence over
                this option, which takes precedence over documents.
              - >-
                Default: auto.
            type: "str"
            choices: ["auto", "yes", "no"]
      runtime:
        description:
          - >-
            The section C([runtime]).
        type: dict
        suboptions:
          command_timeout:
            description:
              - >-
                The time limit of a pass of the daemon, and how long a command waits for another
                pass to end [1 to 86400].
              - >-
                Default: 300.
            type: "float"
          dataplane_macs_to_ignore:
            description:
              - >-
                NICs that are never touched, and neither are devices on top of them.
              - >-
                Both the permanent and the current MAC address of a NIC are compared.
              - >-
                Six bytes include every InfiniBand port whose GUID they can stand for.
              - >-
                An invalid address is an error; the rest of the list is used.
              - >-
                Default: none.
            type: "list"
            elements: "str"
          hosts_file:
            description:
              - >-
                The hosts file; see hosts(5).
              - >-
                Default: /etc/hosts.
            type: "path"
          loopback_address:
            description:
              - >-
                The address of that entry, in 127.0.0.0/8.
              - >-
                Default: 127.255.255.1.
            type: "str"
          pid_directory:
            description:
              - >-
                The directory of the PID file.
              - >-
                Default: /var/run.
            type: "path"
          pid_file:
            description:
              - >-
                The name of the PID file, or its absolute path.
              - >-
                Default: neucad.pid.
            type: "str"
          run_directory:
            description:
              - >-
                State that does not survive a reboot.
              - >-
                Two agents on one host need separate directories.
              - >-
                If it is changed, neuca-guest.path and neuca-guest.service, which refer to the
                default, need a drop-in each.
              - >-
                Default: /run/neuca.
            type: "path"
          set_loopback_hostname:
            description:
              - >-
                Whether to add an entry for the host name to the hosts file. Default: true.
            type: "bool"
          state_directory:
            description:
              - >-
                State that survives a reboot.
              - >-
                Default: /var/lib/neuca.
            type: "path"
      selftest:
        description:
          - >-
            The section C([selftest]).
        type: dict
        suboptions:
          expect:
            description:
              - >-
                The expected rate of the path, such as 5G.
            type: "str"
          interface:
            description:
              - >-
                The route to every peer must leave through this interface.
            type: "str"
          peers:
            description:
              - >-
                The peers that are tested if none is named: addresses, or name@address.
              - >-
                The profiles of [tuning] probe them too.
            type: "list"
            elements: "str"
          plan:
            description:
              - >-
                quick, standard or full.
              - >-
                Default: standard.
            type: "str"
            choices: ["quick", "standard", "full"]
          port:
            description:
              - >-
                The port of iperf3, 1024 to 65533; helpers use the two following ports.
              - >-
                Default: 45678.
            type: "int"
          rate:
            description:
              - >-
                The highest rate at which a test may send.
            type: "str"
          run_at_boot:
            description:
              - >-
                Whether neuca-selftest.timer runs a quick test between 30 and 90 seconds after
                each boot has finished (multi-user.target), if there are peers.
              - >-
                Default: true.
            type: "bool"
          secret_file:
            description:
              - >-
                The secret that both hosts share, at least 16 bytes.
              - >-
                The file must belong to root or to the user who runs the test, and be unreadable
                for all others.
              - >-
                Without it, no helper of the peer is used.
            type: "path"
          time:
            description:
              - >-
                The duration of each throughput test, 1 to 3600.
              - >-
                Default: that of the plan.
            type: "float"
      tuning:
        description:
          - >-
            The section C([tuning]).
        type: dict
        suboptions:
          mtu_probe:
            description:
              - >-
                Whether to probe the path before a profile named here raises the MTU of a NIC in
                a virtual machine or container.
              - >-
                Packets of that size are sent to a peer on a network of the NIC (UDP, ports
                33434 to 33436, answered by ICMP), and the MTU is raised as far as the peer
                acknowledges them.
              - >-
                The peers are the literal addresses of peers in [selftest].
              - >-
                Without a peer, nothing is probed.
              - >-
                The NIC has the larger MTU during the probe.
              - >-
                Default: true.
            type: "bool"
          profile:
            description:
              - >-
                A comma-separated list of profiles.
              - >-
                If several set the same number, the highest is used.
              - >-
                auto sets few sysctls, each of which has a measured effect.
              - >-
                See neuca-profile(5).
              - >-
                Default: auto.
            type: "list"
            elements: "str"
          profile_directory:
            description:
              - >-
                The directory of local profiles, which take precedence over those of the
                package.
              - >-
                Default: /etc/neuca/profiles.
            type: "path"
          rate:
            description:
              - >-
                The rate of the path for which bdp computes buffers, in powers of 1000, such as
                `10Gbit'.
              - >-
                Default: none.
            type: "str"
          rtt:
            description:
              - >-
                The round-trip time of that path, in `us', `ms' or `s'.
              - >-
                Default: none.
            type: "str"
"""
