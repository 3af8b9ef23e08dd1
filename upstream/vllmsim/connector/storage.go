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

// storage loads the whole chunks of each prompt from a folder, and saves missing ones there. Requests carry no params, and both roles do the
// same. The engine computes chunks that cannot be read.
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
	r.Fill(content[:min(len(content), len(r.Req.Prompt)-1)])
	return nil
}

// Prompted saves the chunks that the folder lacks.
func (s *storage) Prompted(ctx context.Context, r *engine.Run) error {
	content, from := r.Content(), 0
	for _, key := range s.keys(r) {
		part := content[from:key.end]
		from = key.end
		if _, err := os.Stat(s.path(key)); err != nil && s.save(key, part) == nil { // other instances compute a chunk that is not saved
			s.Engine.Count(&s.Engine.Stats.ChunksPushed, 1)
		}
	}
	return context.Cause(ctx)
}

// save writes a chunk so that no reader sees a part of it.
func (s *storage) save(key chunkKey, part []uint64) error {
	file, err := os.CreateTemp(s.Engine.Cfg.Storage.Folder, ".chunk-*")
	if err != nil {
		return err
	}
	err = gob.NewEncoder(file).Encode(part)
	if err = errors.Join(err, file.Close()); err == nil {
		err = os.Rename(file.Name(), s.path(key))
	}
	_ = os.Remove(file.Name()) // the rename has removed this name
	return err
}
