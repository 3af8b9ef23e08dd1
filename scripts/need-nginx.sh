#!/usr/bin/env bash
# Makes sure that nginx and curl are there, which profile scale of compose.yaml needs without containers: installs Debian's packages
# if they are not. The service that the package brings is not used.
set -euo pipefail
PATH=$PATH:/usr/sbin
command -v nginx >/dev/null && command -v curl >/dev/null && exit
exec "$(dirname "$0")/debian-packages.sh" "nginx or curl" nginx-light curl
