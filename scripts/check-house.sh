#!/usr/bin/env bash
# Checks the figures of words and papers: sizes of the first pages, rows of the glossary, identifiers that the
# glossary has replaced, files that package comments name, and that the workflow runs what .ci/run runs
# (scripts/house).
# Prints every fault and exits 1 if there is one.
set -euo pipefail
cd "$(dirname "$0")/.."
go run ./scripts/house
