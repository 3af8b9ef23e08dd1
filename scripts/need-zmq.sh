#!/usr/bin/env bash
# Makes sure that a Python is there which has libzmq and MessagePack (pyzmq, msgpack), whose peers tests talk to:
# installs Debian's packages if there is none. Debian's Python has them then, also where another one comes first on
# PATH; upstream/zmtp/zmqtest looks at both.
set -euo pipefail
for python in python3 /usr/bin/python3; do
	"$python" -c 'import zmq, msgpack' 2>/dev/null && exit
done
root=()
if [ "$(id -u)" != 0 ]; then
	command -v sudo >/dev/null && sudo -n true 2>/dev/null || { echo "pyzmq is missing: apt install python3-zmq python3-msgpack" >&2; exit 1; }
	root=(sudo -n)
fi
command -v apt-get >/dev/null || { echo "pyzmq is missing: install pyzmq and msgpack for python3" >&2; exit 1; }
"${root[@]}" apt-get update -q
"${root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -qy --no-install-recommends python3-zmq python3-msgpack
