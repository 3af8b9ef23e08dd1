package e2e

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
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
			if err != nil {
				t.Fatal(err)
			}
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
