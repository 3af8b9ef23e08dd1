#!/usr/bin/env bash
# Makes bin/bench-python, the environment in which pdbench runs vLLM's Python example: exactly the packages of
# cmd/pdbench/python/requirements.txt, again whenever that or the interpreter has changed.
set -euo pipefail
cd "$(dirname "$0")/.."
list=cmd/pdbench/python/requirements.txt
home=bin/bench-python
python=${PYTHON:-python3}
command -v "$python" >/dev/null || scripts/debian-packages.sh python3 python3
"$python" -c 'import ensurepip, venv' 2>/dev/null || scripts/debian-packages.sh venv python3-venv
made="$(cksum <"$list") $("$python" --version)"
[ "$(cat "$home/.made" 2>/dev/null)" != "$made" ] || exit 0
rm -rf "$home"
"$python" -m venv "$home"
timeout 240 "$home/bin/pip" install --quiet --disable-pip-version-check --no-deps --only-binary :all: -r "$list"
echo "$made" >"$home/.made"
