package kvevents

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"

	"carryover/upstream/msgpack"
)

const (
	nameStored  = "BlockStored"
	nameRemoved = "BlockRemoved"
	nameCleared = "AllBlocksCleared"
)

var errBatch = errors.New("malformed batch of KV events")

type event struct {
	name     string
	blocks   Blocks
	medium   string
	locality string
	group    uint64
}

func (e *event) reset() {
	b := &e.blocks
	*e = event{blocks: Blocks{Root: true, Hashes: b.Hashes[:0], Tokens: b.Tokens[:0]}}
}

// decoder decodes batches. Its lists are reused for the next one.
type decoder struct {
	r     *msgpack.Reader
	event event
}

// batch passes the events of a batch to a sink. After an error the sink may have some of them.
func (d *decoder) batch(payload []byte, sink Sink) error {
	d.r = msgpack.NewReader(payload)
	events := false
	err := d.r.Array(func(i int) error {
		if i != 1 {
			return nil // when and by which rank it was published
		}
		events = true
		return d.r.Array(func(int) error {
			d.event.reset()
			if err := d.r.Map(func(key string) error { return d.member(key) }); err != nil {
				return err
			}
			d.event.tell(sink)
			return nil
		})
	})
	switch {
	case err != nil:
		return fmt.Errorf("%w: %w", errBatch, err)
	case !events || d.r.Len() > 0:
		return errBatch
	}
	return nil
}

// member parses one member, or leaves it to be skipped. nil counts as absent.
func (d *decoder) member(name string) (err error) {
	e, b := &d.event, &d.event.blocks
	if d.r.Nil() {
		return nil
	}
	switch name {
	case "type":
		e.name, err = d.r.Text()
	case "block_hashes":
		b.Hashes = b.Hashes[:0] // a map may have it twice
		return d.r.Array(func(int) error {
			hash, err := d.hash()
			b.Hashes = append(b.Hashes, hash)
			return err
		})
	case "parent_block_hash":
		b.Root = false
		b.Parent, err = d.hash()
	case "token_ids":
		b.Tokens = b.Tokens[:0]
		return d.r.Array(func(int) error {
			id, err := d.r.Uint()
			if id > math.MaxUint32 {
				return errBatch
			}
			b.Tokens = append(b.Tokens, uint32(id))
			return err
		})
	case "block_size":
		var size uint64
		size, err = d.r.Uint()
		b.Size = int(min(size, math.MaxInt32))
	case "medium":
		e.medium, err = d.r.Text()
	case "lora_name":
		b.Adapter, err = d.r.Text()
	case "extra_keys":
		err = d.extra()
	case "group_idx":
		e.group, err = d.r.Uint()
	case "locality":
		e.locality, err = d.r.Text()
	}
	return err
}

func (d *decoder) hash() (hash uint64, err error) {
	if d.r.Kind() == msgpack.Int {
		return d.r.Uint()
	}
	raw, err := d.r.Bytes()
	if err != nil {
		return 0, err
	}
	for _, b := range raw[max(0, len(raw)-8):] {
		hash = hash<<8 | uint64(b)
	}
	return hash, nil
}

// extra collects the texts among extra_keys: for each block a list, or nil. Inner lists are images, with their
// position.
func (d *decoder) extra() error {
	var all []string
	some := false
	err := d.r.Array(func(int) error {
		var texts []string
		if !d.r.Nil() {
			if err := d.texts(&texts); err != nil {
				return err
			}
		}
		texts = slices.DeleteFunc(texts, func(text string) bool { return text == d.event.blocks.Adapter })
		some = some || len(texts) > 0
		all = append(all, strings.Join(texts, "\xff")) // which is in no UTF-8
		return nil
	})
	if some {
		d.event.blocks.Extra = all
	}
	return err
}

func (d *decoder) texts(into *[]string) error {
	return d.r.Array(func(int) error {
		switch d.r.Kind() {
		case msgpack.Array:
			return d.texts(into)
		case msgpack.String:
			text, err := d.r.Text()
			*into = append(*into, text)
			return err
		}
		return nil
	})
}

// mediumGPU is the medium of the blocks that requests compute with, whatever the device (measured on a CPU, vLLM
// 0.32). Blocks on other media are offloaded.
const mediumGPU = "GPU"

// localityRemote is the locality of blocks that another engine stores.
const localityRemote = "REMOTE"

// tell passes the event to a sink if it concerns the engine's own cache. In a model with several groups of layers
// the first group stands for all: each has its own blocks and events.
func (e *event) tell(sink Sink) {
	if e.name == nameCleared {
		sink.Started()
		return
	}
	own := (e.medium == "" || e.medium == mediumGPU) && e.locality != localityRemote && e.group == 0
	if !own || len(e.blocks.Hashes) == 0 {
		return
	}
	switch e.name {
	case nameStored:
		if e.blocks.whole() {
			sink.Stored(e.blocks)
		}
	case nameRemoved:
		sink.Removed(e.blocks.Hashes)
	}
}

// whole reports whether it is known which tokens belong to which block. Groups of sliding-window layers leave blocks
// out.
func (b *Blocks) whole() bool {
	return b.Size > 0 && len(b.Tokens)%b.Size == 0 && len(b.Tokens)/b.Size == len(b.Hashes) &&
		(b.Extra == nil || len(b.Extra) == len(b.Hashes))
}
