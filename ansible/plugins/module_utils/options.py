# Written by tests/ansible_options.py from neuca_tools/config/options.py: do not edit.
# SPDX-License-Identifier: MIT
"""Every option of neuca-config(5), as an argument specification."""

# fmt: off
OPTIONS = {
    "guest": {
        "type": "dict",
        "options": {
            "hostname": {
                "type": "bool"
            },
            "login": {
                "type": "str"
            },
            "router": {
                "type": "bool"
            },
            "script_timeout": {
                "type": "float"
            },
            "scripts": {
                "type": "bool"
            },
            "storage": {
                "type": "bool"
            },
            "users": {
                "type": "bool"
            }
        }
    },
    "linux": {
        "type": "dict",
        "options": {
            "allow_sysctls": {
                "type": "list",
                "elements": "str"
            },
            "data_udev_priority": {
                "type": "int"
            },
            "dhcp_client": {
                "type": "str"
            },
            "dhcp_helper": {
                "type": "path"
            },
            "managers": {
                "type": "str",
                "choices": [
                    "auto",
                    "none"
                ]
            },
            "mgmt_udev_priority": {
                "type": "int"
            },
            "networkd_directory": {
                "type": "path"
            },
            "networkmanager_directory": {
                "type": "path"
            },
            "networkmanager_profiles": {
                "type": "path"
            },
            "sysctl_directory": {
                "type": "path"
            },
            "udev_directory": {
                "type": "path"
            },
            "udev_substring": {
                "type": "str"
            }
        }
    },
    "logging": {
        "type": "dict",
        "options": {
            "log_directory": {
                "type": "path"
            },
            "log_file": {
                "type": "str"
            },
            "log_level": {
                "type": "str",
                "choices": [
                    "debug",
                    "info",
                    "warning",
                    "error",
                    "critical"
                ]
            }
        }
    },
    "metadata": {
        "type": "dict",
        "options": {
            "platform": {
                "type": "str",
                "choices": [
                    "dmi",
                    "any"
                ]
            },
            "poll_interval": {
                "type": "float"
            },
            "sources": {
                "type": "list",
                "elements": "str"
            },
            "timeout": {
                "type": "float"
            }
        }
    },
    "network": {
        "type": "dict",
        "options": {
            "allow_default_route": {
                "type": "bool"
            },
            "drift": {
                "type": "str",
                "choices": [
                    "report",
                    "enforce"
                ]
            },
            "management_macs": {
                "type": "list",
                "elements": "str"
            },
            "policy_routing": {
                "type": "str",
                "choices": [
                    "auto",
                    "yes",
                    "no"
                ]
            }
        }
    },
    "runtime": {
        "type": "dict",
        "options": {
            "command_timeout": {
                "type": "float"
            },
            "dataplane_macs_to_ignore": {
                "type": "list",
                "elements": "str"
            },
            "hosts_file": {
                "type": "path"
            },
            "loopback_address": {
                "type": "str"
            },
            "pid_directory": {
                "type": "path"
            },
            "pid_file": {
                "type": "str"
            },
            "run_directory": {
                "type": "path"
            },
            "set_loopback_hostname": {
                "type": "bool"
            },
            "state_directory": {
                "type": "path"
            }
        }
    },
    "selftest": {
        "type": "dict",
        "options": {
            "expect": {
                "type": "str"
            },
            "interface": {
                "type": "str"
            },
            "peers": {
                "type": "list",
                "elements": "str"
            },
            "plan": {
                "type": "str",
                "choices": [
                    "quick",
                    "standard",
                    "full"
                ]
            },
            "port": {
                "type": "int"
            },
            "rate": {
                "type": "str"
            },
            "run_at_boot": {
                "type": "bool"
            },
            "secret_file": {
                "type": "path"
            },
            "time": {
                "type": "float"
            }
        }
    },
    "tuning": {
        "type": "dict",
        "options": {
            "profile": {
                "type": "list",
                "elements": "str"
            },
            "profile_directory": {
                "type": "path"
            },
            "rate": {
                "type": "str"
            },
            "rtt": {
                "type": "str"
            }
        }
    }
}
