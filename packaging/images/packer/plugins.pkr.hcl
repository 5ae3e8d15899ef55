# For packer 1.7 or later, whose builder for QEMU is a plugin; packer 1.6 does not know this block.
packer {
  required_plugins {
    qemu = {
      source  = "github.com/hashicorp/qemu"
      version = ">= 1.0.0"
    }
  }
}
