"""What should be: roles, names, links, routes and files, resolved against one World. Pure."""

# SPDX-License-Identifier: MIT
