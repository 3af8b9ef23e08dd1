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
		{Key: "listen.host", Flag: "host", To: &c.Listen.Host, Help: "address to listen on"},
		{Key: "listen.port", Flag: "port", To: &c.Listen.Port, max: 65535, Help: "port to listen on, 0 for a free one"},
		{Key: "admin.listen", Flag: "admin-listen", To: &c.Admin.Listen, Help: "address of the listener for operators, off for none; one that is not loopback needs a token"},
		{Key: "admin.token_file", Flag: "admin-token-file", To: &c.Admin.TokenFile, Help: "file with the bearer token that the admin listener demands"},
		{Key: "admin.token", env: "CARRYOVER_ADMIN_TOKEN", To: &c.Admin.Token, Help: "the token itself, at least 16 bytes"},
		{Key: "prefill", Flag: "prefill", To: &c.Prefill, Live: true, Help: "prefill instance; repeat for more"},
		{Key: "decode", Flag: "decode", To: &c.Decode, Live: true, Help: "decode instance; repeat for more"},
		{Key: "kv.host", Flag: "kv-host", To: &c.KV.Host, Help: "remote_host sent to engines: auto corrects unusable ones, pin always sets the instance's, else a host"},
	}
}

// Policies returns the routing policies, the default first.
func Policies() []string {
	return []string{"auto", "affinity", "prefix", "least_loaded", "power_of_two", "round_robin"}
}

func routingSettings(c *Config) []Setting {
	r := &c.Routing
	failures := []string{string(turn.PrefillRetryOther), string(turn.PrefillDecodeOnly), string(turn.PrefillError)}
	return []Setting{
		{Key: "routing.prefill", Flag: "routing-prefill", To: &r.Prefill, Live: true, OneOf: Policies(), Help: "how the prefill instance is picked"},
		{Key: "routing.decode", Flag: "routing-decode", To: &r.Decode, Live: true, OneOf: Policies(), Help: "how the decode instance is picked"},
		{Key: "routing.disagg_threshold", Flag: "disagg-threshold", To: &r.DisaggThreshold, Live: true, Help: "turns with fewer uncached prompt tokens go to decode alone, 0 for none"},
		{Key: "routing.prefill_failure", Flag: "prefill-failure", To: &r.PrefillFailure, Live: true, OneOf: failures, Help: "what happens to a turn whose prefill leg fails"},
		{Key: "routing.prefiller_allow", Flag: "prefiller-allow", To: &r.PrefillerAllow, Help: "prefill instances that x-prefiller-host-port may name, as host:port, CIDR:port or *.domain:from-to; in place of llm-d's sidecar"},
	}
}

func discoverySettings(c *Config) []Setting {
	d := &c.Discovery
	return []Setting{
		{Key: "discovery.registration", Flag: "discovery-registration", To: &d.Registration, Help: "let instances be added at the admin listener"},
		{Key: "discovery.file", Flag: "discovery-file", To: &d.File, Help: "file with lists of prefill and decode instances, JSON or YAML, which is watched"},
		{Key: "discovery.prefill_dns", Flag: "prefill-dns", To: &d.PrefillDNS, Help: "names of prefill instances: http://name:port, an instance per address; srv://_service._tcp.name"},
		{Key: "discovery.decode_dns", Flag: "decode-dns", To: &d.DecodeDNS, Help: "names of decode instances, likewise"},
		{Key: "discovery.k8s_label_selector", Flag: "k8s-label-selector", To: &d.K8sLabelSelector, Help: "label selector of the pods that are instances, such as app in (prefill,decode)"},
		{Key: "discovery.k8s_namespace", Flag: "k8s-namespace", To: &d.K8sNamespace, Help: "namespace of these pods (default: that of Carryover's own pod)"},
		{Key: "discovery.k8s_port", Flag: "k8s-port", To: &d.K8sPort, Help: "port of these pods, number or name"},
		{Key: "discovery.prefill_model_labels", Flag: "prefill-model-labels", To: &d.PrefillModelLabels, Help: "values of the pods' label model for prefill instances"},
		{Key: "discovery.decode_model_labels", Flag: "decode-model-labels", To: &d.DecodeModelLabels, Help: "values of the pods' label model for decode instances"},
	}
}

func reuseSettings(c *Config) []Setting {
	backs := []string{string(pins.HandBackIdle), string(pins.HandBackNow), string(pins.HandBackOff)}
	return []Setting{
		{Key: "conversation.sources", Flag: "conversation-sources", To: &c.Conversation.Sources, OneOf: ConversationSources(), Help: "where a request names its conversation, first match wins"},
		{Key: "conversation.by_content", Flag: "conversation-by-content", To: &c.Conversation.ByContent, OneOf: []string{"on", "off"}, Help: "recognise a conversation without an id by its user's texts"},
		{Key: "conversation.tenant_header", Flag: "tenant-header", To: &c.Conversation.TenantHeader, Help: "request header that names the tenant; a gateway must replace it, not append to it (default: the credential names the tenant)"},
		{Key: "conversation.tenant_salt", Flag: "tenant-salt", To: &c.Conversation.TenantSalt, Help: "also isolate tenants in the engines by a cache_salt"},
		{Key: "conversation.secret_file", Flag: "secret-file", To: &c.Conversation.SecretFile, Help: "file with the secret that replicas share (default: a random one per start)"},
		{Key: "conversation.secret", env: "CARRYOVER_SECRET", To: &c.Conversation.Secret, Help: "the secret itself, at least 16 bytes"},
		{Key: "conversation.teach_shapes", Flag: "teach-shapes", To: &c.Conversation.TeachShapes, OneOf: []string{"on", "off"}, Help: "at each start of a prefill instance, compare /tokenize with prefill's rendering by 24 short requests of one token for each model, so that even a first conversation reuses its KV"},
		{Key: "conversation.render", Flag: "render", To: &c.Conversation.Render, Help: "address of a server that renders the prompts of /v1/messages and /v1/responses, such as vllm launch render (default: the prefill instances, with --enable-scale-out)"},
		{Key: "release.mode", Flag: "release", To: &c.Release.Mode, OneOf: []string{"on", "off"}, Help: "free the blocks of tickets that nobody will use"},
		{Key: "release.pinned_share", Flag: "pinned-share", To: &c.Release.PinnedShare, Help: "share of a decode instance's KV cache that tickets may pin before the oldest are released, 0 for no bound"},
		{Key: "hand_back.mode", Flag: "hand-back", To: &c.HandBack.Mode, OneOf: backs, Help: "when prefill reads a turn's KV from decode into its prefix cache, which frees decode's blocks (idle: once no turn has used it for a while; now: after each turn)"},
		{Key: "hand_back.after", Flag: "hand-back-after", To: &c.HandBack.After, Help: "how long a ticket waits for a turn before its hand-back (idle). auto learns by tenant and kind of answer how long, and whether to hand back or release then; until enough is known it waits 5s, or half of store.ttl if that is at most 5s"},
		{Key: "store.ttl", Flag: "ttl", To: &c.Store.TTL, Help: "longest time that a ticket can be used"},
		{Key: "store.decoder_kv_ttl", Flag: "decoder-kv-ttl", To: &c.Store.DecoderKVTTL, Help: "decoder_kv_blocks_ttl of the decode instances, above 30s"},
		{Key: "store.max_bytes", Flag: "store-max-bytes", To: &c.Store.MaxBytes, Help: "most memory for tickets"},
	}
}

func redisSettings(c *Config) []Setting {
	r := &c.Redis
	return []Setting{
		{Key: "redis.url", Flag: "redis-url", To: &r.URL, Help: "Redis through which replicas share tickets: redis, rediss (TLS), unix, redis+sentinel, redis+cluster"},
		{Key: "redis.password_file", Flag: "redis-password-file", To: &r.PasswordFile, Help: "file with the password of Redis, instead of one in the URL"},
		{Key: "redis.sentinel_password_file", Flag: "redis-sentinel-password-file", To: &r.SentinelPasswordFile, Help: "file with the password of the Sentinels"},
		{Key: "redis.ca_file", Flag: "redis-ca-file", To: &r.CAFile, Help: "file with the certificates that Redis is checked against (default: the system's)"},
		{Key: "redis.cert_file", Flag: "redis-cert-file", To: &r.CertFile, Help: "file with the client certificate for Redis"},
		{Key: "redis.key_file", Flag: "redis-key-file", To: &r.KeyFile, Help: "file with the key of that certificate"},
		{Key: "redis.prefix", Flag: "redis-prefix", To: &r.Prefix, Help: "beginning of every key in Redis"},
		{Key: "redis.insecure", Flag: "redis-insecure", To: &r.Insecure, Help: "accept a Redis on the network without TLS or without a password"},
	}
}

func boundSettings(c *Config) []Setting {
	l, t := &c.Limits, &c.Timeouts
	return []Setting{
		{Key: "limits.max_body_bytes", Flag: "max-body-bytes", To: &l.MaxBodyBytes, Help: "largest request body"},
		{Key: "limits.max_inflight_bytes", Flag: "max-inflight-bytes", To: &l.MaxInflightBytes, Help: "most memory for request bodies in flight and held answers; one account gets a quarter. A whole answer or event without room passes unread and leaves no ticket. So does a whole answer above 64 MiB, or an event above 1 MiB (Responses: 8 MiB) plus eight times the request"},
		{Key: "limits.max_streams", Flag: "max-streams", To: &l.MaxStreams, Help: "most turns at once, 0 to derive it from the open-file limit"},
		{Key: "limits.max_per_instance", Flag: "max-per-instance", To: &l.MaxPerInstance, Live: true, Help: "most turns that an instance gets at once, 0 for no limit"},
		{Key: "limits.max_per_tenant", Flag: "max-per-tenant", To: &l.MaxPerTenant, Live: true, Help: "most turns of one account at once, 0 for no limit"},
		{Key: "limits.max_queue", Flag: "max-queue", To: &l.MaxQueue, Live: true, Help: "most turns that wait for a slot, in fair shares among accounts"},
		{Key: "limits.queue_timeout", Flag: "queue-timeout", To: &l.QueueTimeout, Live: true, Help: "longest wait for a slot"},
		{Key: "timeouts.prefill", Flag: "prefill-timeout", To: &t.Prefill, Help: "whole prefill leg; a long prompt gets three times its expected time if that is more, up to ten times this value"},
		{Key: "timeouts.handover_budget", Flag: "handover-budget", To: &t.HandoverBudget, Help: "from prefill's answer to decode's headers, below the engine's 30s lease"},
		{Key: "timeouts.first_byte", Flag: "first-byte-timeout", To: &t.FirstByte, Help: "first byte of decode's stream"},
		{Key: "timeouts.answer", Flag: "answer-timeout", To: &t.Answer, Help: "decode's answer to a request without stream, which comes whole"},
		{Key: "timeouts.heartbeat", Flag: "stream-heartbeat", To: &t.Heartbeat, off: true, Help: "pause between comments or pings to a client until its stream begins, 0 for none; 15s if something in front closes silent connections"},
		{Key: "timeouts.idle", Flag: "idle-timeout", To: &t.Idle, Help: "between two reads of a stream"},
		{Key: "timeouts.store", Flag: "store-timeout", To: &t.Store, Help: "one operation of the ticket store in Redis"},
		{Key: "timeouts.shutdown_grace", Flag: "shutdown-grace", To: &t.ShutdownGrace, Help: "for turns in flight after SIGTERM"},
	}
}

func clientSettings(c *Config) []Setting {
	return []Setting{
		{Key: "auth.forward_authorization", Flag: "forward-authorization", To: &c.Auth.ForwardAuthorization, Help: "send the client's credential on to the engines"},
		{Key: "auth.upstream_key", env: "OPENAI_API_KEY", To: &c.Auth.UpstreamKey, Help: "bearer token for the engines"},
		{Key: "log.format", Flag: "log-format", To: &c.Log.Format, OneOf: []string{LogText, LogJSON}, Help: "log format"},
		{Key: "log.clients", Flag: "log-clients", To: &c.Log.Clients, OneOf: []string{string(request.ClientsClear), string(request.ClientsHash), string(request.ClientsOff)}, Help: "how a log line names the client: clear has its address and a keyed hash of its tenant, hash has hashes of both"},
		{Key: "log.level", Flag: "log-level", To: &c.Log.Level, Live: true, OneOf: []string{"debug", "info", "warn", "error"}, Help: "least severe record that is logged"},
	}
}

// InstanceSettings describes instance i of a role. Only the file can set its fields.
func InstanceSettings(role string, i int, c *InstanceConfig) []Setting {
	at := instanceKey(role, i)
	rows := []Setting{
		{Key: at + "url", To: &c.URL},
		{Key: at + "name", To: &c.Name},
		{Key: at + "kv_host", To: &c.KVHost},
		{Key: at + "weight", To: &c.Weight, min: 1, max: maxWeight},
		{Key: at + "ranks", To: &c.Ranks, max: maxRanks},
		{Key: at + "kv_events", To: &c.KVEvents},
	}
	if role == RoleDecode {
		rows = append(rows, Setting{Key: at + "kv_ttl", To: &c.KVTTL})
	} else {
		rows = append(rows, Setting{Key: at + "bootstrap_port", To: &c.BootstrapPort, max: 65535})
	}
	return rows
}
