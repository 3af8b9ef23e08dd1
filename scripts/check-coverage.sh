#!/usr/bin/env bash
# Checks the coverage floors in a merged profile: 95 % of statements for sse, convcache and
# its redisstore, which every byte and every ticket pass through, for the fleet, the queue and the
# connectors, which every turn does, and for discovery, kvready, kvevents, zmtp, msgpack and http1, which
# read what others write; 85 % for the whole.
set -euo pipefail
cd "$(dirname "$0")/.."
profile=${1:?usage: check-coverage.sh PROFILE}

# A block appears once per test binary; it is covered if any of them ran it.
awk -v root="$(go list -m)" '
NR > 1 {
	block = $1; statements[block] = $2
	if ($3 > 0) covered[block] = 1
}
END {
	for (block in statements) {
		file = block; sub(/:.*/, "", file)
		package = file; sub(/\/[^\/]*$/, "", package)
		total[package] += statements[block]; all += statements[block]
		if (block in covered) { hit[package] += statements[block]; allhit += statements[block] }
	}
	floor[root "/sse"] = 95; floor[root "/convcache"] = 95; floor[root "/convcache/redisstore"] = 95
	floor[root "/upstream/connector"] = 95; floor[root "/upstream/zmq/zmtp"] = 95; floor[root "/upstream/msgpack"] = 95
	floor[root "/upstream/zmq/kvready"] = 95; floor[root "/upstream/zmq/kvevents"] = 95; floor[root "/upstream/http1"] = 95
	for (package in total) if (package ~ "^" root "/upstream/connector/") floor[package] = 95
	floor[root "/upstream/fleet"] = 95; floor[root "/upstream/fleet/facts"] = 95; floor[root "/upstream/fleet/health"] = 95; floor[root "/server/queue"] = 95; floor[root "/upstream/discovery"] = 95
	for (package in total) {
		percent = 100 * hit[package] / total[package]
		printf "%6.1f %%  %s\n", percent, package | "sort -k3"
		if (package in floor && percent < floor[package]) { low = low sprintf("%s: %.1f %%, want %d %%\n", package, percent, floor[package]) }
	}
	close("sort -k3")
	percent = 100 * allhit / all
	printf "%6.1f %%  whole repository\n", percent
	if (percent < 85) low = low sprintf("whole repository: %.1f %%, want 85 %%\n", percent)
	if (low != "") { printf "coverage below its floor:\n%s", low; exit 1 }
}' "$profile"
