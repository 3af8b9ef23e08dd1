package discovery

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"carryover/logtest"
	"carryover/upstream"
)

// A step writes the file with decode instances ("list a:80"), or another text ("write"), or removes it; "link" has the path lead to another file, as
// a ConfigMap is changed; "pass" lets time pass.
func TestFile(t *testing.T) {
	for name, script := range map[string]string{
		"it follows the content": "list a:80; watch; want a:80; write # the same list\ndecode:\n- url: http://a:80\n; pass 5s; quiet; list a:80 b:80; pass 2200ms; now a:80 b:80;" +
			"link b:80; pass 2200ms; now b:80",
		"a bad one keeps the last list": "list a:80; watch; want a:80; write decode:\n- url: a\n; pass 1m; logged 1 file of instances is wrong; logged 1 instances.yaml;" +
			"write ; pass 1m; logged 2 file of instances is wrong; logged 1 has no list; quiet; list b:80; pass 3s; now b:80",
		"one that cannot be read": "list a:80; watch; want a:80; remove; pass 1m; quiet; logged 1 cannot be read; list a:80; pass 3s; quiet; huge; pass 1m; quiet; logged 2 cannot be read;" +
			"list a:80; pass 3s; quiet",
		// A file that is written in pieces is used when it has stood still.
		"half a file": "list a:80 b:80; watch; want a:80 b:80; pass 1990ms; list a:80; pass 20ms; list a:80 c:80; pass 150ms; quiet; pass 100ms; now a:80 c:80",
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f, log := newFile(t)
				play(t, script, f, log, map[string]func(string){
					"write":  func(text string) { write(t, f.Path, text) },
					"list":   func(urls string) { write(t, f.Path, decodes(urls)) },
					"remove": func(string) { must(t, os.Remove(f.Path)) },
					"huge":   func(string) { write(t, f.Path, strings.Repeat("#", 1<<20+1)) },
					"link": func(urls string) {
						other := filepath.Join(t.TempDir(), "other")
						write(t, other, decodes(urls))
						must(t, os.Symlink(other, f.Path+".new"))
						must(t, os.Rename(f.Path+".new", f.Path))
					},
					"pass": passes(t),
				})
			})
		})
	}
}

// passes lets synthetic time pass.
func passes(t *testing.T) func(about string) {
	return func(about string) {
		d, err := time.ParseDuration(about)
		must(t, err)
		<-time.After(d)
		synctest.Wait()
	}
}

func newFile(t *testing.T) (File, *logtest.Log) {
	log := &logtest.Log{}
	return File{Path: filepath.Join(t.TempDir(), "instances.yaml"), Parse: parseURLs, Logger: log.Logger()}, log
}

// parseURLs reads what decodes writes.
func parseURLs(path string, data []byte) (all []upstream.Instance, err error) {
	list, ok := strings.CutPrefix(strings.TrimPrefix(string(data), "# the same list\n"), "decode:\n")
	if !ok {
		return nil, fmt.Errorf("%s has no list", path)
	}
	for line := range strings.Lines(list) {
		one, err := upstream.NewInstance(upstream.RoleDecode, "", strings.TrimSpace(strings.TrimPrefix(line, "- url: ")))
		if err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
		all = append(all, one)
	}
	return all, nil
}

func write(t *testing.T, path, text string) {
	t.Helper()
	must(t, os.WriteFile(path, []byte(text), 0o600))
}

func decodes(urls string) string {
	return "decode:\n- url: http://" + strings.ReplaceAll(urls, " ", "\n- url: http://") + "\n"
}

func TestFile_TheFirstReadingFails(t *testing.T) {
	f, _ := newFile(t)
	write(t, f.Path, "decode: 1\n")
	path := f.Path
	for suffix, want := range map[string]string{"": "instances.yaml has no list", ".missing": "instances.yaml.missing: no such file"} {
		f.Path = path + suffix
		err := f.Watch(t.Context(), func(all []upstream.Instance) { t.Errorf("set(%+v)", all) })
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("Watch = %v, want %s", err, want)
		}
	}
}
