package doctor

import "slices"

// diagnosis has the texts of a code: what a passed check means, why a problem matters, and its fix. Details replace names in braces.
type diagnosis struct {
	code            string
	severity        severity
	holds, why, fix string
}

// The codes of findings, which scripts may depend on.
const (
	codeNotFinished   = "not_finished"
	codeTTLOrder      = "ttl_order"
	codeClock         = "clock"
	codeHandBack      = "hand_back"
	codeDiscovery     = "discovery_failed"
	codeNoInstance    = "no_instance"
	codeUnreachable   = "unreachable"
	codeUnhealthy     = "unhealthy"
	codeKeyRefused    = "key_refused"
	codeNoModels      = "no_models"
	codeVersion       = "version_too_old"
	codeStartUnknown  = "start_unknown"
	codeStartChanges  = "start_changes"
	codeIDsIgnored    = "ids_ignored"
	codeIDsUnproven   = "ids_unproven"
	codeRenderOff     = "render_off"
	codeRenderFails   = "render_fails"
	codeNoCommonModel = "no_common_model"
	codeModelPaths    = "model_paths_differ"
	codeVersions      = "versions_differ"
	codeBlockSizes    = "block_sizes_differ"
	codeLengths       = "context_lengths_differ"
	codeTurnFailed    = "turn_failed"
	codeNoHandover    = "no_handover"
	codeNotAnnounced  = "kv_not_announced"
	codeHandoverFails = "handover_not_loaded"
	codeOtherIDs      = "other_ids"
	codeNoParams      = "decode_keeps_nothing"
	codeStreamParams  = "plug_in_missing"
	codeNoIDs         = "decode_tells_no_ids"
	codeNoTicket      = "no_ticket"
	codeUnanswered    = "ticket_not_answered"
	codeTicketFails   = "ticket_not_loaded"
	codeNothingLoaded = "nothing_loaded"
	codeTokenize      = "tokenize_fails"
	codeParity        = "tokenize_differs"
	codeRewritten     = "history_rewritten"
	codeMiss          = "nothing_reused"
	codeNotReleased   = "not_released"
	codeRedisDown     = "redis_unreachable"
	codeRedisForbids  = "redis_forbids"
	codeRedisClock    = "redis_clock"
	codeRedisEviction = "redis_eviction"
	codeFrontDown     = "front_unreachable"
	codeFrontForeign  = "front_hides_headers"
	codeFrontID       = "front_drops_conversation_id"
	codeFrontBuffers  = "front_buffers"
)

func rowOf(code string) int {
	return slices.IndexFunc(diagnoses, func(d diagnosis) bool { return d.code == code })
}

// diagnoses has one row per code. It is the order of findings within a place.
var diagnoses = []diagnosis{ //nolint:gochecknoglobals // a constant
	{codeNotFinished, severityError, "",
		"the fault may be in a part that was not examined",
		"carryover doctor --timeout 10m"},
	{codeTTLOrder, severityWarn, "tickets end before decode's blocks",
		"a ticket ends 30s before decode may free its blocks (60s if decode does not report when), whatever store.ttl says",
		"--ttl {ttl}, or --decoder-kv-ttl if decode was started with a longer decoder_kv_blocks_ttl"},
	{codeDiscovery, severityError, "a list of instances was found",
		"without a list of instances there is nothing to send turns to",
		"carryover check-config says where instances come from"},
	{codeNoInstance, severityError, "there are instances of both roles",
		"a turn needs an instance of each role",
		"--prefill URL and --decode URL, or see that discovery finds them"},

	{codeUnreachable, severityError, "it answers",
		"turns go to the other instances, or nowhere; decode's tickets are lost with it",
		"start it, or correct its address: curl -sf {url}/health. vLLM 0.33 does not start with a nixl below 1.5.0"},
	{codeUnhealthy, severityError, "/health is good",
		"an engine that is dead behind its API server answers no request",
		"look into its log and start it again; curl -i {url}/health"},
	{codeKeyRefused, severityError, "our key is accepted",
		"the instance refuses probes and turns, so nothing is proven",
		"OPENAI_API_KEY=KEY carryover …, the key that the engines have (--api-key)"},
	{codeNoModels, severityError, "it lists its models",
		"turns are sent only where their model is served",
		"curl -s {url}/v1/models; {url} has to be a vLLM server"},
	{codeVersion, severityError, "vLLM is new enough to take token ids",
		"vLLM before 0.28 takes no token ids for chats, so nothing can be proven",
		"pip install -U 'vllm>=0.28' on both roles"},
	{codeStartUnknown, severityError, "it reports its start",
		"facts about an engine belong to one start of its process: without process_start_time_seconds no ticket is made or used",
		"vllm serve … --api-server-count 1; with data-parallel ranks one server for each (--data-parallel-external-lb)"},
	{codeStartChanges, severityError, "its start stays the same",
		"a ticket of one process means nothing to another",
		"give each vLLM server an address of its own instead of one that a load balancer shares; if it restarts again and again, look into its log"},
	{codeClock, severityWarn, "clocks agree",
		"replicas check deadlines of tickets by their clocks: if clocks differ by more than 2s, a ticket looks expired to other replicas, or not yet made",
		"chronyc makestep, or systemctl restart systemd-timesyncd, on this host and that of {name}"},
	{codeHandBack, severityWarn, "prefill keeps what is handed back to it",
		"a ticket that no turn uses is handed back to prefill, which has to keep the KV until the next turn",
		"--enable-prefix-caching on {name}"},
	{codeIDsIgnored, severityError, "it computes the ids that it is sent, so that tickets can be proven",
		"it renders chats by itself, so it may compute other ids than the proven ones; none of its KV is reused",
		"pip install -U 'vllm>=0.28' there"},
	{codeIDsUnproven, severityError, "its probe was answered",
		"an engine that has not shown that it uses forwarded ids leaves no tickets, and gets none",
		"look into its log for the request with prompt_token_ids [1, \"x\"]; carryover doctor --verbose"},
	{codeRenderOff, severityOK, "prompts of /v1/messages and /v1/responses are rendered, so that turns of agents are proven",
		"only a render endpoint tells the ids of such prompts, and without them nothing is proven; chats need none",
		"vllm serve … --enable-scale-out on {name}, which opens vLLM's scale-out endpoints to everybody who reaches it; " +
			"or --render URL of one vllm launch render, which needs no GPU. Each turn of an agent then costs one more request, before prefill"},
	{codeRenderFails, severityError, "the render endpoint answers",
		"turns of agents reuse nothing",
		"look for /v1/messages/render in the log of the server that renders; carryover doctor --verbose"},

	{codeNoCommonModel, severityError, "both serve one model",
		"a turn needs a model that both serve",
		"vllm serve … --served-model-name NAME, the same on both"},
	{codeModelPaths, severityError, "both were started with one model path",
		"the path is part of NIXL's compatibility hash: with different paths, even to the same weights, decode refuses every hand-over",
		"start both with the same path: vllm serve {root} on {decode} too"},
	{codeVersions, severityError, "both run one version of vLLM",
		"the version is part of NIXL's compatibility hash: with different versions decode refuses every hand-over",
		"the same image, or pip install vllm=={version}, for both"},
	{codeLengths, severityWarn, "both have one context length",
		"decode alone computes prompts that are too long for prefill, and prefill computes prompts that decode may refuse",
		"vllm serve … --max-model-len {length} on both"},
	{codeBlockSizes, severityWarn, "both have one block size",
		"a ticket can be cut to whole blocks only if both sizes are equal, and NIXL may refuse to read blocks of another size",
		"vllm serve … --block-size {size} on both"},
	{codeTurnFailed, severityError, "turns are answered",
		"what fails here fails for clients",
		"carryover doctor --verbose, and the logs of {prefill} and {decode}"},
	{codeNoHandover, severityError, "prefill hands over to decode",
		"prefill's answer has no kv_transfer_params, so decode computes every prompt again",
		"vllm serve … --kv-transfer-config {config} on {prefill}"},
	{codeNotAnnounced, severityError, "prefill announces its KV",
		"decode would read KV that has not arrived, so the turn fails or decode computes the prompt itself",
		"pd_proxy_host and pd_proxy_port of prefill's LMCache are where --lmcache-listen is; its receivers are those of --decoder-registry; " +
			"restart prefill if decode was restarted; --lmcache-max-prompt-tokens is prefill's --max-num-batched-tokens"},
	{codeHandoverFails, severityError, "decode loads what prefill hands over",
		"decode could not read prefill's KV, so the turn fails or is computed again",
		"VLLM_NIXL_SIDE_CHANNEL_HOST of {prefill} is an address that {decode} reaches, its port 5600 + rank and UCX's are open, " +
			"and both have the same version, model path and KV layout; the log of {decode} says which"},
	{codeOtherIDs, severityError, "prefill computes the ids that it is sent",
		"its prefix cache holds wrong KV, which spoils answers for others, too",
		"restart {prefill} now, and leave it out if it does so again"},
	{codeNoParams, severityError, "decode names the blocks that it keeps",
		"decode answers without kv_transfer_params, streaming or not, so there is nothing to reuse",
		"vllm serve … --kv-transfer-config {config} on {decode} (vLLM 0.21 or newer)"},
	{codeStreamParams, severityError, "streams end with decode's params",
		"{why}; decode keeps their blocks for its whole TTL in vain",
		"on {decode}: {fix}"},
	{codeNoIDs, severityError, "decode reports the ids that it samples",
		"without them nothing proves the content of its blocks",
		"pip install ./scripts/vllm in the environment of {decode}, or a vLLM that knows return_token_ids (0.28 or newer)"},
	{codeNoTicket, severityError, "answers leave tickets",
		"without a ticket the next turn reuses nothing",
		"docs/reference.md has the reason's meaning; carryover doctor --verbose"},
	{codeUnanswered, severityError, "prefill answers tickets",
		"each trial of the pair costs a client {limit}, and nothing is reused or handed back",
		"bidirectional_kv_xfer true on {prefill}: --kv-transfer-config {config}. If it has that, its kv_load_failure_policy is recompute, " +
			"with which vLLM 0.32 never answers what it can't load: set fail, and see that {prefill} reaches decode's VLLM_NIXL_SIDE_CHANNEL_HOST"},
	{codeTicketFails, severityError, "prefill loads what tickets name",
		"prefill answers tickets with 5xx, and computes each such turn after all",
		"VLLM_NIXL_SIDE_CHANNEL_HOST of {decode} is an address that {prefill} reaches, both have the same version and model path, " +
			"and decode's decoder_kv_blocks_ttl is not below --decoder-kv-ttl; the log of {prefill} says which"},
	{codeNothingLoaded, severityWarn, "prefill loads decode's KV",
		"prefill answered the ticket, but computed its tokens itself",
		"a smaller kv_recompute_threshold (64 by default) in kv_connector_extra_config of {prefill}, bidirectional_kv_xfer true there, " +
			"and kv_load_failure_policy fail; {prefill} reaches decode's VLLM_NIXL_SIDE_CHANNEL_HOST"},
	{codeTokenize, severityError, "/tokenize answers",
		"without the ids of a prompt nothing is proven",
		"curl -s {url}/tokenize -d '{\"model\": \"{model}\", \"prompt\": \"x\"}' -H 'Content-Type: application/json'"},
	{codeParity, severityError, "/tokenize gives what prefill renders",
		"requests of that shape reuse nothing until prefill restarts",
		"the same --chat-template and tokenizer arguments for everything that {prefill} serves; or --enable-scale-out on it, for its render endpoint"},
	{codeRewritten, severityWarn, "the next turn continues the one before",
		"the chat template or the reasoning parser changes generated text when it comes back as history",
		"a --chat-template that keeps reasoning and white space of earlier turns"},
	{codeMiss, severityError, "the second turn reuses the first",
		"a client's next turn computes its whole prompt",
		"docs/reference.md has the reason's meaning; carryover doctor --verbose"},
	{codeNotReleased, severityWarn, "the probe's tickets were released",
		"decode keeps the blocks of tickets that no turn uses for its whole TTL",
		"bidirectional_kv_xfer true on {prefill}, which has to reach the side channel of {decode}"},

	{codeRedisDown, severityError, "Redis answers in time",
		"tickets stay in the replica that made them, and turns on other replicas compute their prompt",
		"redis-cli -u URL --latency from this host; a turn grants {limit} (--store-timeout)"},
	{codeRedisForbids, severityError, "Redis allows all commands that we need",
		"serve refuses to start",
		"the ACL of docs/replicas.md: ACL SETUSER carryover … as the error says, then carryover doctor again"},
	{codeRedisClock, severityWarn, "its clock agrees with ours",
		"tickets of other replicas may look expired, or made in the future",
		"chronyc makestep, or systemctl restart systemd-timesyncd, on this host and on that of Redis"},
	{codeRedisEviction, severityWarn, "a full Redis drops the entries that end soonest",
		"a full Redis drops other entries than those that end soonest",
		"redis-cli CONFIG SET maxmemory-policy volatile-ttl, and in redis.conf"},

	{codeFrontDown, severityError, "turns reach Carryover",
		"what fails here fails for clients",
		"see that {url} leads to a Carryover that runs: curl -i {url}/readyz"},
	{codeFrontForeign, severityWarn, "our headers come through",
		"clients can't see what was reused",
		"let X-KV-Reuse, X-KV-Path and X-Request-Id through (nginx: no proxy_hide_header for them), or see that {url} leads to Carryover"},
	{codeFrontID, severityError, "X-Conversation-Id comes through",
		"turns that name their conversation by it reuse nothing",
		"let X-Conversation-Id through (nginx: proxy_pass_request_headers on; gateways: add it to the allow-list), or send conversation_id in the body"},
	{codeFrontBuffers, severityError, "events arrive one by one",
		"clients see a stream all at once, at its end",
		"nginx: proxy_buffering off; gzip off; for text/event-stream. Caddy: flush_interval -1. Traefik and cloud load balancers: no response buffering or compression"},
}
