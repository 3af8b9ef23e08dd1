# shellcheck shell=bash
# What makes a pair that of its connector: --kv-transfer-config, environment, arguments and ports; sourced by up.

# Ports besides the HTTP ones. Mooncake's bootstrap server and LMCache's ports of decode listen on all interfaces.
side_channel_port_of() {
  case $1 in
    prefill) echo "${PREFILL_SIDE_CHANNEL_PORT:-$((5559 + nth))}" ;;
    decode) echo "${DECODE_SIDE_CHANNEL_PORT:-$((5659 + nth))}" ;;
  esac
}
bootstrap_port=8998
lmcache_init_port() { echo $((5730 + nth)); }
lmcache_alloc_port() { echo $((5740 + nth)); }
lmcache_notify_port() { echo $((7500 + nth)); } # of the proxy

# ports_of_connector ROLE: those that the instance listens on.
ports_of_connector() {
  case $connector:$1 in
    nixl:* | multi:*) side_channel_port_of "$1" ;;
    mooncake:prefill) echo "$bootstrap_port" ;;
    lmcache:decode | lmcache-sync:decode) lmcache_init_port && lmcache_alloc_port ;;
  esac
}

# notes_of_connector: what a proxy has to be told besides the URLs.
notes_of_connector() {
  case $connector in
    mooncake) echo "BOOTSTRAP_PORT=$bootstrap_port" ;;
    lmcache | lmcache-sync)
      echo "LMCACHE_INIT_PORT=$(lmcache_init_port)"
      echo "LMCACHE_ALLOC_PORT=$(lmcache_alloc_port)"
      echo "LMCACHE_NOTIFY_PORT=$(lmcache_notify_port)"
      ;;
  esac
}

# num_threads 0: no transfer threads besides nixl's own; there is one core.
nixl_transfer='{"kv_connector":"NixlConnector","kv_role":"kv_both",'
nixl_transfer+='"kv_connector_extra_config":{"bidirectional_kv_xfer":true,"num_threads":0}}'

# transfer_of ROLE: --kv-transfer-config, or nothing. The ExampleConnector beside NIXL has a folder for each instance: an
# engine ends when it looks for a prompt of which another is just writing the files.
transfer_of() {
  local one_way=kv_producer skip=""
  if [[ $1 == decode ]]; then
    one_way=kv_consumer
    skip=',"skip_last_n_tokens":1' # decode's prompt ends with prefill's first token, whose KV nobody has
  fi
  case $connector in
    nixl) echo "$nixl_transfer" ;;
    mooncake)
      echo '{"kv_connector":"MooncakeConnector","kv_role":"'$one_way'",' \
        '"kv_connector_extra_config":{"mooncake_protocol":"tcp"}}'
      ;;
    lmcache | lmcache-sync)
      echo '{"kv_connector":"LMCacheConnectorV1","kv_role":"'$one_way'","kv_connector_extra_config":' \
        '{"discard_partial_chunks":false,"lmcache_rpc_port":"'"$connector-$1-$(port_of "$1")"'"'$skip'}}'
      ;;
    lmcache-storage)
      echo '{"kv_connector":"LMCacheConnectorV1","kv_role":"kv_both","kv_connector_extra_config":' \
        '{"lmcache_rpc_port":"'"$connector-$1-$(port_of "$1")"'"}}'
      ;;
    multi)
      echo '{"kv_connector":"MultiConnector","kv_role":"kv_both","kv_connector_extra_config":{"connectors":['"$nixl_transfer," \
        '{"kv_connector":"ExampleConnector","kv_role":"kv_both",' \
        '"kv_connector_extra_config":{"shared_storage_path":"'"$shared/$1"'"}}]}}'
      ;;
  esac
}

# arguments_of ROLE: of vllm serve, what depends on the connector. LMCache's P/D never notifies about a prompt that prefill
# computes in several steps (0.5.6, async), and ExampleConnector stores the first step only, so a prompt has to fit into one.
arguments_of() {
  local transfer
  transfer="$(transfer_of "$1")"
  [[ -z $transfer ]] || printf '%s\n' --kv-transfer-config "$transfer"
  case $connector in
    lmcache* | multi) printf '%s\n' --max-num-batched-tokens 8192 ;;
  esac
}

# environment_of ROLE: lines NAME=VALUE. VLLM_PLUGINS is set for each pair, so that cpuconn, once installed, does not
# touch those that run without it.
#
#   VLLM_MOONCAKE_ABORT_REQUEST_TIMEOUT  how long prefill keeps what nobody reads and decode waits for what nobody sends;
#                                        480 s by default, too long for tests.
#   PYTHONHASHSEED                       LMCache's keys come from Python's hash, and both instances must have the same.
#   LMCACHE_TRACK_USAGE                  otherwise the engine reports to a statistics host at start.
environment_of() {
  case $connector in
    plain) echo VLLM_PLUGINS=carryover ;;
    nixl | multi)
      echo VLLM_PLUGINS=carryover
      echo VLLM_NIXL_SIDE_CHANNEL_HOST=127.0.0.1
      echo "VLLM_NIXL_SIDE_CHANNEL_PORT=$(side_channel_port_of "$1")"
      ;;
    mooncake)
      echo VLLM_PLUGINS=carryover,cpuconn
      echo "VLLM_MOONCAKE_BOOTSTRAP_PORT=$bootstrap_port"
      echo VLLM_MOONCAKE_ABORT_REQUEST_TIMEOUT=12
      ;;
    lmcache*)
      echo VLLM_PLUGINS=carryover,cpuconn
      echo "LMCACHE_CONFIG_FILE=$run/$1.yaml"
      echo PYTHONHASHSEED=0
      echo LMCACHE_TRACK_USAGE=false
      ;;
  esac
}

# write_config_of ROLE: the file that the environment names, if it does.
write_config_of() {
  case $connector in
    lmcache*) lmcache_config "$1" >"$run/$1.yaml" ;;
  esac
}

# lmcache_config ROLE: LMCache's configuration. A token of the model has 4 KiB of KV, so the 256 MiB between the two are
# 256 chunks of 256 tokens.
lmcache_config() {
  case $connector in
    lmcache-storage)
      cat <<YAML
chunk_size: 64
local_cpu: true
max_local_cpu_size: 0.5
remote_url: "fs://127.0.0.1:0$shared"
remote_serde: naive
save_unfull_chunk: false
YAML
      return
      ;;
    lmcache-sync) echo "pd_backend_mode: sync" ;;
    lmcache) echo "pd_backend_mode: async" ;;
  esac
  cat <<YAML
chunk_size: 256
local_cpu: false
max_local_cpu_size: 0
max_local_disk_size: 0
enable_pd: true
transfer_channel: nixl
nixl_backends: [UCX]
pd_buffer_size: 268435456
pd_buffer_device: cpu
YAML
  case $1 in
    prefill)
      cat <<YAML
pd_role: sender
pd_proxy_host: 127.0.0.1
pd_proxy_port: $(lmcache_notify_port)
YAML
      ;;
    decode)
      cat <<YAML
pd_role: receiver
pd_peer_host: 127.0.0.1
pd_peer_init_port: [$(lmcache_init_port)]
pd_peer_alloc_port: [$(lmcache_alloc_port)]
YAML
      ;;
  esac
}

# empty_shared: a pair that starts whole starts with nothing on disk.
empty_shared() {
  case $connector in
    lmcache-storage | multi) rm -rf "$shared" && mkdir -p "$shared" ;;
  esac
}
