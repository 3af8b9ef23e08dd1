package compose

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/compose-spec/compose-go/v2/types"
	"go.yaml.in/yaml/v3"
)

const observability = Root + "/scripts/observability/"

func readYAML(t *testing.T, path string, into any) {
	t.Helper()
	text := read(t, filepath.Join(observability, path))
	if err := yaml.Unmarshal([]byte(text), into); err != nil {
		t.Fatalf("%s: %v", path, err)
	}
}

// scrape is a job of Prometheus.
type scrape struct {
	JobName       string `yaml:"job_name"`
	HonorLabels   bool   `yaml:"honor_labels"`
	Authorization struct {
		File string `yaml:"credentials_file"`
	} `yaml:"authorization"`
	DNS []struct {
		Names []string `yaml:"names"`
		Port  int      `yaml:"port"`
	} `yaml:"dns_sd_configs"`
}

// TestPrometheus_AsksWhatIsThere compares the targets with the services: those that serve metrics, and no others.
func TestPrometheus_AsksWhatIsThere(t *testing.T) {
	var cfg struct {
		RuleFiles     []string `yaml:"rule_files"`
		ScrapeConfigs []scrape `yaml:"scrape_configs"`
	}
	readYAML(t, "prometheus/prometheus.yml", &cfg)
	project := load(t, "sim scale gpu obs webui")
	prometheus := project.Services["prometheus"]
	var proxies, engines []string
	for name, service := range project.Services {
		switch {
		case service.Image == Image && strings.HasPrefix(service.Command[0], "--"):
			proxies = append(proxies, name)
			if !slices.Contains(service.Command, "--admin-listen=0.0.0.0:9480") {
				t.Errorf("%s: Prometheus does not find its listener for operators", name)
			}
		case service.Image == Image && service.Command[0] == "sim", strings.HasPrefix(service.Image, "vllm/"):
			engines = append(engines, name)
		}
	}
	for job, want := range map[string]struct {
		names   []string
		port    int
		network string
	}{"carryover": {proxies, 9480, "watch"}, "engines": {engines, 8000, "engines"}} {
		i := slices.IndexFunc(cfg.ScrapeConfigs, func(s scrape) bool { return s.JobName == job })
		if i < 0 || len(cfg.ScrapeConfigs[i].DNS) != 1 {
			t.Errorf("no job %s", job)
			continue
		}
		got := cfg.ScrapeConfigs[i].DNS[0]
		slices.Sort(got.Names)
		slices.Sort(want.names)
		if !slices.Equal(got.Names, want.names) || got.Port != want.port {
			t.Errorf("job %s asks %v at port %d, want %v at %d", job, got.Names, got.Port, want.names, want.port)
		}
		for _, name := range append(want.names, "prometheus") {
			if _, found := project.Services[name].Networks[want.network]; !found {
				t.Errorf("%s is not on network %s", name, want.network)
			}
		}
		if job == "carryover" && (!cfg.ScrapeConfigs[i].HonorLabels || !slices.ContainsFunc(prometheus.Secrets, func(s types.ServiceSecretConfig) bool {
			return s.Target == cfg.ScrapeConfigs[i].Authorization.File
		})) {
			t.Error("job carryover: want honor_labels and the token of the listener for operators")
		}
	}
	for _, file := range cfg.RuleFiles {
		if _, err := os.Stat(observability + "prometheus/" + file); err != nil {
			t.Error(err)
		}
	}
}

func TestCollector_PipelinesAreConnected(t *testing.T) {
	var cfg struct {
		Receivers  map[string]any `yaml:"receivers"`
		Processors map[string]any `yaml:"processors"`
		Exporters  map[string]struct {
			Endpoint string `yaml:"endpoint"`
		} `yaml:"exporters"`
		Service struct {
			Pipelines map[string]map[string][]string `yaml:"pipelines"`
		} `yaml:"service"`
	}
	readYAML(t, "collector.yaml", &cfg)
	if len(cfg.Service.Pipelines) == 0 {
		t.Fatal("no pipelines")
	}
	for name, pipeline := range cfg.Service.Pipelines {
		for kind, parts := range pipeline {
			for _, part := range parts {
				_, receives := cfg.Receivers[part]
				_, processes := cfg.Processors[part]
				exporter, exports := cfg.Exporters[part]
				if !map[string]bool{"receivers": receives, "processors": processes, "exporters": exports}[kind] {
					t.Errorf("pipeline %s: no %s %q", name, kind, part)
				}
				if kind == "exporters" {
					host, _, _ := strings.Cut(exporter.Endpoint, ":")
					if _, found := load(t, "obs").Services[host].Networks["watch"]; !found {
						t.Errorf("exporter %s: the collector can't reach %s", part, exporter.Endpoint)
					}
				}
			}
		}
	}
}

func TestGrafana_IsProvisioned(t *testing.T) {
	var sources struct {
		Datasources []struct {
			UID string `yaml:"uid"`
			URL string `yaml:"url"`
		} `yaml:"datasources"`
	}
	readYAML(t, "grafana/provisioning/datasources/datasources.yaml", &sources)
	uids := map[string]bool{}
	obs := load(t, "obs")
	for _, source := range sources.Datasources {
		uids[source.UID] = true
		host, _, _ := strings.Cut(strings.TrimPrefix(source.URL, "http://"), ":")
		if _, found := obs.Services[host]; !found {
			t.Errorf("data source %s: no service %s", source.UID, host)
		}
	}
	var providers struct {
		Providers []struct {
			Options struct {
				Path string `yaml:"path"`
			} `yaml:"options"`
		} `yaml:"providers"`
	}
	readYAML(t, "grafana/provisioning/dashboards/dashboards.yaml", &providers)
	mounted := func(path string) bool {
		for _, v := range obs.Services["grafana"].Volumes {
			if v.Target == path {
				return true
			}
		}
		return false
	}
	if len(providers.Providers) != 1 || !mounted(providers.Providers[0].Options.Path) {
		t.Errorf("dashboards are looked for in %v", providers.Providers)
	}
	boards := map[string]string{}
	paths, err := filepath.Glob(observability + "grafana/dashboards/*.json")
	if err != nil || len(paths) != 2 {
		t.Fatalf("%d dashboards, %v", len(paths), err)
	}
	for _, path := range paths {
		text := read(t, path)
		var board struct {
			UID    string `json:"uid"`
			Panels []struct {
				ID         int    `json:"id"`
				Title      string `json:"title"`
				Datasource struct {
					UID string `json:"uid"`
				} `json:"datasource"`
				GridPos struct{ X, Y, W, H int } `json:"gridPos"`
			} `json:"panels"`
		}
		if err := json.Unmarshal([]byte(text), &board); err != nil {
			t.Fatalf("%s: %v", path, err)
		}
		if other := boards[board.UID]; board.UID == "" || other != "" {
			t.Errorf("%s: uid %q, which is also that of %q", path, board.UID, other)
		}
		boards[board.UID] = path
		ids := map[int]bool{}
		for _, panel := range board.Panels {
			if ids[panel.ID] || !uids[panel.Datasource.UID] || panel.GridPos.W < 1 || panel.GridPos.X+panel.GridPos.W > 24 {
				t.Errorf("%s: panel %q: id %d, data source %q, place %v", path, panel.Title, panel.ID, panel.Datasource.UID, panel.GridPos)
			}
			ids[panel.ID] = true
		}
	}
}
