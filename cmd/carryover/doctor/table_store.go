package doctor

func redisDiagnoses() []diagnosis {
	return []diagnosis{
		{codeRedisDown, severityError, "Redis answers in time",
			"tickets stay in the replica that made them, and turns that reach another one compute their prompt",
			"redis-cli -u URL --latency from this host; a turn grants {limit} (--store-timeout)"},
		{codeRedisForbids, severityError, "Redis lets us do what is needed",
			"serve refuses to start",
			"the ACL of docs/replicas.md: ACL SETUSER carryover … as the error says, then carryover doctor again"},
		{codeRedisClock, severityWarn, "its clock is ours",
			"tickets that other replicas made may look expired, or as if made in the future",
			"chronyc makestep, or systemctl restart systemd-timesyncd, on this host and on that of Redis"},
		{codeRedisEviction, severityWarn, "it drops what ends soonest",
			"a full Redis drops other tickets than those that end soonest, or bars",
			"redis-cli CONFIG SET maxmemory-policy volatile-ttl, and in redis.conf"},
		{codeRedisMemory, severityWarn, "its memory is bounded",
			"it grows until the system ends it",
			"redis-cli CONFIG SET maxmemory 256mb, and in redis.conf"},
		{codeRedisDisk, severityWarn, "it writes nothing to disk",
			"tickets are worth minutes; what a restart brings back from a file is refused anyway",
			"redis-cli CONFIG SET appendonly no, and in redis.conf: appendonly no, save \"\""},
		{codeRedisOpen, severityWarn, "nobody else reaches it",
			"others on the network may be able to read tickets, or to write them",
			"rediss:// and --redis-password-file instead of --redis-insecure"},
	}
}

func frontDiagnoses() []diagnosis {
	return []diagnosis{
		{codeFrontDown, severityError, "turns get through",
			"what fails here fails for clients",
			"see that {url} leads to a Carryover that runs: curl -i {url}/readyz"},
		{codeFrontForeign, severityWarn, "our headers come through",
			"clients can't see what was reused",
			"let X-KV-Reuse, X-KV-Path and X-Request-Id through (nginx: no proxy_hide_header for them), or see that {url} leads to Carryover"},
		{codeFrontID, severityError, "X-Conversation-Id comes through",
			"turns of clients that name their conversation by it reuse nothing",
			"let X-Conversation-Id through (nginx: proxy_pass_request_headers on; gateways: add it to the allow-list), or send conversation_id in the body"},
		{codeFrontUnderscores, severityWarn, "headers with underscores come through",
			"agents that send session_id as a header have no conversation",
			"nginx: underscores_in_headers on; in the http or server block; Apache drops them too and has no such switch"},
		{codeFrontBuffers, severityError, "events come one by one",
			"clients see a stream all at once, at its end",
			"nginx: proxy_buffering off; gzip off; for text/event-stream. Caddy: flush_interval -1. Traefik and cloud load balancers: no response buffering or compression"},
	}
}
