package main

// The values of ConnectorConfig.Name.
const (
	connectorNIXL           = "nixl"
	connectorMulti          = "multi"
	connectorOrchestrated   = "orchestrated"
	connectorLMCache        = "lmcache"
	connectorLMCacheStorage = "lmcache-storage"
	connectorMooncake       = "mooncake"
	connectorMoRIIO         = "moriio"
	connectorP2PNCCL        = "p2pnccl"
)

// connectors returns the KV connectors, the default first.
func connectors() []string {
	return []string{
		connectorNIXL, connectorMulti, connectorOrchestrated, connectorLMCache, connectorLMCacheStorage, connectorMooncake,
		connectorMoRIIO, connectorP2PNCCL,
	}
}

// The values of ConnectorConfig.OrchestratedForm, LMCacheConfig.Unready and LMCacheConfig.Chat.
const (
	orchestratedParams   = "params"
	orchestratedResponse = "response"

	unreadyFail   = "fail"
	unreadyDecode = "decode"

	lmcacheCompletions = "completions"
	lmcacheChat        = "chat"
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
	// DecoderHost, InitPorts and AllocPorts say the same for decode instances that the registry does not name. Without a host, the
	// instance's own host is used. The ports belong to the tensor-parallel ranks of prefill, in their order.
	DecoderHost     string
	InitPorts       []string
	AllocPorts      []string
	Listen          string // host:port where prefill instances send their notifications (pd_proxy_host, pd_proxy_port)
	Notifications   int    // notifications for each prompt; 0 means one for each init port
	Unready         string // what happens to a turn if its KV is not announced within the hand-over budget
	MaxPromptTokens int    // longer prompts go only to decode; 0 for no bound
	ChunkTokens     int    // chunk_size of the engines' LMCache, or a multiple of it
	Chat            string // the endpoint with which decode answers chats
}

// KVEventsConfig says where instances publish KV events.
type KVEventsConfig struct {
	Port       int // port of each instance that names no address; 0 for none
	ReplayPort int // port of the replay endpoint; 0 for none
	Topic      string
}

func connectorSettings(c *Config) []setting {
	l := &c.LMCache
	return []setting{
		{key: "connector.name", flag: "connector", to: &c.Connector.Name, oneOf: connectors(), help: "KV connector of the instances"},
		{key: "connector.orchestrated_form", flag: "orchestrated-form", to: &c.Connector.OrchestratedForm, oneOf: []string{orchestratedParams, orchestratedResponse}, help: "what decode gets of prefill's answer: its kv_transfer_params, or all of it as disagg_prefill_resp"},
		{key: "mooncake.bootstrap_port", flag: "mooncake-bootstrap-port", to: &c.Mooncake.BootstrapPort, min: 1, max: 65535, help: "VLLM_MOONCAKE_BOOTSTRAP_PORT of the prefill instances"},
		{key: "lmcache.decoder_registry", flag: "decoder-registry", to: &l.DecoderRegistry, help: "JSON: by URL of a decode instance its receiver_host, receiver_init_port and receiver_alloc_port, lists with a port per tensor-parallel rank of prefill"},
		{key: "lmcache.decoder_host", flag: "lmcache-decoder-host", to: &l.DecoderHost, help: "receiver_host of decode instances that the registry does not name (default: the host of their URL)"},
		{key: "lmcache.init_ports", flag: "lmcache-init-ports", to: &l.InitPorts, help: "receiver_init_port of these, a port per rank"},
		{key: "lmcache.alloc_ports", flag: "lmcache-alloc-ports", to: &l.AllocPorts, help: "receiver_alloc_port of these, a port per rank"},
		{key: "lmcache.listen", flag: "lmcache-listen", to: &l.Listen, help: "where prefill instances say that KV has arrived: their pd_proxy_host and pd_proxy_port"},
		{key: "lmcache.notifications", flag: "lmcache-notifications", to: &l.Notifications, min: 0, help: "how many notifications a prompt has, 1 for models with MLA; 0 for one per init port"},
		{key: "lmcache.unready", flag: "lmcache-unready", to: &l.Unready, oneOf: []string{unreadyFail, unreadyDecode}, help: "what becomes of a turn whose KV is not announced within the hand-over budget"},
		{key: "lmcache.max_prompt_tokens", flag: "lmcache-max-prompt-tokens", to: &l.MaxPromptTokens, min: 0, help: "max_num_batched_tokens of the prefill instances: longer prompts are never announced, and go to decode alone; 0 for no bound"},
		{key: "lmcache.chunk_tokens", flag: "lmcache-chunk-tokens", to: &l.ChunkTokens, min: 1, help: "chunk_size of the engines' LMCache: where decode begins the answer itself, prefill computes whole chunks"},
		{key: "lmcache.chat", flag: "lmcache-chat", to: &l.Chat, oneOf: []string{lmcacheCompletions, lmcacheChat}, help: "how decode answers chats: completions, with the first token at once; chat, with its parsers of tool calls and reasoning"},
		{key: "kv_events.port", flag: "kv-events-port", to: &c.KVEvents.Port, max: 65535, help: "port where instances publish KV events, 0 for none"},
		{key: "kv_events.replay_port", flag: "kv-events-replay-port", to: &c.KVEvents.ReplayPort, max: 65535, help: "port where they replay them, 0 for none"},
		{key: "kv_events.topic", flag: "kv-events-topic", to: &c.KVEvents.Topic, help: "topic of their events"},
	}
}
