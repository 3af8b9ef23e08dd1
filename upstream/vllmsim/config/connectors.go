package config

import "time"

// KVEvents is --kv-events-config with the publisher "zmq".
type KVEvents struct {
	// Port is the port at which the first rank publishes events; the other ranks use the next ports. -1 means a free port for each rank, 0 no
	// events.
	Port int `json:"port"`
	// ReplayPort is the port at which old events are replayed, with the same values as Port.
	ReplayPort int    `json:"replay_port"`
	Topic      string `json:"topic"`
}

// Mooncake is the configuration of ConnectorMooncake.
type Mooncake struct {
	// AbortTimeout is VLLM_MOONCAKE_ABORT_REQUEST_TIMEOUT, 480 s by default: how long decode waits for KV, and how long prefill keeps KV for
	// decode.
	AbortTimeout time.Duration `json:"abort_timeout"`
	// BootstrapPort is VLLM_MOONCAKE_BOOTSTRAP_PORT of all instances except decode; 0 takes a free port.
	BootstrapPort int `json:"bootstrap_port"`
}

// Storage is the configuration of ConnectorLMCacheStorage: LMCacheConnectorV1 with a remote_url of fs:// and
// save_unfull_chunk false (LMCache 0.5.6).
type Storage struct {
	// Folder is shared by all instances of a deployment.
	Folder string `json:"folder"`
	// ChunkSize is chunk_size, 64 tokens by default here.
	ChunkSize int `json:"chunk_size"`
}

// Values of Config.Connector.
const (
	ConnectorNIXL           = "nixl"
	ConnectorLMCache        = "lmcache"
	ConnectorLMCacheStorage = "lmcache-storage"
	ConnectorMooncake       = "mooncake"
)
