package vllmsim

import (
	"bytes"
	"context"
	"encoding/gob"
	"errors"
	"fmt"
	"os"
	"path/filepath"
)

// storage loads the whole chunks of each prompt that are in the folder and saves those that are missing. Requests carry no params, and
// both roles do the same. The engine computes chunks that cannot be read.
type storage struct{ idle }

func (s *storage) keys(r *run) []chunkKey {
	return chunkKeys(r.req.seed, r.req.prompt, s.engine.cfg.Storage.ChunkSize, false)
}

func (s *storage) path(key chunkKey) string {
	return filepath.Join(s.engine.cfg.Storage.Folder, fmt.Sprintf("%016x", key.hash))
}

// fetch loads the chunks behind the own prefix cache. The last token is always computed.
func (s *storage) fetch(_ context.Context, r *run) error {
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
	e, loaded := r.engine, min(len(content), len(r.req.prompt)-1)
	e.mu.Lock()
	defer e.mu.Unlock()
	if loaded <= r.local {
		return nil
	}
	for i := r.local; i < loaded; i++ {
		*e.pool.Slot(r.blocks, i) = content[i]
	}
	r.external = loaded - r.local
	e.stats.Loads++
	return nil
}

// prompted saves the chunks that the folder lacks.
func (s *storage) prompted(ctx context.Context, r *run) error {
	from := 0
	for _, key := range s.keys(r) {
		if _, err := os.Stat(s.path(key)); err == nil {
			from = key.end
			continue
		}
		part := make([]uint64, 0, key.end-from)
		s.engine.mu.Lock()
		for ; from < key.end; from++ {
			part = append(part, *s.engine.pool.Slot(r.blocks, from))
		}
		s.engine.mu.Unlock()
		if s.save(key, part) == nil { // others compute a chunk that is not saved
			s.engine.count(func(n *Stats) { n.ChunksPushed++ })
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
	file, err := os.CreateTemp(s.engine.cfg.Storage.Folder, ".chunk-*")
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
