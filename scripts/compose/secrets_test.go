package compose

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// makeSecrets runs scripts/replicas/secrets in a copy of its folder and returns the copy's root.
func makeSecrets(t *testing.T, root string) {
	t.Helper()
	if text, err := exec.Command(filepath.Join(root, "scripts", "replicas", "secrets")).CombinedOutput(); err != nil {
		t.Fatalf("scripts/replicas/secrets: %v\n%s", err, text)
	}
}

func copyOfSecrets(t *testing.T) string {
	t.Helper()
	root := t.TempDir()
	for _, file := range []string{"secrets", "redis.acl"} {
		text, err := os.ReadFile(filepath.Join(Root, "scripts", "replicas", file))
		if err != nil {
			t.Fatal(err)
		}
		place(t, filepath.Join(root, "scripts", "replicas", file), text)
	}
	return root
}

// secrets are the files that scripts/replicas/secrets makes in the root.
func secrets(t *testing.T) []string {
	t.Helper()
	root := copyOfSecrets(t)
	makeSecrets(t, root)
	entries, err := os.ReadDir(root)
	if err != nil {
		t.Fatal(err)
	}
	var files []string
	for _, entry := range entries {
		if !entry.IsDir() {
			files = append(files, entry.Name())
		}
	}
	return files
}

// place writes a file and the folders that lead to it.
func place(t *testing.T, path string, text []byte) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, text, 0o700); err != nil {
		t.Fatal(err)
	}
}

func TestSecrets_AreMadeOnceAndIgnoredByGit(t *testing.T) {
	ignored, err := os.ReadFile(filepath.Join(Root, ".gitignore"))
	if err != nil {
		t.Fatal(err)
	}
	root := copyOfSecrets(t)
	makeSecrets(t, root)
	read := func(file string) string {
		text, err := os.ReadFile(filepath.Join(root, file))
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	first := map[string]string{}
	for _, file := range secrets(t) {
		first[file] = read(file)
		if !strings.Contains(string(ignored), "\n/"+file+"\n") {
			t.Errorf(".gitignore has no /%s", file)
		}
		info, err := os.Stat(filepath.Join(root, file))
		if err != nil {
			t.Fatal(err)
		}
		if info.Mode().Perm() != 0o644 {
			t.Errorf("%s has mode %v; other users' containers read it, and only its owner may write it", file, info.Mode().Perm())
		}
	}
	if len(first) != 5 {
		t.Errorf("%d files are made, want 5", len(first))
	}
	if !strings.Contains(first["users.acl"], ">"+strings.TrimSpace(first["redis-password.txt"])+" ") {
		t.Error("users.acl has another password than redis-password.txt")
	}
	makeSecrets(t, root)
	for file, text := range first {
		if read(file) != text {
			t.Errorf("%s is another after the second run", file)
		}
	}
}
