package vllmsim

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"testing"
)

// FuzzNotifier_PeerSaysAnything has a peer answer a handshake, and go on, with any bytes: it ends with them.
func FuzzNotifier_PeerSaysAnything(f *testing.F) {
	greeting := append([]byte("\xff\x00\x00\x00\x00\x00\x00\x00\x01\x7f\x03\x00NULL"), make([]byte, 48)...)
	ready := frameOf(frameCommand, []byte("\x05READY\x0bSocket-Type\x00\x00\x00\x04PULL"))
	f.Add([]byte{})
	f.Add(greeting)
	f.Add(append(bytes.Clone(greeting), ready...))
	f.Add(append(append(bytes.Clone(greeting), ready...), frameOf(frameCommand, []byte("\x04PING\x00\x00context"))...))
	f.Add(append(bytes.Clone(greeting), frameCommand|frameLong, 0x7f, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff))
	f.Fuzz(func(t *testing.T, said []byte) {
		in := bytes.NewReader(said)
		err := shakeHands(struct {
			io.Reader
			io.Writer
		}{in, io.Discard})
		if err == nil && len(said) < len(greeting)+len(ready) {
			t.Errorf("a handshake of %d bytes was accepted", len(said))
		}
		for err == nil {
			var body []byte
			if _, body, err = readFrame(in); len(body) > longestFrame {
				t.Errorf("a frame of %d bytes was read", len(body))
			}
		}
	})
}

// FuzzDisaggSpec_IsWholeOrNone reads any params: what is taken for a spec has all its members.
func FuzzDisaggSpec_IsWholeOrNone(f *testing.F) {
	f.Add([]byte(`{"ret_first_tok":true,"disagg_spec":{"req_id":"a","receiver_host":"127.0.0.1","receiver_init_port":[1],"receiver_alloc_port":[2]}}`))
	f.Add([]byte(`{"disagg_spec":{"req_id":"a","receiver_host":"h","receiver_init_port":1,"receiver_alloc_port":[2]}}`))
	f.Add([]byte(`{"disagg_spec":null}`))
	f.Add([]byte(`{"ret_first_tok":false}`))
	f.Fuzz(func(t *testing.T, raw []byte) {
		p, err := parseParams(raw)
		if err != nil {
			return
		}
		spec, err := p.disagg()
		switch {
		case errors.Is(err, errNoSpec), errors.Is(err, errBadSpec):
		case err != nil:
			t.Errorf("%s: %v", raw, err)
		default:
			var given struct {
				Spec map[string]json.RawMessage `json:"disagg_spec"`
			}
			if err := json.Unmarshal(raw, &given); err == nil && (given.Spec["req_id"] == nil || given.Spec["receiver_alloc_port"] == nil) {
				t.Errorf("%s: read as %+v", raw, spec)
			}
		}
	})
}
