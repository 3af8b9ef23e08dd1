package main

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

	"carryover/upstream/vllmsim"
)

func TestSim_RunsWhatItsFlagsSay(t *testing.T) {
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	out, in := io.Pipe()
	ended := make(chan int, 1) // room for the one result
	go func() {
		args := "sim --port 0 --models a,b --adapters c --adapters d --dp-ranks 2 --max-num-seqs 3 --slowness 4 --time-scale 5"
		ended <- run(ctx, strings.Fields(args), nil, in, io.Discard)
		_ = in.Close()
	}()
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	url := line[strings.Index(line, "http://"):]
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, strings.TrimSpace(url)+"/_sim/config", nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := (&http.Transport{DisableKeepAlives: true}).RoundTrip(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	var got vllmsim.Config
	if err := json.NewDecoder(resp.Body).Decode(&got); err != nil {
		t.Fatal(err)
	}
	want := vllmsim.DefaultConfig()
	want.Model, want.Models, want.Adapters = "a", []string{"a", "b"}, []string{"c", "d"}
	want.DPRanks, want.MaxNumSeqs, want.Slowness, want.TimeScale = 2, 3, 4, 5
	want.Timing = vllmsim.Timing{PrefillPerToken: 100 * time.Microsecond, TransferPerBlock: 20 * time.Microsecond, InterToken: 10 * time.Millisecond}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("it runs %+v\nwant %+v", got, want)
	}
	stop()
	if code := <-ended; code != exitOK {
		t.Errorf("it ends with %d", code)
	}
}
