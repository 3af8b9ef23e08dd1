package connector

import (
	"bytes"
	"context"
	"encoding/gob"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"carryover/upstream/vllmsim/engine"
)

// storage loads the whole chunks of each prompt that are in the folder and saves those that are missing. Requests carry no params, and
// both roles do the same. The engine computes chunks that cannot be read.
type storage struct{ engine.Idle }

func (s *storage) keys(r *engine.Run) []chunkKey {
	return chunkKeys(r.Req.Seed, r.Req.Prompt, s.Engine.Cfg.Storage.ChunkSize, false)
}

func (s *storage) path(key chunkKey) string {
	return filepath.Join(s.Engine.Cfg.Storage.Folder, fmt.Sprintf("%016x", key.hash))
}

// Fetch loads the chunks behind the own prefix cache. The last token is always computed.
func (s *storage) Fetch(_ context.Context, r *engine.Run) error {
	var content []uint64
	for _, key := range s.keys(r) {
		raw, err := os.ReadFile(s.path(key))
		if err != nil {
			break
		}
		var part []uint64
		if gob.NewDecoder(bytes.NewReader(raw)).Decode(&part) != nil || len(content)+len(part) != key.end {
			break
		}
		content = append(content, part...)
	}
	e, loaded := r.Engine, min(len(content), len(r.Req.Prompt)-1)
	e.Mu.Lock()
	defer e.Mu.Unlock()
	if loaded <= r.Local {
		return nil
	}
	for i := r.Local; i < loaded; i++ {
		*e.Pool.Slot(r.Blocks, i) = content[i]
	}
	r.External = loaded - r.Local
	e.Stats.Loads++
	return nil
}

// Prompted saves the chunks that the folder lacks.
func (s *storage) Prompted(ctx context.Context, r *engine.Run) error {
	from := 0
	for _, key := range s.keys(r) {
		if _, err := os.Stat(s.path(key)); err == nil {
			from = key.end
			continue
		}
		part := make([]uint64, 0, key.end-from)
		s.Engine.Mu.Lock()
		for ; from < key.end; from++ {
			part = append(part, *s.Engine.Pool.Slot(r.Blocks, from))
		}
		s.Engine.Mu.Unlock()
		if s.save(key, part) == nil { // others compute a chunk that is not saved
			s.Engine.Count(func(n *engine.Stats) { n.ChunksPushed++ })
		}
	}
	return context.Cause(ctx)
}

// save writes a chunk so that no reader sees a part of it.
func (s *storage) save(key chunkKey, part []uint64) error {
	var raw bytes.Buffer
	if err := gob.NewEncoder(&raw).Encode(part); err != nil {
		return fmt.Errorf("encode chunk: %w", err)
	}
	file, err := os.CreateTemp(s.Engine.Cfg.Storage.Folder, ".chunk-*")
	if err != nil {
		return fmt.Errorf("save chunk: %w", err)
	}
	_, err = file.Write(raw.Bytes())
	if err = errors.Join(err, file.Close()); err == nil {
		err = os.Rename(file.Name(), s.path(key))
	}
	if err != nil {
		return errors.Join(fmt.Errorf("save chunk: %w", err), os.Remove(file.Name()))
	}
	return nil
}
