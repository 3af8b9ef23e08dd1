package discovery

import (
	"carryover/logtest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"carryover/upstream"
)

// written is a file that a test changes, in synthetic time.
type written struct {
	File
	t   *testing.T
	log *logtest.Log
}

func newWritten(t *testing.T, text string) *written {
	t.Helper()
	f := &written{t: t, log: &logtest.Log{}}
	f.File = File{Path: filepath.Join(t.TempDir(), "instances.yaml"), Logger: f.log.Logger()}
	f.write(text)
	return f
}

func (f *written) write(text string) {
	f.t.Helper()
	must(f.t, os.WriteFile(f.Path, []byte(text), 0o600))
}

// pass lets time pass.
func pass(d time.Duration) {
	<-time.After(d)
	synctest.Wait()
}

const (
	listA  = "decode:\n- url: http://a:80\n"
	listAB = "decode:\n- url: http://a:80\n- url: http://b:80\n"
	listB  = "decode:\n- url: http://b:80\n"
)

func TestFile_FollowsItsContent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newWritten(t, listA)
		w := watch(t, f)
		w.want(t, "a:80")
		f.write("# the same list\n" + listA)
		pass(5 * time.Second)
		w.quiet(t)
		f.write(listAB)
		pass(2200 * time.Millisecond)
		w.want(t, "a:80 b:80")
		// As a ConfigMap is changed: the path leads somewhere else.
		other := filepath.Join(t.TempDir(), "other")
		must(t, os.WriteFile(other, []byte(listB), 0o600))
		must(t, os.Symlink(other, f.Path+".new"))
		must(t, os.Rename(f.Path+".new", f.Path))
		pass(2200 * time.Millisecond)
		w.want(t, "b:80")
	})
}

func TestFile_ABadOneKeepsTheLastList(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newWritten(t, listA)
		w := watch(t, f)
		w.want(t, "a:80")
		f.write("decode:\n- url: a\n")
		pass(time.Minute)
		if got := f.log.Lines("file of instances is wrong"); len(got) != 1 || !strings.Contains(got[0], "instances.yaml: line 2: decode[0].url") {
			t.Errorf("logged %q, want one line with the fault", got)
		}
		f.write("")
		pass(time.Minute)
		if got := f.log.Lines("file of instances is wrong"); len(got) != 2 || !strings.Contains(got[1], "has neither") {
			t.Errorf("logged %q, want a second line", got)
		}
		w.quiet(t)
		f.write(listB)
		pass(3 * time.Second)
		w.want(t, "b:80")
	})
}

func TestFile_OneThatCannotBeReadKeepsTheLastList(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newWritten(t, listA)
		w := watch(t, f)
		w.want(t, "a:80")
		for n, spoil := range []func(){
			func() { _ = os.Remove(f.Path) },
			func() { f.write(strings.Repeat("#", 1<<20+1)) },
		} {
			spoil()
			pass(time.Minute)
			w.quiet(t)
			if got := f.log.Lines("cannot be read"); len(got) != n+1 {
				t.Errorf("logged %q, want %d lines", got, n+1)
			}
			f.write(listA)
			pass(3 * time.Second)
			w.quiet(t)
		}
	})
}

// A file that is written in pieces is used when it has stood still.
func TestFile_AHalfWrittenOneIsNotUsed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newWritten(t, listAB)
		w := watch(t, f)
		w.want(t, "a:80 b:80")
		pass(1990 * time.Millisecond)
		f.write(listA)
		pass(20 * time.Millisecond) // it has been read
		f.write(listA + "- url: http://c:80\n")
		pass(150 * time.Millisecond)
		w.quiet(t)
		pass(100 * time.Millisecond)
		w.want(t, "a:80 c:80")
	})
}

func TestFile_TheFirstReadingFails(t *testing.T) {
	f := newWritten(t, "decode: 1\n")
	missing := File{Path: f.Path + ".missing", Logger: f.Logger}
	for _, tc := range []struct {
		file File
		want string
	}{{f.File, "instances.yaml: line 1: decode: want a list"}, {missing, "instances.yaml.missing: no such file"}} {
		err := tc.file.Watch(t.Context(), func(all []upstream.Instance) { t.Errorf("set(%+v)", all) })
		if err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("Watch = %v, want %s", err, tc.want)
		}
		if all, err := listOf(tc.file); err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("Read = %+v, %v, want %s", all, err, tc.want)
		}
	}
	f.write(listAB)
	if all, err := listOf(f.File); err != nil || names(all) != "a:80 b:80" {
		t.Errorf("Read = %+v, %v", all, err)
	}
}

// listOf returns the instances of the file as it is now.
func listOf(f File) ([]upstream.Instance, error) {
	data, err := f.load()
	if err != nil {
		return nil, err
	}
	return f.parse(data)
}
