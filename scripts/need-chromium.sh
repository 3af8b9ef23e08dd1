#!/usr/bin/env bash
# Makes sure that chromium is there, in which the page for operators is tested: installs Debian's package if it is not.
set -euo pipefail
command -v chromium >/dev/null && exit
exec "$(dirname "$0")/debian-packages.sh" chromium chromium fonts-dejavu-core
