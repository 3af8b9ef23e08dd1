package cli

import (
	"bufio"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"reflect"
	"strings"
	"testing"
	"time"

	"carryover/cmd/carryover/command"
	"carryover/upstream/vllmsim"
)

// simulated runs sim and returns what it says until it serves, and the configuration that it runs.
func simulated(t *testing.T, args string, lines int) (said string, got vllmsim.Config) {
	t.Helper()
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	out, in := io.Pipe()
	ended := make(chan int, 1) // room for the one result
	go func() {
		ended <- Run(ctx, strings.Fields("sim --port 0 "+args), nil, in, io.Discard)
		_ = in.Close()
	}()
	reader := bufio.NewReader(out)
	for range lines {
		line, err := reader.ReadString('\n')
		must(t, err)
		said += line
	}
	url, _, _ := strings.Cut(said[strings.Index(said, "http://"):], "\n")
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url+"/_sim/config", nil)
	must(t, err)
	resp, err := (&http.Transport{DisableKeepAlives: true}).RoundTrip(req)
	must(t, err)
	defer resp.Body.Close()
	must(t, json.NewDecoder(resp.Body).Decode(&got))
	stop()
	if code := <-ended; code != command.ExitOK {
		t.Errorf("it ends with %d", code)
	}
	return said, got
}

// simDefaults are those of sim, with other members.
func simDefaults(t *testing.T, members string) vllmsim.Config {
	t.Helper()
	want := vllmsim.DefaultConfig()
	want.Timing = vllmsim.Timing{PrefillPerToken: 100 * time.Microsecond, TransferPerBlock: 20 * time.Microsecond, InterToken: 10 * time.Millisecond}
	want.Mooncake.BootstrapPort = 8998
	must(t, json.Unmarshal([]byte(members), &want))
	return want
}

func TestSim_RunsWhatItsFlagsSay(t *testing.T) {
	_, got := simulated(t, `--set {"models":["a","b"],"adapters":["c","d"],"dp_ranks":2,"max_num_seqs":3,"slowness":4} --time-scale 5 `+
		"--vllm 0.32 --render --message-params --output-token-ids --max-model-len 6000", 1)
	want := simDefaults(t, `{"version":"0.32.0","model":"a","models":["a","b"],"adapters":["c","d"],"dp_ranks":2,"max_num_seqs":3,"slowness":4,"time_scale":5,
		"render":true,"message_params":true,"output_token_ids":true,"max_model_len":6000}`)
	if !reflect.DeepEqual(got, want) {
		t.Errorf("it runs %+v\nwant %+v", got, want)
	}
}

func TestSim_RunsOtherConnectors(t *testing.T) {
	folder := t.TempDir()
	for _, tc := range []struct {
		args       string
		lines      int
		says, want string
	}{
		{
			`--role decode --connector lmcache --set {"lmcache":{"tp":2,"chunk_size":64}}`, 2, "its LMCache receives at init ports ",
			`{"role":"decode","connector":"lmcache","lmcache":{"tp":2,"chunk_size":64}}`,
		},
		{`--role prefill --connector lmcache --set {"lmcache":{"proxy_port":9}}`, 1, "simulated prefill", `{"role":"prefill","connector":"lmcache","lmcache":{"proxy_port":9}}`},
		{
			`--connector lmcache-storage --set {"storage":{"chunk_size":32,"folder":"` + folder + `"}}`, 1, "simulated both",
			`{"connector":"lmcache-storage","storage":{"folder":"` + folder + `","chunk_size":32}}`,
		},
		{
			`--role prefill --connector mooncake --set {"mooncake":{"bootstrap_port":0}}`, 2, "its bootstrap server listens at port ",
			`{"role":"prefill","connector":"mooncake","mooncake":{"bootstrap_port":0}}`,
		},
	} {
		t.Run(tc.args, func(t *testing.T) {
			said, got := simulated(t, tc.args, tc.lines)
			if want := simDefaults(t, tc.want); !reflect.DeepEqual(got, want) || !strings.Contains(said, tc.says) {
				t.Errorf("it says %q, want %q, and runs %+v\nwant %+v", said, tc.says, got, want)
			}
		})
	}
	if code, _, stderr := runCommand(t, "sim", "--vllm", "0.31"); code != command.ExitRuntime || !strings.Contains(stderr, "must be 0.32 or 0.33") {
		t.Errorf("an unknown release: exit code %d, %q", code, stderr)
	}
	if code, _, stderr := runCommand(t, "sim", "--set", `{"nope":1}`); code != command.ExitUsage || !strings.Contains(stderr, "nope") {
		t.Errorf("an unknown member: exit code %d, %q", code, stderr)
	}
	if code, _, stderr := runCommand(t, "sim", "--connector", "none"); code != command.ExitRuntime || !strings.Contains(stderr, "connector") {
		t.Errorf("an unknown connector: exit code %d, %q", code, stderr)
	}
}
