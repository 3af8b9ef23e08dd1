package upstream

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"carryover/upstream/body"
)

// ReleaseFacts is what a release of vLLM requires of a pair of its engines.
type ReleaseFacts struct {
	// Release is the first two numbers of the version. The facts hold until the next release in the list.
	Release string
	// Connector is NIXL_CONNECTOR_VERSION (nixl/metadata.py). It is part of the hash by which engines refuse each
	// other's hand-overs.
	Connector int
}

// Releases returns the known releases, the oldest first.
func Releases() []ReleaseFacts {
	return []ReleaseFacts{{"0.28", 7}, {"0.30", 11}, {"0.31", 13}, {"0.32", 14}, {"0.33", 15}}
}

// AnswerFacts is what a decode instance's answers give to reuse, for one release, API and form, measured on real
// pairs (nixl 1.5.1, CPU) of each release.
type AnswerFacts struct {
	Release string
	API     body.API
	Stream  bool
	// Params says that a stock engine's answers have kv_transfer_params.
	Params bool
	// IDs is the request member that makes a stock engine tell the ids of the output, "" for none.
	IDs string
	// PlugIn is the first version of our plug-in that adds what a stock engine lacks, "" if it lacks nothing.
	PlugIn string
}

// ReleaseOf returns the facts of a version as /version tells it. A newer version counts as the newest known release.
// ok is false for no version, or one older than all releases.
func ReleaseOf(version string) (facts ReleaseFacts, ok bool) {
	have, ok := releaseNumbers(version)
	if !ok {
		return facts, false
	}
	for _, r := range slices.Backward(Releases()) {
		if from, _ := releaseNumbers(r.Release); slices.Compare(from[:], have[:]) <= 0 {
			return r, true
		}
	}
	return facts, false
}

// AnswersOf returns the facts of a version; ok as in [ReleaseOf].
func AnswersOf(version string, api body.API, stream bool) (row AnswerFacts, ok bool) {
	release, ok := ReleaseOf(version)
	if !ok {
		return row, false
	}
	streams := !slices.Contains([]string{"0.28", "0.30", "0.31", "0.32"}, release.Release) // with params
	row = AnswerFacts{Release: release.Release, API: api, Stream: stream, Params: !stream || streams, IDs: "return_token_ids"}
	switch {
	case api == body.Responses:
		row.Params, row.IDs = true, "enable_response_messages"
	case api == body.Messages:
		row.Params, row.IDs, row.PlugIn = !stream, "", "1.1"
		if stream && streams {
			row.PlugIn = "1.2" // 0.33 makes these streams of chunks that 1.1 does not see
		}
	case !row.Params:
		row.PlugIn = "1.0"
	}
	return row, true
}

func releaseNumbers(version string) (numbers [2]int, ok bool) {
	parts := strings.SplitN(strings.TrimPrefix(version, "v"), ".", 3)
	if len(parts) < len(numbers) {
		return numbers, false
	}
	for i := range numbers {
		n, err := strconv.Atoi(parts[i])
		if err != nil || n < 0 {
			return numbers, false
		}
		numbers[i] = n
	}
	return numbers, true
}

// WhyNoParams says why streams of chat completions have no kv_transfer_params though whole answers of the same decode instance have them, and how
// to change that. version is decode's vLLM, "" if unknown.
func WhyNoParams(version string) (why, fix string) {
	const (
		plugIn = "install version %s or newer of the plug-in in the engine (pip install ./scripts/vllm; VLLM_PLUGINS, where it is set, has to name carryover)"
		itself = "vLLM 0.33 has them by itself with bidirectional_kv_xfer true in kv_connector_extra_config of its --kv-transfer-config"
	)
	row, known := AnswersOf(version, body.Chat, true)
	switch {
	case !known:
		return "stock vLLM before 0.33 leaves them out of streams (vllm-project/vllm#40186)", fmt.Sprintf(plugIn, "1.0") + "; " + itself
	case !row.Params:
		return "stock vLLM " + version + " leaves them out of streams (vllm-project/vllm#40186)", fmt.Sprintf(plugIn, row.PlugIn)
	}
	return "vLLM " + version + " has them in streams by itself, and no plug-in adds any", "start it without vLLM's Rust front end, which leaves them out of streams"
}
