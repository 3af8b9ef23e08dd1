package upstream

import (
	"slices"
	"strconv"
	"strings"
)

// ReleaseFacts is what a release of vLLM asks of the pairs that it runs in.
type ReleaseFacts struct {
	// Release is its first two numbers. What is said of it holds until the next release in the list.
	Release string
	// Connector is NIXL_CONNECTOR_VERSION (nixl/metadata.py), a part of the hash by which engines refuse each other's hand-overs.
	Connector int
	// NIXL is the oldest version of the nixl package with which an engine starts, "" where none is asked for.
	NIXL string
}

// Releases are the releases that something is known of, the oldest first.
func Releases() []ReleaseFacts {
	return []ReleaseFacts{{"0.28", 7, ""}, {"0.30", 11, ""}, {"0.31", 13, ""}, {"0.32", 14, ""}, {"0.33", 15, "1.5.0"}}
}

// AnswerFacts is what answers of a decode instance bring that reuse needs, in one API and one form, by release. It was measured on real
// pairs (nixl 1.5.1, CPU) of each release.
type AnswerFacts struct {
	Release string
	API     API
	Stream  bool
	// Params says that a stock engine's answers have kv_transfer_params.
	Params bool
	// IDs is the member of a request at which a stock engine tells the ids of the output, "" where none does.
	IDs string
	// PlugIn is the first version of our plug-in that adds what a stock engine lacks, "" where nothing lacks.
	PlugIn string
}

// AnswerTable has a row for each release, API and form.
func AnswerTable() (rows []AnswerFacts) {
	const returned, enabled = "return_token_ids", "enable_response_messages"
	for _, release := range Releases() {
		streams := !slices.Contains([]string{"0.28", "0.30", "0.31", "0.32"}, release.Release)
		of := []AnswerFacts{
			{API: Chat, Params: true, IDs: returned},
			{API: Chat, Stream: true, Params: streams, IDs: returned},
			{API: Text, Params: true, IDs: returned},
			{API: Text, Stream: true, Params: streams, IDs: returned},
			{API: Messages, Params: true, PlugIn: "1.1"},
			{API: Messages, Stream: true, PlugIn: "1.1"},
			{API: Responses, Params: true, IDs: enabled},
			{API: Responses, Stream: true, Params: true, IDs: enabled},
		}
		for _, row := range of {
			row.Release = release.Release
			switch {
			case row.PlugIn == "" && !row.Params:
				row.PlugIn = "1.0"
			case row.API == Messages && row.Stream && streams:
				row.PlugIn = "1.2" // 0.33 makes these streams of chunks that 1.1 does not see
			}
			rows = append(rows, row)
		}
	}
	return rows
}

// ReleaseOf finds what is known of a version as /version tells it. A newer one is taken for the newest that is known. ok is false for one
// that is older than all, or no version.
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

// AnswersOf is the row of a version, ok as of [ReleaseOf].
func AnswersOf(version string, api API, stream bool) (row AnswerFacts, ok bool) {
	release, ok := ReleaseOf(version)
	if !ok {
		return row, false
	}
	for _, row := range AnswerTable() {
		if row.Release == release.Release && row.API == api && row.Stream == stream {
			return row, true
		}
	}
	return row, false
}

// releaseNumbers are the first two numbers of a version.
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
