#!/usr/bin/env bash
# Makes sure that redis-server and redis-cli are there, which tests start (Redis 7 or newer, or Valkey): installs Debian's package if
# they are not. The service that the package brings is not used.
set -euo pipefail
command -v redis-server >/dev/null && command -v redis-cli >/dev/null && exit
exec "$(dirname "$0")/debian-packages.sh" redis-server redis-server
