package bench

import (
	"slices"
	"time"

	"carryover/cmd/pdbench/contender"
	"carryover/cmd/pdbench/engines"
	"carryover/cmd/pdbench/load"
)

// Names of workloads that bars use.
const (
	w1, w1Off, w1Redis, w1Whole = "W1", "W1 off", "W1 redis", "W1 non-stream"
	w2s, w2sApart, w2           = "W2s", "W2s apart", "W2"
	w2sOlder, w2sNewer          = "W2s 0.32", "W2s 0.33"
	w3, w3Off                   = "W3", "W3 off"
	w4                          = "W4"
	w5Small, w5Large, w5Many    = "W5 2 KB", "W5 64 KB", "W5 9000"
	tPlug, tChunks, tOff        = "T plug-in", "T chunks", "T off"
	t2sChunks                   = "T2s chunks"
)

// A decode instance makes 50 tokens a second for each stream. Its API server writes as slowly as vLLM 0.32's: 45 to 90 µs between two of 100
// streams, measured on two cores of the kind in docs/benchmarks.md.
const (
	tokenGap   = 20 * time.Millisecond
	tokenApart = 65 * time.Microsecond
)

// group has workloads whose contenders take turns together, because bars compare across them, and the number of rounds.
type group struct {
	workloads []load.Workload
	rounds    int
}

// groups returns all measurements, in order.
func groups() []group {
	return []group{
		{requests(), 3},
		{unstreamed(), 3},
		{paced(), 3},
		{versions(), 5},
		{crowd(), 2},
		{large(), 3},
		{lone(), 3},
		// A stream takes more memory in a process that has served before. So each is measured once, in a fresh process.
		{held(w5Small, "5,000 open streams with a second between chunks, bodies of 2 KB", 5000, 2<<10), 1},
		{held(w5Large, "the same with bodies of 64 KB", 5000, 64<<10), 1},
		{held(w5Many, "9,000 of the first kind", 9000, 2<<10), 1},
		{tokens(), 3},
	}
}

// requests shows the cost of requests: short answers without pauses.
func requests() []load.Workload {
	base := load.Workload{Name: w1, What: "64 conversations of 8 turns, streams of 16 chunks without pauses, 2 KB and 1 to 4 KB a turn",
		Conversations: 64, Turns: 8, First: 2 << 10, Later: [2]int{1 << 10, 4 << 10}, Stream: true, Chunks: 16,
		Contenders: contenderNames(), Time: 3 * time.Second, WarmUp: time.Second}
	off := base.As(w1Off, "the same, and no request names a conversation: nothing is kept or reused, as by a plain proxy for prefill and decode", contender.Carryover)
	off.Nameless = true
	redis := base.As(w1Redis, "W1 with tickets in Redis", contender.Carryover)
	redis.Redis = true
	return []load.Workload{base, off, redis}
}

func unstreamed() []load.Workload {
	w := requests()[0].As(w1Whole, "W1 without streams", contender.Direct, contender.Carryover, contender.Nginx, contender.Python)
	w.Stream = false
	w.Time = 2 * time.Second
	return []load.Workload{w}
}

// paced shows the cost of a chunk: nothing is saturated, and streams outlast the measurement, so that it contains no request.
func paced() []load.Workload {
	base := requests()[0].As(w2s, "100 streams of 50 chunks a second, of one instance", contenderNames()...)
	base.Conversations, base.Chunks, base.Gap, base.Time, base.WarmUp = 100, 300, tokenGap, 4*time.Second, 1500*time.Millisecond
	chunks := base.As(t2sChunks, "W2s, ids in each chunk, of which clients see nothing", contender.Carryover)
	chunks.ChunkIDs = true
	apart := base.As(w2sApart, "W2s, the chunks of a step 65 µs apart", contender.Carryover, contender.Nginx, contender.Relay, contender.Python)
	apart.Apart = tokenApart
	return []load.Workload{base, chunks, apart}
}

// versions shows the cost of the chunks of two versions of vLLM. The system counts CPU time in hundredths of a second, so a difference of a
// twentieth needs a long measurement.
func versions() []load.Workload {
	older := paced()[0].As(w2sOlder, "W2s, chunks of vLLM 0.32", contender.Carryover)
	older.VLLM, older.Time, older.Chunks = engines.VLLM032, 8*time.Second, 500
	newer := older.As(w2sNewer, "W2s, chunks of vLLM 0.33, each with kv_transfer_params that are null", contender.Carryover)
	newer.VLLM = engines.VLLM033
	return []load.Workload{older, newer}
}

// crowd has more chunks than some contenders can pass on.
func crowd() []load.Workload {
	w := paced()[0].As(w2, "1,000 streams of 50 chunks a second, of ten instances", contenderNames()...)
	w.Conversations = 1000
	w.Time, w.WarmUp, w.Chunks = 4*time.Second, 3*time.Second, 400
	return []load.Workload{w}
}

// large shows the cost of a body.
func large() []load.Workload {
	base := requests()[0].As(w3, "16 conversations that begin with 256 KB, streams of 16 chunks", contenderNames()...)
	base.Conversations, base.First = 16, 256<<10
	off := base.As(w3Off, "W3, and no request names a conversation", contender.Carryover)
	off.Nameless = true
	return []load.Workload{base, off}
}

// lone shows waiting times.
func lone() []load.Workload {
	base := requests()[0].As(w4, "one client, one turn after the other; the time to the first token",
		contender.Direct, contender.Carryover, contender.Nginx, contender.Python)
	base.Conversations = 1
	base.Time, base.WarmUp = 2*time.Second, 500*time.Millisecond
	return []load.Workload{base}
}

// held shows memory.
func held(name, what string, streams, body int) []load.Workload {
	return []load.Workload{{Name: name, What: what, Conversations: streams, Turns: 1, First: body, Stream: true, Chunks: 600, Gap: time.Second,
		Open: true, Contenders: []string{contender.Carryover, contender.Nginx}, Time: 3 * time.Second}}
}

// tokens shows the cost of ids.
func tokens() []load.Workload {
	base := requests()[0].As(tPlug, "16 conversations that begin with 8,000 tokens, streams of 16 chunks; ids of an answer in its last event", contender.Carryover)
	base.Conversations, base.First = 16, 32<<10
	chunks := base.As(tChunks, "the same, ids in each chunk", contender.Carryover)
	chunks.ChunkIDs = true
	off := base.As(tOff, "the same, and no request names a conversation", contender.Carryover)
	off.Nameless = true
	return []load.Workload{base, chunks, off}
}

// Sizes of a smoke run: each conversation has a second turn, and the run is short enough for continuous integration.
const (
	smokeTime, smokeWarmUp  = 500 * time.Millisecond, 300 * time.Millisecond
	smokeStreams, smokeHeld = 8, 100
	smokeChunks             = 30
)

// brief returns the groups of a smoke run.
func brief(all []group) []group {
	all = slices.Clone(all)
	for i, g := range all {
		g.rounds = 1
		g.workloads = slices.Clone(g.workloads)
		for j := range g.workloads {
			w := &g.workloads[j]
			w.Time, w.WarmUp = smokeTime, smokeWarmUp
			if w.Open {
				w.Time, w.Conversations = 2*w.Gap, min(w.Conversations, smokeHeld)
				continue
			}
			w.Conversations = min(w.Conversations, smokeStreams)
			if w.Gap > 0 {
				w.Chunks = smokeChunks
			}
		}
		all[i] = g
	}
	return all
}

// only returns the named workloads with the named contenders. No names mean all.
func only(all []group, names, contenders []string) []group {
	var left []group
	for _, g := range all {
		var kept []load.Workload
		for _, w := range g.workloads {
			w.Contenders = slices.DeleteFunc(slices.Clone(w.Contenders), func(c string) bool { return len(contenders) > 0 && !slices.Contains(contenders, c) })
			if (len(names) == 0 || slices.Contains(names, w.Name)) && len(w.Contenders) > 0 {
				kept = append(kept, w)
			}
		}
		if len(kept) > 0 {
			left = append(left, group{kept, g.rounds})
		}
	}
	return left
}
