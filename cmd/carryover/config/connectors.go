package config

// The values of ConnectorConfig.Name.
const (
	ConnectorNIXL           = "nixl"
	ConnectorMulti          = "multi"
	ConnectorOrchestrated   = "orchestrated"
	ConnectorLMCache        = "lmcache"
	ConnectorLMCacheStorage = "lmcache-storage"
	ConnectorMooncake       = "mooncake"
)

// Connectors returns the KV connectors, the default first.
func Connectors() []string {
	return []string{ConnectorNIXL, ConnectorMulti, ConnectorOrchestrated, ConnectorLMCache, ConnectorLMCacheStorage, ConnectorMooncake}
}

// The values of ConnectorConfig.OrchestratedForm.
const (
	OrchestratedParams   = "params"
	OrchestratedResponse = "response"
)

// ConnectorConfig says which KV connector the instances run.
type ConnectorConfig struct {
	Name             string
	OrchestratedForm string // the part of prefill's answer that decode gets
}

// MooncakeConfig is what the Mooncake connector has to know about prefill instances.
type MooncakeConfig struct {
	BootstrapPort int // port of instances that name none
}

// LMCacheConfig is what the LMCache connector has to know.
type LMCacheConfig struct {
	// DecoderRegistry says where the LMCache of each decode instance receives, by the instance's URL: JSON like disagg_spec without req_id.
	DecoderRegistry string
	Listen          string // host:port where prefill instances send their notifications (pd_proxy_host, pd_proxy_port)
	Notifications   int    // notifications for each prompt; 0 means one for each init port
	MaxPromptTokens int    // longer prompts go only to decode; 0 for no bound
	ChunkTokens     int    // chunk_size of the engines' LMCache, or a multiple of it
}

// KVEventsConfig says where prefill instances publish KV events.
type KVEventsConfig struct {
	Port       int // port of each instance that names no address; 0 for none
	ReplayPort int // port of the replay endpoint; 0 for none
}

func connectorSettings(c *Config) []Setting {
	l := &c.LMCache
	return []Setting{
		{Key: "connector.name", Flag: "connector", To: &c.Connector.Name, OneOf: Connectors(), Help: "KV connector of the instances"},
		{Key: "connector.orchestrated_form", Flag: "orchestrated-form", To: &c.Connector.OrchestratedForm, OneOf: []string{OrchestratedParams, OrchestratedResponse}, Help: "what decode gets of prefill's answer: its kv_transfer_params, or all of it as disagg_prefill_resp"},
		{Key: "mooncake.bootstrap_port", Flag: "mooncake-bootstrap-port", To: &c.Mooncake.BootstrapPort, min: 1, max: 65535, Help: "VLLM_MOONCAKE_BOOTSTRAP_PORT of the prefill instances"},
		{Key: "lmcache.decoder_registry", Flag: "decoder-registry", To: &l.DecoderRegistry, Help: "JSON: by URL of a decode instance its receiver_host, receiver_init_port and receiver_alloc_port, lists with a port per tensor-parallel rank of prefill"},
		{Key: "lmcache.listen", Flag: "lmcache-listen", To: &l.Listen, Help: "where prefill instances say that KV has arrived: their pd_proxy_host and pd_proxy_port"},
		{Key: "lmcache.notifications", Flag: "lmcache-notifications", To: &l.Notifications, min: 0, Help: "how many notifications a prompt has, 1 for models with MLA; 0 for one per init port"},
		{Key: "lmcache.max_prompt_tokens", Flag: "lmcache-max-prompt-tokens", To: &l.MaxPromptTokens, min: 0, Help: "max_num_batched_tokens of the prefill instances: longer prompts are never announced, and go to decode alone; 0 for no bound"},
		{Key: "lmcache.chunk_tokens", Flag: "lmcache-chunk-tokens", To: &l.ChunkTokens, min: 1, Help: "chunk_size of the engines' LMCache: where decode begins the answer itself, prefill computes whole chunks"},
		{Key: "kv_events.port", Flag: "kv-events-port", To: &c.KVEvents.Port, max: 65535, Help: "port where prefill instances publish KV events, 0 for none"},
		{Key: "kv_events.replay_port", Flag: "kv-events-replay-port", To: &c.KVEvents.ReplayPort, max: 65535, Help: "port where they replay them, 0 for none"},
	}
}
