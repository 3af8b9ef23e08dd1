#!/usr/bin/env bash
# Runs every fuzz target of the repository for the given time, one after the other.
set -euo pipefail
cd "$(dirname "$0")/.."
time=${1:-30s}

grep -rl --include='*_test.go' '^func Fuzz' . | xargs -n1 dirname | sort -u | while read -r folder; do
	grep -ho '^func Fuzz[A-Za-z0-9_]*' "$folder"/*_test.go | sed 's/^func //' | sort | while read -r target; do
		echo "== $folder $target"
		go test -run '^$' -fuzz "^$target\$" -fuzztime "$time" -fuzzminimizetime 1s -parallel 2 "$folder"
	done
done
