package doctor

// diagnosis holds the texts of a code: its severity, what holds if there is no problem, why it matters, and how to fix it. Details of the
// finding replace names in braces.
type diagnosis struct {
	code            string
	severity        severity
	holds, why, fix string
}

// The codes of findings, which scripts may depend on.
const (
	codeNotFinished  = "not_finished"
	codeHistory      = "history_proof"
	codeTTLOrder     = "ttl_order"
	codeOpenFiles    = "open_files"
	codeClock        = "clock"
	codeNoReuse      = "connector_keeps_nothing"
	codeHandBack     = "hand_back"
	codeDiscovery    = "discovery_failed"
	codeNoInstance   = "no_instance"
	codeUnreachable  = "unreachable"
	codeUnhealthy    = "unhealthy"
	codeKeyRefused   = "key_refused"
	codeNoModels     = "no_models"
	codeVersion      = "version_too_old"
	codeStartUnknown = "start_unknown"
	codeStartChanges = "start_changes"
	codeTwoNames     = "two_names"
	codeBlockSize    = "block_size_unknown"
	codeIDsIgnored   = "ids_ignored"
	codeIDsUnproven  = "ids_unproven"
	codeQuarantined  = "quarantined"

	codeRenderOff     = "render_off"
	codeRenderFails   = "render_fails"
	codeRenderDiffers = "render_differs"
	codeSystemMerged  = "system_messages_merged"
	codeSeveralNames  = "several_model_names"

	codeNoCommonModel = "no_common_model"
	codeModelPaths    = "model_paths_differ"
	codeVersions      = "versions_differ"
	codeBlockSizes    = "block_sizes_differ"
	codeAddressTaken  = "notification_address_taken"
	codeTurnFailed    = "turn_failed"
	codeNoHandover    = "no_handover"
	codeNotAnnounced  = "kv_not_announced"
	codeHandoverFails = "handover_not_loaded"
	codePrefillHost   = "prefill_kv_host"
	codeDecodeHost    = "decode_kv_host"
	codeOtherIDs      = "other_ids"
	codeNoParams      = "decode_keeps_nothing"
	codeStreamParams  = "plug_in_missing"
	codeNoIDs         = "decode_tells_no_ids"
	codeBlockGroups   = "block_groups"
	codeNoTicket      = "no_ticket"
	codeExpiry        = "no_expiry"
	codeUnanswered    = "ticket_not_answered"
	codeTicketFails   = "ticket_not_loaded"
	codeNothingLoaded = "nothing_loaded"
	codeTokenize      = "tokenize_fails"
	codeParity        = "tokenize_differs"
	codeTemplate      = "template_not_append_only"
	codeRewritten     = "history_rewritten"
	codeMiss          = "nothing_reused"
	codeNotReleased   = "not_released"

	codeRedisDown     = "redis_unreachable"
	codeRedisForbids  = "redis_forbids"
	codeRedisClock    = "redis_clock"
	codeRedisEviction = "redis_eviction"
	codeRedisMemory   = "redis_memory"
	codeRedisDisk     = "redis_disk"
	codeRedisOpen     = "redis_insecure"

	codeFrontDown        = "front_unreachable"
	codeFrontForeign     = "front_hides_headers"
	codeFrontID          = "front_drops_conversation_id"
	codeFrontUnderscores = "front_drops_underscores"
	codeFrontBuffers     = "front_buffers"
)

// doctorCodes returns all codes, in the order of the tables.
func doctorCodes() (codes []string) {
	for _, d := range diagnosisTable() {
		codes = append(codes, d.code)
	}
	return codes
}

// diagnoses returns the rows of the tables by code.
func diagnoses() map[string]diagnosis {
	all := map[string]diagnosis{}
	for _, d := range diagnosisTable() {
		all[d.code] = d
	}
	return all
}

func diagnosisTable() []diagnosis {
	var all []diagnosis
	for _, part := range [][]diagnosis{settingDiagnoses(), instanceDiagnoses(), agentDiagnoses(), pairDiagnoses(), ticketDiagnoses(), redisDiagnoses(), frontDiagnoses()} {
		all = append(all, part...)
	}
	return all
}
