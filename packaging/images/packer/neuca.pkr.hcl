# Installs the agent in Debian's cloud image. With packer 1.7 or later, in this directory:
#   packer init . && packer build -var package=neuca-guest-tools_2.0.0_all.deb .
# Debian's packer 1.6.6 reads this file alone:
#   packer build -var package=neuca-guest-tools_2.0.0_all.deb neuca.pkr.hcl
variable "package" {
  type        = string
  description = "The Debian package of neuca-guest-tools."
}

variable "image" {
  type    = string
  default = "https://cloud.debian.org/images/cloud/bookworm/latest/debian-12-genericcloud-amd64.qcow2"
}

variable "checksum" {
  type    = string
  default = "file:https://cloud.debian.org/images/cloud/bookworm/latest/SHA512SUMS"
}

variable "accelerator" {
  type        = string
  default     = "kvm"
  description = "\"tcg\" on a machine without KVM."
}

source "qemu" "debian" {
  iso_url          = var.image
  iso_checksum     = var.checksum
  disk_image       = true
  format           = "qcow2"
  headless         = true
  accelerator      = var.accelerator
  ssh_username     = "debian"
  ssh_password     = "for the time of building"
  shutdown_command = "sudo systemctl poweroff"
  cd_label         = "cidata"
  cd_files         = ["${path.root}/meta-data", "${path.root}/user-data"]
}

build {
  sources = ["source.qemu.debian"]

  provisioner "file" {
    source      = var.package
    destination = "/tmp/neuca-guest-tools.deb"
  }

  provisioner "shell" {
    inline = [
      "cloud-init status --wait",
      "sudo apt-get -q -y update",
      "sudo DEBIAN_FRONTEND=noninteractive apt-get -q -y --no-install-recommends install udev /tmp/neuca-guest-tools.deb",
      "rm /tmp/neuca-guest-tools.deb",
      "sudo passwd --lock debian",
      "sudo rm /etc/ssh/sshd_config.d/50-cloud-init.conf",
      "sudo cloud-init clean --logs",
      "sudo neuca clean",
    ]
  }
}
