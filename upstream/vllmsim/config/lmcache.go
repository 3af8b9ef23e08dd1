package config

import "time"

// Values of LMCache.Mode.
const (
	LMCacheAsync = "async"
	LMCacheSync  = "sync"
)

// Values of LMCache.Tag: the type of a notification, by the version of LMCache.
const (
	TagProxyNotif      = "ProxyNotif"      // since September 2025
	TagNixlProxyNotif  = "NixlProxyNotif"  // before
	TagStoragePDStatus = "StoragePDStatus" // of P/D over storage
)

// LMCache is the configuration of ConnectorLMCache: LMCacheConnectorV1 with enable_pd (LMCache 0.5.6). The role "prefill" is
// pd_role sender, "decode" is receiver.
type LMCache struct {
	// Mode is pd_backend_mode of a sender. "async" (the default) answers HTTP before it sends the KV, "sync" when the KV has arrived and is
	// announced.
	Mode string `json:"mode"`
	// TP is the tensor parallelism of a sender and the number of port pairs of a receiver, 1 by default. Each rank of a sender pushes and
	// announces its share of the KV. A receiver has the KV when all shares have landed.
	TP int `json:"tp"`
	// MLA is a model whose KV is equal on all ranks: the first rank of a sender stores it for all (save_only_first_rank).
	MLA bool `json:"mla"`
	// ChunkSize is chunk_size, 256 tokens by default. It must be the same for sender and receiver.
	ChunkSize int `json:"chunk_size"`
	// MaxBatchedTokens is --max-num-batched-tokens of a sender. If more tokens of a prompt have to be computed, mode "async" never sends the
	// prompt and notifies nobody. 0 means no limit.
	MaxBatchedTokens int `json:"max_batched_tokens"`
	// InitPorts and AllocPorts are pd_peer_init_port and pd_peer_alloc_port of a receiver, one of each for each rank. 0 and missing ones mean
	// free ports; Instance.Addresses returns them.
	InitPorts  []int `json:"init_ports"`
	AllocPorts []int `json:"alloc_ports"`
	// ProxyPort is pd_proxy_port of a sender; pd_proxy_host is 127.0.0.1. Each rank keeps a PUSH socket connected to it. While the port is 0,
	// nothing is sent; Switch may set it later.
	ProxyPort int `json:"proxy_port"`
	// NotifyDelay is the engine time from the landing of a rank's KV to its notification.
	NotifyDelay time.Duration `json:"notify_delay"`
	// Tag is the type of notifications, "ProxyNotif" by default.
	Tag string `json:"tag"`
}

// Savers returns how many ranks of a sender push and announce.
func (c *LMCache) Savers() int {
	if c.MLA {
		return 1
	}
	return c.TP
}

// Port returns the port of a rank, 0 if none is configured.
func Port(list []int, rank int) int {
	if rank < len(list) {
		return list[rank]
	}
	return 0
}
