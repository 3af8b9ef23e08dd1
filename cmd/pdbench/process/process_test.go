package process

import (
	"context"
	"errors"
	"io"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestStart_SaysWhyThereIsNoProcess(t *testing.T) {
	log := filepath.Join(t.TempDir(), "log")
	if _, err := Start(t.Context(), Command{Name: "x", Log: log, Binary: "/does/not/exist"}); err == nil {
		t.Error("started")
	}
	var line string
	_, err := Start(t.Context(), Command{Name: "x", Log: log, Binary: "/bin/sh", Arguments: []string{"-c", "echo no room >&2"}, FirstLine: &line})
	if err == nil || !errors.Is(err, io.EOF) || !strings.Contains(err.Error(), "no room") {
		t.Errorf("one that says nothing: %v", err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	never := func(context.Context) error { return errors.New("not yet") }
	_, err = Start(ctx, Command{Name: "x", Log: log, Binary: "/bin/sh", Arguments: []string{"-c", "exec sleep 60"}, Ready: never})
	if err == nil || !strings.Contains(err.Error(), "not yet") {
		t.Errorf("one that never is ready: %v", err)
	}
}
