package msgpack_test

import (
	"encoding/hex"
	"math"
	"strings"
	"testing"

	"github.com/tinylib/msgp/msgp"

	"carryover/upstream/msgpack"
	"carryover/upstream/zmq/zmtp/zmqtest"
)

// codec is Python's msgpack: it packs what shown spells, and spells what it is sent.
const codec = `
import sys, json, msgpack
sizes = [0, 1, 15, 16, 31, 32, 255, 256, 65535, 65536]
ints = sorted({s * n for n in (1, -1) for p in (0, 4, 5, 7, 8, 15, 16, 31, 32, 62, 63) for s in (2**p - 1, 2**p, 2**p + 1)} | {2**64 - 1, -2**63})
def spell(v):
    if isinstance(v, (bool, float)): return "other"
    if v is None or isinstance(v, (int, str)): return json.dumps(v, ensure_ascii=False)
    if isinstance(v, bytes): return "<" + v.hex() + ">"
    if isinstance(v, list): return "[" + ",".join(map(spell, v)) + "]"
    return "{" + ",".join(spell(k) + ":" + spell(w) for k, w in v.items()) + "}"
values = [None, True, False, 1.5, -0.25, "ä€😀"]
values += [i for i in ints if -2**63 <= i < 2**64]
values += ["x" * n for n in sizes] + [b"\0" * n for n in sizes] + [[1] * n for n in sizes] + [{"k%d" % i: i for i in range(n)} for n in sizes]
values += [[{"type": "BlockStored", "block_hashes": [2**64 - 1, b"\1"], "lora_id": None}, [1.5, ["AllBlocksCleared"]], {"a": {"b": {"c": []}}}]]
for v in values:
    print(msgpack.packb(v).hex(), spell(v))
print("end")
for line in sys.stdin:
    print(spell(msgpack.unpackb(bytes.fromhex(line), strict_map_key=False)))
`

// Another library's bytes are read as what they are, and ours are read by it.
func TestMsgpack_AgreesWithPythons(t *testing.T) {
	python := zmqtest.Start(t, codec)
	count := 0
	for line := python.Line(); line != "end"; line = python.Line() {
		digits, want, _ := strings.Cut(line, " ")
		wantShown(t, bytesOf(t, digits), want)
		count++
	}
	if count < 100 {
		t.Errorf("got %d values, want more", count)
	}
	for _, message := range ours() {
		want, err := shown(msgpack.NewReader(message))
		if err != nil {
			t.Fatalf("%x: %v", message, err)
		}
		python.Say(hex.EncodeToString(message))
		python.Want(want)
	}
}

// ours are messages that are appended at the bounds of every form.
func ours() [][]byte {
	messages := [][]byte{
		msgp.AppendNil(nil), msgp.AppendBool(nil, true), msgp.AppendBool(nil, false), msgp.AppendFloat64(nil, -2.5),
		msgp.AppendString(msgp.AppendString(msgp.AppendMapHeader(nil, 1), "type"), "ProxyNotif"),
	}
	for power := range 64 {
		for _, v := range []uint64{1<<power - 1, 1 << power, 1<<power + 1} {
			messages = append(messages, msgp.AppendUint64(nil, v), msgp.AppendInt64(nil, int64(v)), msgp.AppendInt64(nil, -int64(v)))
		}
	}
	messages = append(messages, msgp.AppendUint64(nil, math.MaxUint64), msgp.AppendInt64(nil, math.MinInt64))
	for _, n := range []int{0, 1, 15, 16, 31, 32, 255, 256, 65535, 65536} {
		text := strings.Repeat("x", n)
		array, entries := msgp.AppendArrayHeader(nil, uint32(n)), msgp.AppendMapHeader(nil, uint32(n))
		for i := range n {
			array = msgp.AppendNil(array)
			entries = msgp.AppendNil(msgp.AppendString(entries, "k"+strings.Repeat("k", i%2)+hex.EncodeToString([]byte{byte(i >> 16), byte(i >> 8), byte(i)})))
		}
		messages = append(messages, msgp.AppendString(nil, text), msgp.AppendBytes(nil, []byte(text)), array, entries)
	}
	return messages
}
