#!/usr/bin/env bash
# Makes sure that redis-server and redis-cli are there, which tests start: installs Debian's package if they are
# not. The service that the package brings is not used; it is kept from starting.
set -euo pipefail
command -v redis-server >/dev/null && command -v redis-cli >/dev/null && exit
root=()
if [ "$(id -u)" != 0 ]; then
	command -v sudo >/dev/null && sudo -n true 2>/dev/null || { echo "redis-server is missing: apt install redis-server" >&2; exit 1; }
	root=(sudo -n)
fi
command -v apt-get >/dev/null || { echo "redis-server is missing: install Redis 7 or Valkey with its command-line client" >&2; exit 1; }
"${root[@]}" apt-get update -q
"${root[@]}" env RUNLEVEL=1 DEBIAN_FRONTEND=noninteractive apt-get install -qy --no-install-recommends redis-server
