#!/usr/bin/env bash
# Checks the figures of code, words and papers: tokens of product, tests and simulator, lines of files, sizes of pages, hard turns of phrase,
# rows of glossary and reference, identifiers that the glossary has replaced, files that package comments name, that the
# workflow runs what .ci/run runs (scripts/house), and that docs/reference.md is what make reference would write.
# Prints every fault and exits 1 if there is one.
set -euo pipefail
cd "$(dirname "$0")/.."
go run ./scripts/house
output=$(go test ./cmd/carryover/e2e -run '^TestReference_' -count 1 -v 2>&1) && grep -q -e '--- PASS: TestReference_' <<<"$output" || {
	printf '%s\n' "$output" "docs/reference.md is not what the code says"
	exit 1
}
