package e2e

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.yaml.in/yaml/v3"

	"carryover/cmd/carryover/config"
	"carryover/server"
	"carryover/upstream/vllmsim"
)

const (
	scenarioFolder = "../../../testdata/scenarios"
	reportFolder   = "../../../testdata/reports"
)

// scenario is one file of testdata/scenarios or testdata/reports; README.md there explains the format.
type scenario struct {
	Name    string // of one of several in a file
	About   string
	Source  string // the address of a public report, and what its writer saw
	Symptom string
	API     string
	Modes   []string
	Engines engineSetup
	Proxy   []string
	Learns  bool // how instances read prompts is learnt by turns
	Env     []string
	Redis   bool
	Least   int           // ReuseMinTokens of the server, if not 0
	Trial   time.Duration // ReuseTrialTimeout of the server, if not 0
	Alone   bool          // answers are those of an engine alone
	Budget  time.Duration // HandoverBudget of the server, if not 0
	Cut     bool          // the program ends without waiting for open turns
	Body    string
	Steps   []step
	Unused  int
	Fewer   bool // or fewer of them
	Leased  int
	Said    map[string]int // how often the log has said what, with its level
	Stats   map[string]map[string]int

	Stranded *uint64 // hand-overs, nil for any number
	Admin    bool    // it has a configuration file
	Spread   bool    // several decode instances have finished requests
}

// engineSetup says which instances run.
type engineSetup struct {
	Prefill, Decode int
	Connector       string
	Entry           string // what the file says of each instance of Mooncake's prefill, too
	Host            string
	All             object
	PrefillWith     object `yaml:"prefill_with"`
	DecodeWith      object `yaml:"decode_with"`
}

// step is a turn, or something that happens between turns.
type step struct {
	Turn string // whose history: the name of a branch

	// The request.
	Fork         string // branch whose history is copied first
	Cut          int    // keep so many messages, or for text so many bytes
	Drop         []int
	Swap         []int
	Edit         map[int]string // raw JSON instead of a message
	Tell         string         // raw JSON of messages to append, without a new question
	Ask          string         // the question; "auto" by default, "none" for no new one
	Body         string
	IDs          int // so many ids are the prompt of a text
	Omit         []string
	Header       map[string]string
	Conversation string // "main" by default, "none" for none
	Together     int    // as many times at once
	Hits         *int   // how many of them hit
	Leave        string // when the client goes: prefill, decode, between, or a number of events

	// The answer.
	Status      int
	Reuse       string
	Stored      string
	Code        string
	Ends        string
	Legs        string
	Reply       string
	Contains    string
	Path        string
	RetryAfter  string `yaml:"retry_after"`
	PrefillSees string `yaml:"prefill_sees"`
	DecodeSees  string `yaml:"decode_sees"`

	AtOnce []step `yaml:"at_once"`

	Fault       string
	On          string
	Count       int
	Events      int
	FaultStatus int `yaml:"fault_status"`
	Tickets     bool
	Handovers   bool
	HandBacks   bool `yaml:"hand_backs"`
	Route       string
	Factor      float64
	After       string `yaml:"retry_after_header"`
	Delay       time.Duration
	Params      string
	Clear       string
	Restart     string
	AtLeg       bool `yaml:"at_leg"` // a fault or restart happens when the next leg is about to be sent
	Between     string
	Sleep       string
	Close       string
	Hold        string // where hand-backs stop: queued, read or computed
	Release     string // has them go on
	Reload      string // another configuration file
	Pinned      *int   // answers that decode pins, once the program says the same
	Settle      []int  // hand-backs that are done, have failed and are kept, once none waits
	Advance     string
	By          time.Duration
	Expire      time.Duration
}

// readScenarios loads the one or more scenarios of a file, by their names, and says what is wrong with them.
func readScenarios(path string) (map[string]*scenario, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	list := []*scenario{{}}
	into := any(&list)
	if !bytes.Contains(text, []byte("- &")) {
		into = list[0]
	}
	decoder := yaml.NewDecoder(bytes.NewReader(text))
	decoder.KnownFields(true)
	if err := decoder.Decode(into); err != nil {
		return nil, err
	}
	all := map[string]*scenario{}
	for _, s := range list {
		name := strings.TrimSuffix(filepath.Base(path), ".yaml")
		if s.Name != "" {
			name += "/" + s.Name
		}
		if s.About == "" || len(s.Steps) == 0 || all[name] != nil {
			return nil, fmt.Errorf("%s: about, steps and a name of its own are needed", name)
		}
		if len(s.Modes) == 0 {
			s.Modes = []string{"stream", "whole"}
		}
		all[name] = s
	}
	return all, nil
}

// configs are the instances of a role.
func (e *engineSetup) configs(t *testing.T, role string) []vllmsim.Config {
	t.Helper()
	cfg := vllmsim.DefaultConfig()
	cfg.Role = role
	n, with := max(1, e.Prefill), e.PrefillWith
	if role == config.RoleDecode {
		n, with = max(1, e.Decode), e.DecodeWith
	}
	for _, settings := range []object{e.All, with} {
		fill(t, &cfg, encode(settings))
	}
	list := make([]vllmsim.Config, n)
	for i := range list {
		list[i] = cfg
	}
	return list
}

// fill sets the members of a value that JSON names.
func fill(t *testing.T, to any, members []byte) {
	t.Helper()
	decoder := json.NewDecoder(bytes.NewReader(members))
	decoder.DisallowUnknownFields()
	noError(t, decoder.Decode(to))
}

// settings are those of the server that no flag sets.
func (s *scenario) settings(c *server.Config) {
	c.ReuseMinTokens = cmp.Or(s.Least, c.ReuseMinTokens)
	c.ReuseTrialTimeout = cmp.Or(s.Trial, c.ReuseTrialTimeout)
	if c.HandoverBudget = cmp.Or(s.Budget, c.HandoverBudget); s.Cut {
		c.DrainDelay = time.Millisecond
	}
}

// flags are the proxy's: so that KV moves on every turn, each prefill instance in turn, unless the file says otherwise.
func (s *scenario) flags() []string {
	flags := []string{"--routing-prefill", "round_robin", "--host", "127.0.0.1", "--port", "0", "--admin-listen", "off"}
	for _, line := range s.Proxy {
		flags = append(flags, strings.Fields(line)...)
	}
	return flags
}

func TestScenarios(t *testing.T) {
	t.Parallel()
	playAll(t, scenarioFolder)
}

// Faults that were reported of other proxies and routers in public, each in one small file.
func TestReports(t *testing.T) {
	t.Parallel()
	for name, s := range playAll(t, reportFolder) {
		if !strings.HasPrefix(s.Source, "https://") || s.Symptom == "" {
			t.Errorf("%s: source and symptom are needed", name)
		}
	}
}

// playAll plays the scenarios of a folder, and returns them by name.
func playAll(t *testing.T, folder string) map[string]*scenario {
	t.Helper()
	paths, err := filepath.Glob(folder + "/*.yaml")
	if err != nil || len(paths) == 0 {
		t.Fatalf("no scenarios in %s (%v)", folder, err)
	}
	all := map[string]*scenario{}
	for _, path := range paths {
		some, err := readScenarios(path)
		if err != nil {
			t.Errorf("%s: %v", path, err)
		}
		maps.Copy(all, some)
		for name, s := range some {
			for _, mode := range s.Modes {
				t.Run(name+"/"+mode, func(t *testing.T) {
					t.Parallel()
					newPlay(t, s, mode == "stream").run(t)
				})
			}
		}
	}
	return all
}
