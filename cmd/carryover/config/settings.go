package config

import (
	"fmt"
	"slices"
	"strings"

	"carryover/server/pins"
	"carryover/server/request"
	"carryover/server/turn"
)

// Setting is one row of the table, the only place with the names and the help text of a value.
type Setting struct {
	Key   string   // section.key of the file
	Flag  string   // without dashes; empty for secrets, which a process list would show, and for values that no flag can express
	env   string   // variable of a setting without a flag
	To    any      // pointer to the field of Config
	OneOf []string // closed set for a text or each item of a list; nil if open
	min   int      // bounds of a whole number; max 0 means none
	max   int
	off   bool // a duration may be 0 for none
	Live  bool // a reload can change it
	Help  string
}

func row(key, flag string, to any, help string, more ...func(*Setting)) Setting {
	s := Setting{Key: key, Flag: flag, To: to, Help: help}
	for _, set := range more {
		set(&s)
	}
	return s
}

func live(s *Setting) { s.Live = true }

func variable(name string) func(*Setting) { return func(s *Setting) { s.env = name } }

func within(low, high int) func(*Setting) { return func(s *Setting) { s.min, s.max = low, high } }

func oneOf[T ~string](names ...T) func(*Setting) {
	return func(s *Setting) {
		for _, name := range names {
			s.OneOf = append(s.OneOf, string(name))
		}
	}
}

// Variable returns the environment variable, empty if there is none.
func (s Setting) Variable() string {
	if s.Flag == "" {
		return s.env
	}
	return "CARRYOVER_" + strings.ToUpper(strings.ReplaceAll(s.Flag, "-", "_"))
}

// Section returns the first part of the key.
func (s Setting) Section() string {
	section, _, _ := strings.Cut(s.Key, ".")
	return section
}

// Name returns the last part of the key.
func (s Setting) Name() string { return s.Key[strings.LastIndexByte(s.Key, '.')+1:] }

// Usage returns the help text with the closed set of values, if there is one.
func (s Setting) Usage() string {
	if s.OneOf == nil {
		return s.Help
	}
	return s.Help + ": " + strings.Join(s.OneOf, ", ")
}

func (s Setting) bounds() string {
	if s.max > 0 {
		return fmt.Sprintf("a whole number from %d to %d", s.min, s.max)
	}
	return fmt.Sprintf("a whole number, at least %d", s.min)
}

// Settings returns all rows in the order of help texts, with pointers into c.
func Settings(c *Config) []Setting {
	return slices.Concat(EngineSettings(c), connectorSettings(c), routingSettings(c), discoverySettings(c), reuseSettings(c), redisSettings(c), boundSettings(c), clientSettings(c))
}

// EngineSettings are the rows of listeners and engines.
func EngineSettings(c *Config) []Setting {
	return []Setting{
		row("listen.host", "host", &c.Listen.Host, "address to listen on"),
		row("listen.port", "port", &c.Listen.Port, "port to listen on, 0 for a free one", within(0, 65535)),
		row("admin.listen", "admin-listen", &c.Admin.Listen, "address of the listener for operators, off for none; one that is not loopback needs a token"),
		row("admin.token_file", "admin-token-file", &c.Admin.TokenFile, "file with the bearer token that the admin listener demands"),
		row("admin.token", "", &c.Admin.Token, "the token itself, at least 16 bytes", variable("CARRYOVER_ADMIN_TOKEN")),
		row("prefill", "prefill", &c.Prefill, "prefill instance; repeat for more", live),
		row("decode", "decode", &c.Decode, "decode instance; repeat for more", live),
		row("kv.host", "kv-host", &c.KV.Host, "remote_host sent to engines: auto corrects unusable ones, pin always sets the instance's, else a host"),
	}
}

// Policies returns the routing policies, the default first.
func Policies() []string {
	return []string{"auto", "affinity", "prefix", "least_loaded", "power_of_two", "round_robin"}
}

func routingSettings(c *Config) []Setting {
	r := &c.Routing
	return []Setting{
		row("routing.prefill", "routing-prefill", &r.Prefill, "how the prefill instance is picked", oneOf(Policies()...), live),
		row("routing.decode", "routing-decode", &r.Decode, "how the decode instance is picked", oneOf(Policies()...), live),
		row("routing.disagg_threshold", "disagg-threshold", &r.DisaggThreshold, "turns with fewer uncached prompt tokens go to decode alone, 0 for none", live),
		row("routing.prefill_failure", "prefill-failure", &r.PrefillFailure, "what happens to a turn whose prefill leg fails", oneOf(turn.PrefillRetryOther, turn.PrefillDecodeOnly, turn.PrefillError), live),
		row("routing.prefiller_allow", "prefiller-allow", &r.PrefillerAllow, "prefill instances that x-prefiller-host-port may name, as host:port, CIDR:port or *.domain:from-to; in place of llm-d's sidecar"),
	}
}

func discoverySettings(c *Config) []Setting {
	d := &c.Discovery
	return []Setting{
		row("discovery.registration", "discovery-registration", &d.Registration, "let instances be added at the admin listener"),
		row("discovery.file", "discovery-file", &d.File, "file with lists of prefill and decode instances, JSON or YAML, which is watched"),
		row("discovery.prefill_dns", "prefill-dns", &d.PrefillDNS, "names of prefill instances: http://name:port, an instance per address; srv://_service._tcp.name"),
		row("discovery.decode_dns", "decode-dns", &d.DecodeDNS, "names of decode instances, likewise"),
		row("discovery.k8s_label_selector", "k8s-label-selector", &d.K8sLabelSelector, "label selector of the pods that are instances, such as app in (prefill,decode)"),
		row("discovery.k8s_namespace", "k8s-namespace", &d.K8sNamespace, "namespace of these pods (default: that of Carryover's own pod)"),
		row("discovery.k8s_port", "k8s-port", &d.K8sPort, "port of these pods, number or name"),
		row("discovery.prefill_model_labels", "prefill-model-labels", &d.PrefillModelLabels, "values of the pods' label model for prefill instances"),
		row("discovery.decode_model_labels", "decode-model-labels", &d.DecodeModelLabels, "values of the pods' label model for decode instances"),
	}
}

func reuseSettings(c *Config) []Setting {
	return []Setting{
		row("conversation.sources", "conversation-sources", &c.Conversation.Sources, "where a request names its conversation, first match wins", oneOf(ConversationSources()...)),
		row("conversation.by_content", "conversation-by-content", &c.Conversation.ByContent, "recognise a conversation without an id by its user's texts", oneOf("on", "off")),
		row("conversation.tenant_header", "tenant-header", &c.Conversation.TenantHeader, "request header that names the tenant; a gateway must replace it, not append to it (default: the credential names the tenant)"),
		row("conversation.tenant_salt", "tenant-salt", &c.Conversation.TenantSalt, "also isolate tenants in the engines by a cache_salt"),
		row("conversation.secret_file", "secret-file", &c.Conversation.SecretFile, "file with the secret that replicas share (default: a random one per start)"),
		row("conversation.secret", "", &c.Conversation.Secret, "the secret itself, at least 16 bytes", variable("CARRYOVER_SECRET")),
		row("conversation.teach_shapes", "teach-shapes", &c.Conversation.TeachShapes, "at each start of a prefill instance, compare /tokenize with prefill's rendering by 24 short requests of one token for each model, so that even a first conversation reuses its KV", oneOf("on", "off")),
		row("conversation.render", "render", &c.Conversation.Render, "address of a server that renders the prompts of /v1/messages and /v1/responses, such as vllm launch render (default: the prefill instances, with --enable-scale-out)"),
		row("release.mode", "release", &c.Release.Mode, "free the blocks of tickets that nobody will use", oneOf("on", "off")),
		row("release.pinned_share", "pinned-share", &c.Release.PinnedShare, "share of a decode instance's KV cache that tickets may pin before the oldest are released, 0 for no bound"),
		row("hand_back.mode", "hand-back", &c.HandBack.Mode, "when prefill reads a turn's KV from decode into its prefix cache, which frees decode's blocks (idle: once no turn has used it for a while; now: after each turn)", oneOf(pins.HandBackIdle, pins.HandBackNow, pins.HandBackOff)),
		row("hand_back.after", "hand-back-after", &c.HandBack.After, "how long a ticket waits for a turn before its hand-back (idle). auto learns by tenant and kind of answer how long, and whether to hand back or release then; until enough is known it waits 5s, or half of store.ttl if that is at most 5s"),
		row("store.ttl", "ttl", &c.Store.TTL, "longest time that a ticket can be used"),
		row("store.decoder_kv_ttl", "decoder-kv-ttl", &c.Store.DecoderKVTTL, "decoder_kv_blocks_ttl of the decode instances, above 30s"),
		row("store.max_bytes", "store-max-bytes", &c.Store.MaxBytes, "most memory for tickets"),
	}
}

func redisSettings(c *Config) []Setting {
	r := &c.Redis
	return []Setting{
		row("redis.url", "redis-url", &r.URL, "Redis through which replicas share tickets: redis, rediss (TLS), unix, redis+sentinel, redis+cluster"),
		row("redis.password_file", "redis-password-file", &r.PasswordFile, "file with the password of Redis, instead of one in the URL"),
		row("redis.sentinel_password_file", "redis-sentinel-password-file", &r.SentinelPasswordFile, "file with the password of the Sentinels"),
		row("redis.ca_file", "redis-ca-file", &r.CAFile, "file with the certificates that Redis is checked against (default: the system's)"),
		row("redis.cert_file", "redis-cert-file", &r.CertFile, "file with the client certificate for Redis"),
		row("redis.key_file", "redis-key-file", &r.KeyFile, "file with the key of that certificate"),
		row("redis.prefix", "redis-prefix", &r.Prefix, "beginning of every key in Redis"),
		row("redis.insecure", "redis-insecure", &r.Insecure, "accept a Redis on the network without TLS or without a password"),
	}
}

func boundSettings(c *Config) []Setting {
	l, t := &c.Limits, &c.Timeouts
	return []Setting{
		row("limits.max_body_bytes", "max-body-bytes", &l.MaxBodyBytes, "largest request body"),
		row("limits.max_inflight_bytes", "max-inflight-bytes", &l.MaxInflightBytes, "most memory for request bodies in flight and held answers; one account gets a quarter. A whole answer or event without room passes unread and leaves no ticket. So does a whole answer above 64 MiB, or an event above 1 MiB (Responses: 8 MiB) plus eight times the request"),
		row("limits.max_streams", "max-streams", &l.MaxStreams, "most turns at once, 0 to derive it from the open-file limit"),
		row("limits.max_per_instance", "max-per-instance", &l.MaxPerInstance, "most turns that an instance gets at once, 0 for no limit", live),
		row("limits.max_per_tenant", "max-per-tenant", &l.MaxPerTenant, "most turns of one account at once, 0 for no limit", live),
		row("limits.max_queue", "max-queue", &l.MaxQueue, "most turns that wait for a slot, in fair shares among accounts", live),
		row("limits.queue_timeout", "queue-timeout", &l.QueueTimeout, "longest wait for a slot", live),
		row("timeouts.prefill", "prefill-timeout", &t.Prefill, "whole prefill leg; a long prompt gets three times its expected time if that is more, up to ten times this value"),
		row("timeouts.handover_budget", "handover-budget", &t.HandoverBudget, "from prefill's answer to decode's headers, below the engine's 30s lease"),
		row("timeouts.first_byte", "first-byte-timeout", &t.FirstByte, "first byte of decode's stream"),
		row("timeouts.answer", "answer-timeout", &t.Answer, "decode's answer to a request without stream, which comes whole"),
		row("timeouts.heartbeat", "stream-heartbeat", &t.Heartbeat, "pause between comments or pings to a client until its stream begins, 0 for none; 15s if something in front closes silent connections", func(s *Setting) { s.off = true }),
		row("timeouts.idle", "idle-timeout", &t.Idle, "between two reads of a stream"),
		row("timeouts.store", "store-timeout", &t.Store, "one operation of the ticket store in Redis"),
		row("timeouts.shutdown_grace", "shutdown-grace", &t.ShutdownGrace, "for turns in flight after SIGTERM"),
	}
}

func clientSettings(c *Config) []Setting {
	return []Setting{
		row("auth.forward_authorization", "forward-authorization", &c.Auth.ForwardAuthorization, "send the client's credential on to the engines"),
		row("auth.upstream_key", "", &c.Auth.UpstreamKey, "bearer token for the engines", variable("OPENAI_API_KEY")),
		row("log.format", "log-format", &c.Log.Format, "log format", oneOf(LogText, LogJSON)),
		row("log.clients", "log-clients", &c.Log.Clients, "how a log line names the client: clear has its address and a keyed hash of its tenant, hash has hashes of both", oneOf(request.ClientsClear, request.ClientsHash, request.ClientsOff)),
		row("log.level", "log-level", &c.Log.Level, "least severe record that is logged", oneOf("debug", "info", "warn", "error"), live),
	}
}

// InstanceSettings describes instance i of a role. Only the file can set its fields.
func InstanceSettings(role string, i int, c *InstanceConfig) []Setting {
	at := instanceKey(role, i)
	rows := []Setting{
		{Key: at + "url", To: &c.BaseURL},
		{Key: at + "name", To: &c.Name},
		{Key: at + "kv_host", To: &c.KVHost},
		{Key: at + "weight", To: &c.Weight, min: 1, max: maxWeight},
		{Key: at + "ranks", To: &c.Ranks, max: maxRanks},
		{Key: at + "kv_events", To: &c.KVEvents},
	}
	if role == RoleDecode {
		rows = append(rows, Setting{Key: at + "kv_ttl", To: &c.KVTTL})
	} else {
		rows = append(rows, Setting{Key: at + "bootstrap_port", To: &c.KVPort, max: 65535})
	}
	return rows
}
