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
                the metadata of OpenStack, EC2 and NoCloud), in addition to any keys in the
                document.
              - >-
                If the user does not exist, it is created, without the right to use sudo.
              - >-
                If cloud-init runs, it adds these keys to its own default user regardless of
                this option.
              - >-
                Default: none.
            type: "str"
          router:
            description:
              - >-
                Packet forwarding.
              - >-
                If disabled, requests for it are ignored. Default: true.
            type: "bool"
          script_timeout:
            description:
              - >-
                The time limit of a script [1 to 86400].
              - >-
                When it expires, the script and its child processes get SIGTERM, and SIGKILL if
                the script is still there after 10 seconds.
              - >-
                The next script then starts.
              - >-
                Default: 3600.
            type: "float"
          scripts:
            description:
              - >-
                Scripts, which run once for each instance.
              - >-
                Default: true.
            type: "bool"
          storage:
            description:
              - >-
                iSCSI disks.
              - >-
                If disabled, disks that are attached remain so until the next boot, and are not
                attached again.
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
                Host-wide sysctls that a document may set to any value, in addition to those
                listed in neuca-sysctls(7), such as `net.ipv4.tcp_base_mss'.
              - >-
                Keys that affect every interface (`net.ipv4.conf.all.*', `net.ipv4.ip_forward')
                cannot be allowed. If any key in the list is invalid, the whole list is ignored.
                Default: none.
            type: "list"
            elements: "str"
          data_udev_priority:
            description:
              - >-
                The number at the beginning of the file names, for dataplane NICs [0 to 99].
              - >-
                Default: 10.
            type: "int"
          dhcp_client:
            description:
              - >-
                The DHCP client for dataplane links on which no network manager does DHCP; see
                DHCP without a network manager in neucad(8).
              - >-
                auto selects dhcpcd(8) if it is installed.
              - >-
                The last part of path has to be `dhcpcd'.
              - >-
                A client that is selected by name or path is used even if a network manager
                runs, and even with managers = none.
              - >-
                Under systemd, these clients work only if run-directory has its default value.
              - >-
                Default: auto.
            type: "str"
          dhcp_helper:
            description:
              - >-
                The program of this package to which these clients report their leases.
              - >-
                Default: /usr/libexec/neuca-guest-tools/dhcp-helper.
            type: "path"
          managers:
            description:
              - >-
                Whether udevd, NetworkManager and systemd-networkd are contacted. With none,
                they are not, but the files for them are still written, and neucad waits for the
                management NIC after boot as on other hosts.
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
                The directory of the NetworkManager profiles for DHCP on dataplane NICs.
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
                The middle part of the file names of these rules: letters, digits, `_', `.' and
                `-', at most 64 characters.
              - >-
                Every file number-text-MAC.rules in the directory is considered to belong to
                neucad.
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
                The directory for the output of the document's scripts, with one file
                script-NAME-DIGEST.log for each script.
              - >-
                The agent's own log messages go to the journal or to standard error instead.
                Default: /var/log/neuca.
            type: "path"
          log_file:
            description:
              - >-
                The name of the log file of version 1.7 in log-directory.
              - >-
                This version does not write to it, but `neuca clean' removes it together with
                its rotated copies.
              - >-
                Default: neuca-agent.log.
            type: "str"
          log_level:
            description:
              - >-
                The least severe level of messages that are logged.
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
                Which metadata services auto queries at well-known addresses, at which any host
                on the same network could respond.
              - >-
                dmi selects the services of the cloud that the firmware names in its DMI tables
                (/sys/class/dmi/id), or none if it names no supported cloud.
              - >-
                any selects OpenStack and EC2; it is intended for testbeds that do not set the
                DMI fields.
              - >-
                A service that is listed in sources explicitly is always queried.
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
                While no source responds, the interval doubles after each query, up to one
                minute, and varies randomly by up to a quarter.
              - >-
                Default: 10.
            type: "float"
          sources:
            description:
              - >-
                The sources of the document.
              - >-
                The first source in the list that has a document is used, even if a later one
                responds sooner.
              - >-
                The possible sources are listed under SOURCES in neuca(1).
              - >-
                Metadata services are queried only through NICs that may be management NICs.
              - >-
                Once a service has responded, only the NIC through which it responded is used,
                until another service is listed here; see Where metadata comes from in
                neucad(8).
              - >-
                The source imds is used only if it is listed here, and is not recorded as a
                service that has responded.
              - >-
                With none, no source is queried, no earlier document applies, and the sections
                [interface MAC], [vlan MAC.ID], [bond NAME] and so on of this file are the whole
                configuration.
            type: "list"
            elements: "str"
          timeout:
            description:
              - >-
                The time limit for querying all sources once [0.1 to 300]. Default: 10.
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
                When another program adds one, such as that of the management NIC, the route of
                the document is removed and reported as refused.
              - >-
                Default: false.
            type: "bool"
          drift:
            description:
              - >-
                What to do about drift: changes that others have made to what neucad has
                configured.
              - >-
                report shows the changes in neuca status and keeps them until neucad is
                restarted.
              - >-
                enforce reverts them, whenever a link or an address changes.
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
                The record of earlier management NICs is then disregarded, and metadata is
                requested only through the NICs listed here.
              - >-
                See Which NIC is which in neucad(8). Default: none.
            type: "list"
            elements: "str"
          policy_routing:
            description:
              - >-
                Whether packets from the addresses of a dataplane NIC with a gateway leave
                through this NIC; see Policy routing in neucad(8). auto means yes for a NIC
                whose gateway comes from the platform (OpenStack, EC2), from DHCP or from a
                gateway key, and no for all others.
              - >-
                yes also applies to the gateways of NoCloud and netplan documents.
              - >-
                no removes all of these rules and tables in the next pass.
              - >-
                A policy-routing key in a NIC's section of this file takes precedence over this
                option.
              - >-
                Unless this option is auto, it takes precedence over documents.
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
                The time limit of each pass of the daemon, and how long a command waits for
                another pass to finish [1 to 86400].
              - >-
                Default: 300.
            type: "float"
          dataplane_macs_to_ignore:
            description:
              - >-
                NICs that are ignored: neither they nor the devices on top of them are ever
                changed.
              - >-
                An entry matches the permanent or the current MAC address of a NIC.
              - >-
                A six-byte address also matches every InfiniBand port whose GUID it can
                represent.
              - >-
                An invalid address is an error; the rest of the list is used, and nothing new is
                configured.
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
                The directory for state that does not persist across reboots. Two agents on one
                host need separate directories. neuca-guest.path and neuca-guest.service refer
                to the default; if this option is changed, each of them needs a drop-in.
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
                The directory for state that persists across reboots.
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
                The interface through which the route to every peer must lead, except with
                compare-paths.
            type: "str"
          peers:
            description:
              - >-
                The peers that are tested if the command line names none, each as address or
                name@address.
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
                The port of iperf3, 1024 to 65533.
              - >-
                The helper uses the next two ports.
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
                Whether neuca-selftest.timer runs a quick test of the peers, if there are any,
                30 to 90 seconds after each boot has finished (multi-user.target).
              - >-
                Default: true.
            type: "bool"
          secret_file:
            description:
              - >-
                The file that contains the secret that both hosts share, at least 16 bytes.
              - >-
                The file must be owned by root or by the user who runs the test, and must not be
                readable by anyone else.
              - >-
                Without a secret, the test uses no helper on the peer.
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
          profile:
            description:
              - >-
                A comma-separated list of profiles.
              - >-
                If several profiles set the same number, the highest value is used.
              - >-
                auto sets only a few sysctls, each with a measured effect.
              - >-
                See neuca-profile(5). Default: auto.
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
                The rate of the path for which the profile bdp computes buffer sizes, such as
                `10Gbit'.
              - >-
                Prefixes are powers of 1000.
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
