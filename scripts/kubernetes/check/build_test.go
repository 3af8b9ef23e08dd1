package check

import (
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/kyaml/filesys"
)

// root is scripts, which has the manifests and the plug-in that they mount.
const root = "../.."

// The kustomizations that are built.
const (
	base    = "/kubernetes/base"
	fleet   = "/kubernetes/overlays/fleet"
	sidecar = "/kubernetes/overlays/sidecar"
	scraped = "/kubernetes/overlays/prometheus"
)

// manifestFolders have no Go.
func manifestFolders() []string { return []string{"kubernetes/base", "kubernetes/overlays", "vllm"} }

// secretFiles are those that scripts/kubernetes/secrets makes.
func secretFiles() []string {
	const folder = "base/carryover/secrets/"
	return []string{folder + "secret", folder + "redis-password", folder + "users.acl", "overlays/prometheus/secrets/admin-token"}
}

// files returns the manifests' folders in memory, with secrets in place of those that an operator makes.
func files(t *testing.T) filesys.FileSystem {
	t.Helper()
	memory := filesys.MakeFsInMemory()
	write := func(path string, text []byte) { must(t, memory.WriteFile("/"+filepath.ToSlash(path), text)) }
	for _, folder := range manifestFolders() {
		must(t, filepath.WalkDir(filepath.Join(root, folder), func(path string, entry fs.DirEntry, err error) error {
			if err != nil || entry.IsDir() || strings.HasPrefix(filepath.Base(filepath.Dir(path)), "secrets") {
				return err
			}
			name, err := filepath.Rel(root, path)
			write(name, read(t, path))
			return err
		}))
	}
	for _, name := range secretFiles() {
		write("kubernetes/"+name, []byte("of-no-use-"+strings.Repeat("x", 32)))
	}
	return memory
}

func read(t *testing.T, path string) []byte {
	t.Helper()
	text, err := os.ReadFile(path)
	must(t, err)
	return text
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// build returns the objects of a kustomization as YAML.
func build(t *testing.T, folder string) [][]byte {
	t.Helper()
	made, err := krusty.MakeKustomizer(krusty.MakeDefaultOptions()).Run(files(t), folder)
	if err != nil {
		t.Fatalf("build %s: %v", folder, err)
	}
	var all [][]byte
	for _, r := range made.Resources() {
		text, err := r.AsYAML()
		must(t, err)
		all = append(all, text)
	}
	return all
}
