package discovery

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"slices"
	"time"

	"carryover/upstream"
)

// File has the instances of a watched file.
//
// It reads the file every two seconds and compares the content. File system notifications would miss changes: a
// ConfigMap is a symlink to a folder that is replaced as a whole, editors write a new file and rename it, and network
// file systems send no notifications.
type File struct {
	Path string
	// Parse reads the content. Its error names the path.
	Parse  func(path string, data []byte) ([]upstream.Instance, error)
	Logger *slog.Logger // learns why a file is not used, once for each content
}

const (
	fileInterval = 2 * time.Second
	// settle is how long a new content must stay unchanged before it is used. A half-written file may be valid YAML.
	settle = 100 * time.Millisecond
	// maxFile is the largest size of a ConfigMap.
	maxFile = 1 << 20
)

func (f File) load() ([]byte, error) {
	file, err := os.Open(f.Path)
	if err != nil {
		return nil, err
	}
	defer func() { _ = file.Close() }()
	data, err := io.ReadAll(io.LimitReader(file, maxFile+1))
	if err == nil && len(data) > maxFile {
		err = fmt.Errorf("%s: more than %d bytes", f.Path, maxFile)
	}
	return data, err
}

// Watch reads the file and sets its list when it has changed, until ctx ends. It fails if the file is missing or
// wrong at first. Later the last good list stays, and the log says why.
func (f File) Watch(ctx context.Context, set func([]upstream.Instance)) error {
	used, err := f.load()
	if err != nil {
		return err
	}
	last, err := f.Parse(f.Path, used)
	if err != nil {
		return err
	}
	set(slices.Clone(last))
	timer := time.NewTimer(fileInterval)
	defer timer.Stop()
	var settling []byte // differs from used, and may be incomplete
	unreadable := false // the last time
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-timer.C:
		}
		timer.Reset(fileInterval)
		data, err := f.load()
		if err != nil && !unreadable {
			f.Logger.Error("the file of instances cannot be read, the last list stays", "error", err)
		}
		unreadable = err != nil
		switch {
		case unreadable || bytes.Equal(data, used):
			settling = nil
			continue
		case settling == nil || !bytes.Equal(data, settling):
			settling = data
			timer.Reset(settle)
			continue
		}
		used, settling = data, nil
		all, err := f.Parse(f.Path, data)
		if err != nil {
			f.Logger.Error("the file of instances is wrong, the last list stays", "error", err)
			continue
		}
		if !slices.Equal(all, last) {
			last = all
			set(slices.Clone(all))
		}
	}
}
