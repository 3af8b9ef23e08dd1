package e2e

import (
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"carryover/cmd/carryover/config"
	"carryover/cmd/carryover/config/configtest"
)

// pages returns the text of what is written for readers, by its path from the root of the repository.
func pages(t *testing.T) map[string]string {
	t.Helper()
	all := map[string]string{}
	for _, pattern := range []string{"*.md", "docs/*.md", "scripts/*/README.md"} {
		names, err := filepath.Glob(filepath.Join("../../..", pattern))
		if err != nil || len(names) == 0 {
			t.Fatalf("%s: %v", pattern, err)
		}
		for _, name := range names {
			text, err := os.ReadFile(name)
			noError(t, err)
			all[strings.TrimPrefix(filepath.ToSlash(name), "../../../")] = string(text)
		}
	}
	return all
}

// anchors are the headings of a page as links name them.
func anchors(page string) (all []string) {
	for i, part := range strings.Split(page, "```") {
		for line := range strings.Lines(part) {
			if heading, found := strings.CutPrefix(strings.TrimLeft(line, "#"), " "); found && i%2 == 0 && strings.HasPrefix(line, "#") {
				heading = regexp.MustCompile(`[^\w\- ]`).ReplaceAllString(strings.ToLower(strings.TrimSpace(heading)), "")
				all = append(all, strings.ReplaceAll(heading, " ", "-"))
			}
		}
	}
	return all
}

func TestPages_LinksLeadSomewhere(t *testing.T) {
	all := pages(t)
	for name, page := range all {
		for _, link := range regexp.MustCompile(`\]\(([^)\s]+)\)`).FindAllStringSubmatch(page, -1) {
			if strings.Contains(link[1], "://") {
				continue
			}
			path, anchor, _ := strings.Cut(link[1], "#")
			to := name
			if path != "" {
				to = filepath.ToSlash(filepath.Join(filepath.Dir(name), path))
			}
			if _, err := os.Stat(filepath.Join("../../..", to)); err != nil {
				t.Errorf("%s: %s leads nowhere: %v", name, link[1], err)
			}
			if anchor != "" && !slices.Contains(anchors(all[to]), anchor) {
				t.Errorf("%s: %s has no heading #%s", name, to, anchor)
			}
		}
	}
}

func TestPages_NameFilesThatAreThere(t *testing.T) {
	named := 0
	for name, page := range pages(t) {
		for _, found := range regexp.MustCompile("`((?:cmd|server|upstream|convcache|sse|scripts|testdata)/[\\w./-]+)`").FindAllStringSubmatch(page, -1) {
			named++
			if _, err := os.Stat(filepath.Join("../../..", found[1])); err != nil {
				t.Errorf("%s: %v", name, err)
			}
		}
	}
	if named < 15 {
		t.Errorf("pages name %d files, want 15 at least", named)
	}
}

func TestPages_NameTheMetricsThatThereAre(t *testing.T) {
	all := pages(t)
	var known []string
	for _, f := range listedFamilies(t) {
		known = append(known, f.name)
		if !strings.Contains(all["docs/reference.md"], "`"+f.name+"`") {
			t.Errorf("docs/reference.md lacks %s", f.name)
		}
	}
	for name, page := range all {
		if name == "CHANGELOG.md" {
			continue // names what there was
		}
		for _, metric := range regexp.MustCompile(`\bcarryover_[a-z_]+[a-z]\b`).FindAllString(page, -1) {
			family := regexp.MustCompile(`_(bucket|sum|count)$`).ReplaceAllString(metric, "")
			if !slices.Contains(known, family) && metric != "carryover_vllm" { // a Python package
				t.Errorf("%s: the program has no metric %s", name, metric)
			}
		}
	}
}

// TestPages_AreOneClickFromTheReadme: whoever looks for something begins there.
func TestPages_AreOneClickFromTheReadme(t *testing.T) {
	all := pages(t)
	for name := range all {
		if strings.HasPrefix(name, "docs/") && !strings.Contains(all["README.md"], "]("+name) {
			t.Errorf("README.md has no link to %s", name)
		}
	}
	if size := len(all["README.md"]); size > 9<<10 {
		t.Errorf("README.md has %d bytes, want 9 KB at most", size)
	}
}

// stated are numbers that several pages, manifests or helps state. The groups of each pattern match what one of them says.
var stated = map[string]string{
	"KB of a stream with bodies of 2 KB":             `([\d.]+) KB a stream with bodies of 2 KB|open stream, 2 KB +\| ([\d.]+) KB|W5 2 KB +\| carryover \| ([\d.]+)|streams at (\d+) to \d+ KB`,
	"KB of a stream with bodies of 64 KB":            `([\d.]+) KB with bodies of 64 KB|open stream, 64 KB +\| ([\d.]+) KB|W5 64 KB +\| carryover \| ([\d.]+)|streams at \d+ to (\d+) KB`,
	"tokens below which prefill computes":            "`kv_recompute_threshold`,? \\(?(\\d+)|fewer than (\\d+) (?:missing )?tokens",
	"seconds that decode keeps blocks":               "decoder_kv_blocks_ttl`, (\\d+) s|expire \\((\\d+) s\\)",
	"tokens computed per later turn, with reuse":     `prefill computes ([\d,]+) tokens per later turn|\| on \| [\d,]+ \([^|]*\| ([\d,]+) \(`,
	"tokens computed per later turn, caching alone":  `in place of ([\d,]+) with prefix caching alone|\| on \| ([\d,]+) \(`,
	"tokens computed per later turn, without either": `in place of ([\d,]+) without prefix caching|\| off \| ([\d,]+) \(`,
}

func TestPages_AgreeOnNumbers(t *testing.T) {
	all := pages(t)
	for _, name := range []string{"scripts/kubernetes/base/carryover/deployment.yaml"} {
		text, err := os.ReadFile(filepath.Join("../../..", name))
		noError(t, err)
		all[name] = string(text)
	}
	for what, pattern := range stated {
		said := map[string][]string{}
		for name, page := range all {
			for _, groups := range regexp.MustCompile(pattern).FindAllStringSubmatch(page, -1) {
				n, err := strconv.ParseFloat(strings.ReplaceAll(strings.Join(groups[1:], ""), ",", ""), 64)
				noError(t, err)
				rounded := fmt.Sprintf("%.0f", n)
				said[rounded] = append(said[rounded], name)
			}
		}
		if places := slices.Concat(slices.Collect(maps.Values(said))...); len(said) != 1 || len(places) < 2 {
			t.Errorf("%s: %v, want one number in two places at least", what, said)
		}
	}
	defaults := map[string]string{}
	for _, row := range regexp.MustCompile("(?m)^\\| `[a-z_.]+` \\| `(--[a-z-]+)` [^|]*\\| `([^`]+)` \\|").FindAllStringSubmatch(all["docs/reference.md"], -1) {
		defaults[row[1]] = row[2]
	}
	quoted := 0
	delete(all, "CHANGELOG.md") // which has former defaults, too
	for name, page := range all {
		for _, found := range regexp.MustCompile("`(--[a-z-]+)` \\(([0-9][0-9a-zA-Z.]* ?(?:ms|s|MiB|KiB|GiB)?)[,;) ]").FindAllStringSubmatch(page, -1) {
			if value, known := defaults[found[1]]; known {
				quoted++
				if value != strings.ReplaceAll(found[2], " ", "") {
					t.Errorf("%s: %s is said to be %s, and is %s", name, found[1], found[2], value)
				}
			}
		}
	}
	if quoted < 4 {
		t.Errorf("pages quote %d defaults of settings, want 4 at least", quoted)
	}
}

// TestConnectorsPage_CommandsAreAccepted has a shell read each command of docs/connectors.md, and check-config what it reads.
func TestConnectorsPage_CommandsAreAccepted(t *testing.T) {
	page, err := os.ReadFile("../../../docs/connectors.md")
	noError(t, err)
	var shown []string
	for i, block := range strings.Split(string(page), "```") {
		if i%2 == 0 || !strings.HasPrefix(block, "\ncarryover ") {
			continue
		}
		words, err := exec.CommandContext(t.Context(), "sh", "-c", `carryover() { printf '%s\0' "$@"; }`+block).Output()
		noError(t, err)
		args := strings.Split(strings.TrimSuffix(string(words), "\x00"), "\x00")
		if _, err := configtest.LoadFiles(t, args); err != nil {
			t.Errorf("%s\nis refused: %v", block, err)
		}
		if at := slices.Index(args, "--connector"); at >= 0 {
			shown = append(shown, args[at+1])
		}
	}
	for _, name := range config.Connectors()[1:] { // docs/getting-started.md has NIXL
		if !slices.Contains(shown, name) {
			t.Errorf("docs/connectors.md has no command with --connector %s", name)
		}
		if !strings.Contains(string(page), "\n| `"+name+"` |") {
			t.Errorf("docs/connectors.md has no row of %s in its table", name)
		}
	}
}
