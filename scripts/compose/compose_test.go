package compose

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/compose-spec/compose-go/v2/types"
)

// sets are the profiles that go together, and the services of each.
func sets() map[string][]string {
	sim := []string{"build", "carryover", "redis", "sim-decode", "sim-prefill", "talk"}
	scale := []string{"build", "carryover-1", "carryover-2", "proxy", "redis", "sim-decode", "sim-prefill"}
	gpu := []string{"build", "carryover-gpu", "decode", "prefill"}
	beside := []string{"grafana", "jaeger", "open-webui", "otel-collector", "prometheus", "volumes"}
	return map[string][]string{
		"sim": sim, "scale": scale, "gpu": gpu,
		"obs": {"grafana", "jaeger", "otel-collector", "prometheus", "volumes"}, "webui": {"open-webui"},
		"sim obs webui": slices.Concat(sim, beside), "scale obs webui": slices.Concat(scale, beside), "gpu obs webui": slices.Concat(gpu, beside),
		"": {},
	}
}

func load(t *testing.T, profiles string) *types.Project {
	t.Helper()
	project, err := Load(t.Context(), Root, strings.Fields(profiles), nil)
	must(t, err)
	return project
}

// eachService calls f for each service of all profiles.
func eachService(t *testing.T, f func(t *testing.T, s types.ServiceConfig)) {
	t.Helper()
	project := load(t, "sim scale gpu obs webui")
	if len(project.Services) < 15 {
		t.Fatalf("%d services; where are the others?", len(project.Services))
	}
	for _, name := range project.ServiceNames() {
		t.Run(name, func(t *testing.T) { f(t, project.Services[name]) })
	}
}

func TestCompose_HasTheServicesOfEachProfile(t *testing.T) {
	for profiles, want := range sets() {
		got := load(t, profiles).ServiceNames()
		slices.Sort(want)
		if !slices.Equal(got, want) {
			t.Errorf("profiles %q have services %v, want %v", profiles, got, want)
		}
	}
}

// TestLoad_RefusesWhatDockerWould breaks a copy of compose.yaml in each way that the file could be broken in.
func TestLoad_RefusesWhatDockerWould(t *testing.T) {
	text := read(t, filepath.Join(Root, "compose.yaml"))
	for _, tc := range []struct{ name, from, to string }{
		{"unknown key", "stop_grace_period: 45s", "stop_grace: 45s"},
		{"wrong type", "retries: 5", "retries: many"},
		{"no duration", "interval: 2s", "interval: soon"},
		{"network", "networks: [front, engines, tickets, watch]", "networks: [front, engine]"},
		{"secret", "secrets: [secret, redis_password, admin_token]", "secrets: [sekret]"},
		{"volume", "webui:/app/backend/data", "web:/app/backend/data"},
		{"dependency", "redis: {condition: service_healthy}", "reddis: {condition: service_healthy}"},
		{"condition", "condition: service_healthy", "condition: service_well"},
		{"dependency outside of the profile", "profiles: [sim, scale]\n    user: *reader", "profiles: [scale]\n    user: *reader"},
		{"variable", "${HF_TOKEN:-}", "${HF_TOKEN"},
		{"anchor", "<<: *sim", "<<: *simulator"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			broken := strings.Replace(text, tc.from, tc.to, 1)
			if broken == text {
				t.Fatalf("compose.yaml has no %q", tc.from)
			}
			folder := t.TempDir()
			must(t, os.WriteFile(filepath.Join(folder, "compose.yaml"), []byte(broken), 0o600))
			if _, err := Load(t.Context(), folder, []string{"sim", "webui", "gpu"}, nil); err == nil {
				t.Error("it is accepted")
			}
		})
	}
}

func TestCompose_PublishesOnThisMachineOnlyAndNoPortTwice(t *testing.T) {
	for profiles := range sets() {
		taken := map[string]string{}
		for name, service := range load(t, profiles).Services {
			for _, port := range service.Ports {
				if port.HostIP != "127.0.0.1" {
					t.Errorf("%s publishes port %s at %q", name, port.Published, port.HostIP)
				}
				if other := taken[port.Published]; other != "" {
					t.Errorf("profiles %q: %s and %s publish port %s", profiles, name, other, port.Published)
				}
				taken[port.Published] = name
			}
		}
	}
}

func TestCompose_ServicesHaveNoMoreRightsThanTheyNeed(t *testing.T) {
	writes := []string{"prefill", "decode", "grafana", "open-webui"} // caches, a database
	byRoot := []string{"open-webui", "volumes"}                      // its image knows no other user, and it sets up its files; it gives volumes away
	ownUser := []string{"otel-collector", "jaeger"}
	eachService(t, func(t *testing.T, s types.ServiceConfig) {
		if !slices.Contains(s.SecurityOpt, "no-new-privileges:true") || s.Privileged {
			t.Error("it can gain privileges")
		}
		if !slices.Contains(byRoot, s.Name) {
			if !slices.Equal(s.CapDrop, []string{"ALL"}) || len(s.CapAdd) > 0 {
				t.Errorf("capabilities: drops %v, adds %v", s.CapDrop, s.CapAdd)
			}
			if s.Image != Image && !slices.Contains(ownUser, s.Name) && (s.User == "" || strings.HasPrefix(s.User, "0")) {
				t.Errorf("it runs as user %q", s.User)
			}
		}
		if s.ReadOnly == slices.Contains(writes, s.Name) {
			t.Errorf("read_only is %v", s.ReadOnly)
		}
		for _, v := range s.Volumes {
			if v.Type == types.VolumeTypeBind && !v.ReadOnly {
				t.Errorf("it can write %s", v.Source)
			}
		}
	})
}

// TestCompose_RootOnlyGivesVolumesAway: the one service that runs as root can change owners, reaches no network, and ends.
func TestCompose_RootOnlyGivesVolumesAway(t *testing.T) {
	s := load(t, "obs").Services["volumes"]
	if !slices.Equal(s.CapDrop, []string{"ALL"}) || !slices.Equal(s.CapAdd, []string{"CHOWN", "DAC_OVERRIDE"}) || s.NetworkMode != "none" || s.Restart != types.RestartPolicyNo || len(s.Secrets) > 0 {
		t.Errorf("it may do more: %+v", s)
	}
}

func TestCompose_ServicesFitTogether(t *testing.T) {
	version := regexp.MustCompile(`:v?\d+\.\d+\.\d+(-\w+)?$`)
	made := secrets(t)
	project := load(t, "sim scale gpu obs webui")
	eachService(t, func(t *testing.T, s types.ServiceConfig) {
		isOn := func(test func(network string) bool) bool {
			return slices.ContainsFunc(slices.Collect(maps.Keys(s.Networks)), test)
		}
		// Docker publishes nothing of a container that is on internal networks only.
		if len(s.Ports) > 0 && !isOn(func(n string) bool { return !bool(project.Networks[n].Internal) }) {
			t.Error("it publishes ports and is on internal networks only")
		}
		for needed, dependency := range s.DependsOn {
			shared := isOn(func(n string) bool {
				_, found := project.Services[needed].Networks[n]
				return found
			})
			if !shared && dependency.Condition != types.ServiceConditionCompletedSuccessfully { // those are waited for and not spoken to
				t.Errorf("it depends on %s and can't reach it", needed)
			}
		}
		// Docker makes a folder of what is missing.
		var sources []string
		for _, v := range s.Volumes {
			if v.Type == types.VolumeTypeBind {
				sources = append(sources, v.Source)
			}
		}
		for _, secret := range s.Secrets {
			sources = append(sources, project.Secrets[secret.Source].File)
		}
		for _, path := range sources {
			relative, err := filepath.Rel(project.WorkingDir, path)
			must(t, err)
			if slices.Contains(made, relative) {
				continue
			}
			if _, err := os.Stat(path); err != nil || strings.HasPrefix(relative, "..") {
				t.Errorf("%s is neither in the repository nor made by scripts/replicas/secrets: %v", relative, err)
			}
		}
		if s.Image != Image {
			if !version.MatchString(s.Image) {
				t.Errorf("image %s has no full version", s.Image)
			}
			return
		}
		if s.PullPolicy != types.PullPolicyNever && s.PullPolicy != types.PullPolicyBuild {
			t.Errorf("a registry is asked for our own image: pull_policy is %q", s.PullPolicy)
		}
		if s.Restart != types.RestartPolicyNo && (s.HealthCheck == nil || len(s.HealthCheck.Test) != 4 || !slices.Equal(s.HealthCheck.Test[:3], []string{"CMD", "/carryover", "probe"})) {
			t.Errorf("health check %v", s.HealthCheck)
		}
		if !strings.HasPrefix(s.Command[0], "--") {
			return
		}
		grace := 30 * time.Second // the program's, unless a flag says otherwise
		for _, arg := range s.Command {
			if value, ok := strings.CutPrefix(arg, "--shutdown-grace="); ok {
				var err error
				grace, err = time.ParseDuration(value)
				must(t, err)
			}
		}
		if given := cmp.Or(s.StopGracePeriod, new(types.Duration)); time.Duration(*given) < grace+5*time.Second {
			t.Errorf("stop_grace_period is %v, want --shutdown-grace (%v) and 5 s at least", time.Duration(*given), grace)
		}
	})
}

// TestCompose_EnginesCanBeReplaced reads the variables that stand in docs/getting-started.md.
func TestCompose_EnginesCanBeReplaced(t *testing.T) {
	project, err := Load(context.Background(), Root, []string{"scale", "gpu"}, []string{
		"PREFILL_URL=http://10.0.0.1:8100", "DECODE_URL=http://10.0.0.3:8200", "KV_HOST=auto", "MODEL=m", "VLLM_IMAGE=vllm/vllm-openai:v9.9.9",
		"PREFILL_GPU=2", "DECODE_GPU=3", "OTEL_EXPORTER_OTLP_ENDPOINT=http://otel-collector:4318", "VERSION=v1"})
	must(t, err)
	s := project.Services
	got := fmt.Sprint(s["carryover-2"].Command, *s["decode"].Environment["MODEL"], s["prefill"].Image,
		s["prefill"].Deploy.Resources.Reservations.Devices[0].IDs, s["decode"].Deploy.Resources.Reservations.Devices[0].IDs,
		*s["carryover-1"].Environment["OTEL_EXPORTER_OTLP_ENDPOINT"], *s["build"].Build.Args["VERSION"])
	for _, want := range []string{"--prefill=http://10.0.0.1:8100", "--decode=http://10.0.0.3:8200", "--kv-host=auto", "]m", "v9.9.9", "[2] [3]", "http://otel-collector:4318v1"} {
		if !strings.Contains(got, want) {
			t.Errorf("%q is not in %s", want, got)
		}
	}
}
