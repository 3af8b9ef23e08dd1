#!/usr/bin/env bash
# debian-packages.sh WHAT PACKAGE…: installs Debian's packages, since WHAT is missing. A service that a package brings is kept from
# starting. With INSTALL=no it only says that WHAT is missing, and fails.
set -euo pipefail
missing=$1
shift
[ "${INSTALL:-}" != no ] || { echo "$missing is missing: apt install $*" >&2; exit 1; }
root=()
if [ "$(id -u)" != 0 ]; then
	command -v sudo >/dev/null && sudo -n true 2>/dev/null || { echo "$missing is missing: apt install $*" >&2; exit 1; }
	root=(sudo -n)
fi
command -v apt-get >/dev/null || { echo "$missing is missing: install what Debian's $* has" >&2; exit 1; }
"${root[@]}" apt-get update -q
"${root[@]}" env RUNLEVEL=1 DEBIAN_FRONTEND=noninteractive apt-get install -qy --no-install-recommends "$@"
