#!/usr/bin/env bash
# Makes sure that a Python is there which has libzmq and MessagePack (pyzmq, msgpack), whose peers tests talk to:
# installs Debian's packages if there is none. Debian's Python has them then, also where another one comes first on
# PATH; upstream/zmq/zmtp/zmqtest looks at both.
set -euo pipefail
for python in python3 /usr/bin/python3; do
	"$python" -c 'import zmq, msgpack' 2>/dev/null && exit
done
exec "$(dirname "$0")/debian-packages.sh" pyzmq python3-zmq python3-msgpack
