// Package config reads the settings of the program: flags, environment and configuration file.
//
// The program never starts with a wrong configuration. One message names all faults of all sources, each with its key, value, source and
// accepted values (load.go, validate.go). Unknown keys, flags and variables are faults, and so are two ways of saying one thing.
//
// Every setting is one row of a table: key, flag, environment variable and help text (settings.go). Secrets do not appear on the command
// line, in prints or in logs (secret.go). Flags of vLLM's disagg_proxy_multiturn.py are read as argparse reads them (example.go).
package config

import (
	"time"

	"carryover/server/continuation"
	"carryover/server/pins"
	"carryover/server/request"
	"carryover/server/turn"
)

// Config is everything that an operator can set. settings.go names each field.
type Config struct {
	Listen       ListenConfig
	Admin        AdminConfig
	Prefill      []InstanceConfig
	Decode       []InstanceConfig
	Connector    ConnectorConfig
	Mooncake     MooncakeConfig
	LMCache      LMCacheConfig
	KVEvents     KVEventsConfig
	Routing      RoutingConfig
	Discovery    DiscoveryConfig
	Conversation ConversationConfig
	Release      ReleaseConfig
	HandBack     HandBackConfig
	Store        StoreConfig
	Redis        RedisConfig
	KV           KVConfig
	Limits       LimitsConfig
	Timeouts     TimeoutsConfig
	Auth         AuthConfig
	Log          LogConfig
}

// ListenConfig is the address for clients.
type ListenConfig struct {
	Host string
	Port int // 0 lets the system choose
}

// AdminConfig is the listener for operators.
type AdminConfig struct {
	Listen    string // host:port, or AdminOff
	TokenFile string
	Token     Secret // content of TokenFile; empty demands no token
}

// AdminDefault is reachable only from this machine. Its port is not 9090, because that is Prometheus'.
const AdminDefault = "127.0.0.1:9480"

// AdminOff is AdminConfig.Listen without a listener.
const AdminOff = "off"

// InstanceConfig is one vLLM instance. Load leaves KVTTL of a prefill instance and the fields of single connectors empty; package app
// fills in these for instances of all sources.
type InstanceConfig struct {
	URL    string        // scheme://host[:port], no slash at the end
	Name   string        // shown in logs and metrics; host[:port] of the URL unless given
	KVHost string        // KVHostAuto, kvHostPin or a host; kv.host unless given
	KVTTL  time.Duration // how long a decode instance keeps blocks; store.decoder_kv_ttl unless given
	Weight int           // its share of the load, relative to others of its role
	Ranks  int           // data-parallel ranks behind the address if the proxy picks the rank; 0 if the engine does

	BootstrapPort int    // for Mooncake's prefill instances; mooncake.bootstrap_port unless given
	KVEvents      string // where it publishes KV events, tcp://host:port; its host and kv_events.port unless given
}

// RoutingConfig says how the proxy picks instances.
type RoutingConfig struct {
	Prefill         string // policy
	Decode          string
	DisaggThreshold int
	PrefillFailure  string
	PrefillerAllow  []string // if not empty, requests name their prefill instance, one of these
}

// DiscoveryConfig names sources of instances besides the configuration.
type DiscoveryConfig struct {
	Registration       bool // instances can be added at the admin listener
	File               string
	PrefillDNS         []string
	DecodeDNS          []string
	K8sLabelSelector   string
	K8sNamespace       string // empty: the pod's own
	K8sPort            string // number or name
	PrefillModelLabels []string
	DecodeModelLabels  []string
}

// ConversationConfig says how a request names its conversation, and what keeps conversations apart.
type ConversationConfig struct {
	Sources      []string // the first that is present and valid wins
	ByContent    string   // on or off
	TenantHeader string   // empty: the tenant comes from the credential
	TenantSalt   bool
	SecretFile   string
	Secret       Secret // content of SecretFile if that is given; empty: a random one
	TeachShapes  string // on or off
	Render       string // address of a server that renders prompts; empty: the prefill instances render
}

// ReleaseConfig says what happens to tickets that no turn will use.
type ReleaseConfig struct {
	Mode string // on or off
	// PinnedShare is the share of a decode instance's KV cache that tickets may pin, 0 to 1; 0 is no bound.
	PinnedShare float64
}

// HandBackConfig says when prefill gets the KV of tickets.
type HandBackConfig struct {
	Mode  string // idle, now or off
	After Wait   // with idle: how long a ticket waits for a turn
}

// StoreConfig bounds the ticket store.
type StoreConfig struct {
	TTL          time.Duration
	DecoderKVTTL time.Duration
	MaxBytes     ByteSize
}

// RedisConfig is the Redis or Valkey of all replicas. Without a URL, tickets live in this process.
type RedisConfig struct {
	URL                  RedisURL
	PasswordFile         string
	SentinelPasswordFile string
	CAFile               string // empty: the system's
	CertFile             string
	KeyFile              string
	Prefix               string
	Insecure             bool
}

// KVConfig says what the proxy does to kv_transfer_params.
type KVConfig struct {
	Host string // KVHostAuto, kvHostPin or a host
}

// The values of KVConfig.Host and InstanceConfig.KVHost that are no host names.
const (
	KVHostAuto = "auto"
	kvHostPin  = "pin"
)

// LimitsConfig bounds what clients can make the proxy keep in memory.
type LimitsConfig struct {
	MaxBodyBytes     ByteSize
	MaxInflightBytes ByteSize
	MaxStreams       int // 0: derived from the open-file limit
	MaxPerInstance   int // attempts at once, 0 for no limit
	MaxPerTenant     int // turns at once, 0 for no limit
	MaxQueue         int // turns that wait for a slot
	QueueTimeout     time.Duration
}

// DialTimeout bounds a dial to an engine, TLS included.
const DialTimeout = 2 * time.Second

// TimeoutsConfig bounds every wait of a turn. All but Heartbeat are positive.
type TimeoutsConfig struct {
	Prefill        time.Duration
	HandoverBudget time.Duration
	FirstByte      time.Duration
	Answer         time.Duration
	Heartbeat      time.Duration // 0 for none
	Idle           time.Duration
	Store          time.Duration
	ShutdownGrace  time.Duration
}

// AuthConfig says how the proxy authenticates to the engines.
type AuthConfig struct {
	ForwardAuthorization bool
	UpstreamKey          Secret // bearer token for the engines; empty sends none
}

// The formats of the log.
const (
	LogText = "text"
	LogJSON = "json"
)

// LogConfig is the format of the log on standard error.
type LogConfig struct {
	Format  string // LogText or LogJSON
	Level   string // debug, info, warn or error, as slog.Level reads it
	Clients string // a request.ClientsMode
}

// Default returns the defaults.
func Default() Config {
	return Config{
		Listen:    ListenConfig{Host: "0.0.0.0", Port: 8000},
		Admin:     AdminConfig{Listen: AdminDefault},
		Prefill:   []InstanceConfig{{URL: "http://localhost:8100"}},
		Decode:    []InstanceConfig{{URL: "http://localhost:8200"}},
		Connector: ConnectorConfig{Name: ConnectorNIXL, OrchestratedForm: OrchestratedParams},
		Mooncake:  MooncakeConfig{BootstrapPort: 8998},
		LMCache:   LMCacheConfig{Listen: "127.0.0.1:7500", ChunkTokens: 256},
		Routing:   RoutingConfig{Prefill: "auto", Decode: "auto", PrefillFailure: string(turn.PrefillRetryOther)},
		Discovery: DiscoveryConfig{
			K8sPort:            "8000",
			PrefillModelLabels: []string{"prefill"}, DecodeModelLabels: []string{"decode"},
		},
		Conversation: ConversationConfig{Sources: UsualSources(), ByContent: "on", TeachShapes: "on"},
		Release:      ReleaseConfig{Mode: "on", PinnedShare: 0.5},
		HandBack:     HandBackConfig{Mode: string(pins.HandBackIdle), After: WaitAuto},
		Store:        StoreConfig{TTL: 450 * time.Second, DecoderKVTTL: 480 * time.Second, MaxBytes: 256 * mebibyte},
		Redis:        RedisConfig{Prefix: "carryover"},
		KV:           KVConfig{Host: KVHostAuto},
		Limits: LimitsConfig{
			MaxBodyBytes:     32 * mebibyte,
			MaxInflightBytes: gibibyte,
			MaxQueue:         1024,
			QueueTimeout:     10 * time.Second,
		},
		Timeouts: TimeoutsConfig{
			Prefill:        120 * time.Second,
			HandoverBudget: 20 * time.Second,
			FirstByte:      300 * time.Second,
			Answer:         time.Hour,
			Idle:           300 * time.Second,
			Store:          5 * time.Millisecond,
			ShutdownGrace:  30 * time.Second,
		},
		Log: LogConfig{Format: LogText, Level: "info", Clients: string(request.ClientsClear)},
	}
}

// ConversationSources returns all places where a request can name its conversation.
func ConversationSources() []string { return append(UsualSources(), "prompt_cache_key") }

// UsualSources returns the default places, the most explicit first. It omits prompt_cache_key, which is one value for all users of an application.
func UsualSources() []string {
	return []string{
		"conversation_id", "conversation", "header:X-Conversation-Id", "session_id", "header:X-Session-Id",
		"client_headers", "metadata",
	}
}

// HandsBack reports whether tickets are handed back.
func (c *Config) HandsBack() bool {
	return c.Connector.HandsBack() && c.HandBack.Mode != string(pins.HandBackOff)
}

// HandBackAfter returns how long a ticket waits for a turn before its hand-back. WaitAuto begins with 5 s, or with
// half of store.ttl if that is at most 5 s.
func (c *Config) HandBackAfter() time.Duration {
	if c.HandBack.After != WaitAuto {
		return time.Duration(c.HandBack.After)
	}
	if ttl := c.Store.TTL; ttl > 0 && ttl <= continuation.Fixed {
		return ttl / 2
	}
	return continuation.Fixed
}
