package compose

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/compose-spec/compose-go/v2/types"
)

// makeSecrets runs scripts/replicas/secrets in a copy of its folder and returns the copy's root.
func makeSecrets(t *testing.T, root string) {
	t.Helper()
	output(t, exec.Command(filepath.Join(root, "scripts", "replicas", "secrets")))
}

func copyOfSecrets(t *testing.T) string {
	t.Helper()
	root := t.TempDir()
	for _, file := range []string{"scripts/replicas/secrets", "scripts/replicas/redis.acl"} {
		place(t, filepath.Join(root, file), read(t, filepath.Join(Root, file)))
	}
	return root
}

// secrets are the files that scripts/replicas/secrets makes in the root.
func secrets(t *testing.T) []string {
	t.Helper()
	root := copyOfSecrets(t)
	makeSecrets(t, root)
	entries, err := os.ReadDir(root)
	must(t, err)
	var files []string
	for _, entry := range entries {
		if !entry.IsDir() {
			files = append(files, entry.Name())
		}
	}
	return files
}

// place writes a file and the folders that lead to it.
func place(t *testing.T, path, text string) {
	t.Helper()
	must(t, os.MkdirAll(filepath.Dir(path), 0o700))
	must(t, os.WriteFile(path, []byte(text), 0o700))
}

func TestSecrets_AreMadeOnceAndIgnoredByGit(t *testing.T) {
	ignored := read(t, filepath.Join(Root, ".gitignore"))
	root := copyOfSecrets(t)
	makeSecrets(t, root)
	first := map[string]string{}
	for _, file := range secrets(t) {
		first[file] = read(t, filepath.Join(root, file))
		if !strings.Contains(ignored, "\n/"+file+"\n") {
			t.Errorf(".gitignore has no /%s", file)
		}
		info, err := os.Stat(filepath.Join(root, file))
		must(t, err)
		if info.Mode().Perm() != 0o600 {
			t.Errorf("%s has mode %v; its owner alone may read and write it", file, info.Mode().Perm())
		}
	}
	if len(first) != 6 {
		t.Errorf("%d files are made, want 6", len(first))
	}
	if !strings.Contains(first["users.acl"], ">"+strings.TrimSpace(first["redis-password.txt"])+" ") {
		t.Error("users.acl has another password than redis-password.txt")
	}
	makeSecrets(t, root)
	for file, text := range first {
		if read(t, filepath.Join(root, file)) != text {
			t.Errorf("%s is another after the second run", file)
		}
	}
}

// TestSecrets_TheContainersThatReadThemOwnThem: each service that mounts a file which the script has made runs as its owner, whoever
// runs the script, and .env keeps what else it has.
func TestSecrets_TheContainersThatReadThemOwnThem(t *testing.T) {
	type run struct {
		as   uint32 // who runs the script
		env  []string
		want string
	}
	runs := map[string]run{
		"root":              {0, nil, "65532:65532"},
		"root, for another": {0, []string{"SECRETS_USER=1234:1235"}, "1234:1235"},
		"a person":          {4321, nil, "4321:4321"},
	}
	if user := os.Getuid(); user != 0 { // who can be nobody else
		runs = map[string]run{"oneself": {uint32(user), nil, fmt.Sprintf("%d:%d", user, os.Getgid())}} //nolint:gosec // it is no negative number
	}
	for name, tc := range runs {
		t.Run(name, func(t *testing.T) {
			root := copyOfSecrets(t)
			script := exec.Command(filepath.Join(root, "scripts", "replicas", "secrets"))
			script.Env = append([]string{"PATH=/usr/bin:/bin"}, tc.env...)
			if os.Getuid() == 0 {
				give(t, root, int(tc.as))
				script.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: tc.as, Gid: tc.as}}
			}
			for _, file := range []string{".env", "secret.txt"} { // there already, and open
				place(t, filepath.Join(root, file), "MODEL=m\nSECRETS_USER=1:1\n")
				must(t, os.Chmod(filepath.Join(root, file), 0o644)) //nolint:gosec // as the script once left them
				if os.Getuid() == 0 {
					give(t, filepath.Join(root, file), int(tc.as))
				}
			}
			for range 2 {
				again := exec.Command(script.Path)
				again.Env, again.SysProcAttr = script.Env, script.SysProcAttr
				output(t, script)
				script = again
			}
			variables := read(t, filepath.Join(root, ".env"))
			if want := "MODEL=m\nSECRETS_USER=" + tc.want + "\n"; variables != want {
				t.Fatalf(".env has %q, want %q", variables, want)
			}
			project, err := Load(t.Context(), Root, strings.Fields("sim scale gpu obs webui"), strings.Fields(variables))
			must(t, err)
			read := 0
			for name, s := range project.Services {
				for _, file := range madeFiles(t, project, s) {
					read++
					info, err := os.Stat(filepath.Join(root, file))
					must(t, err)
					owner := info.Sys().(*syscall.Stat_t)
					if got := fmt.Sprintf("%d:%d", owner.Uid, owner.Gid); info.Mode().Perm() != 0o600 || s.User != got || got != tc.want {
						t.Errorf("%s runs as %q and reads %s of mode %v and owner %s, want %s", name, s.User, file, info.Mode().Perm(), got, tc.want)
					}
				}
			}
			if read < 14 {
				t.Errorf("%d files are mounted; where are the others?", read)
			}
		})
	}
}

// give makes a user the owner of a folder of [testing.T.TempDir], and of the one that it is in.
func give(t *testing.T, path string, user int) {
	t.Helper()
	for _, path := range []string{filepath.Dir(path), path} {
		if err := filepath.WalkDir(path, func(path string, _ os.DirEntry, err error) error {
			return errors.Join(err, os.Lchown(path, user, user))
		}); err != nil {
			t.Fatal(err)
		}
	}
}

// madeFiles are the files in the root that a service reads and git ignores.
func madeFiles(t *testing.T, project *types.Project, s types.ServiceConfig) (files []string) {
	t.Helper()
	var paths []string
	for _, secret := range s.Secrets {
		paths = append(paths, project.Secrets[secret.Source].File)
	}
	for _, v := range s.Volumes {
		if v.Type == types.VolumeTypeBind && filepath.Dir(v.Source) == project.WorkingDir {
			paths = append(paths, v.Source)
		}
	}
	for _, path := range paths {
		file, err := filepath.Rel(project.WorkingDir, path)
		must(t, err)
		files = append(files, file)
	}
	return files
}
