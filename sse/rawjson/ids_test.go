package rawjson

import (
	"bytes"
	"encoding/json"
	"math"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"
)

func TestEqualIDs_AllocatesNothing(t *testing.T) {
	raw, long := manyIDs(1000)
	if n := testing.AllocsPerRun(10, func() { EqualIDs(raw, long) }); n != 0 {
		t.Errorf("%v allocations, want 0", n)
	}
}

func TestParseIDs_CommasAloneReserveLittle(t *testing.T) {
	raw := bytes.Repeat([]byte(","), 1<<20)
	raw[0], raw[len(raw)-1] = '[', ']'
	s := Scanner{Data: raw}
	if ids, ok := s.IDsInto(nil); ok || cap(ids) > len(raw)/2+1 {
		t.Errorf("commas: ok %t, room for %d ids", ok, cap(ids))
	}
}

// Long lists are read in halves, and passed over eight bytes at a time. One byte that is another, too many or missing counts wherever it is.
func TestParseIDs_LongListsAsEncodingJSON(t *testing.T) {
	var ids []uint32
	for i, widths := 0, []uint32{7, 0, 1234567, 42, 152064, 4294967295, 12345678, 301, 90210, 1000}; i < 56; i++ {
		ids = append(ids, widths[i%len(widths)]/uint32(1+i/len(widths)))
	}
	list := string(AppendIDs(nil, ids))
	check := func(raw string) {
		t.Helper()
		checkParseIDs(t, []byte(raw))
		if valid := json.Valid([]byte(raw)); Valid([]byte(raw)) != valid {
			t.Fatalf("Valid(%s) = %t", raw, !valid)
		}
	}
	check(list)
	for at := range list {
		check(list[:at])
		check(list[:at] + list[at+1:])
		check(list[:at] + strings.Repeat(" ", len(list)) + list[at:]) // moves the middle to here
		check(list[:at] + strings.Repeat(" ", len(list)-2*min(at, len(list)/2-1)) + list[at:])
		check(list[:at] + strings.Repeat(" ", 2*at+1) + list[at:])
		for _, other := range []string{",", "]", "0", "1", " ", "-", "/", "\xb9"} {
			check(list[:at] + other + list[at:])
			check(list[:at] + other + list[at+1:])
		}
	}
	check(strings.ReplaceAll(list, ",", ", "))
	check(strings.ReplaceAll(list, ",", " ,"))
	check("\n" + list + " ")
}

func TestAppendIDs_WritesWhatParseIDsReads(t *testing.T) {
	raw, ids := manyIDs(5000)
	if got := AppendIDs([]byte("x"), ids); string(got) != "x"+string(raw) {
		t.Errorf("got %.60s, want %.60s", got, raw)
	}
	for place := uint64(1); place < 1<<32; place *= 10 {
		for _, digits := range []uint64{1, 2, 5, 9, 10, 11, 19, 99, 101, 909, 999} {
			for _, n := range []uint64{digits*place - 1, digits * place, digits*place + 1} {
				if got, want := string(AppendIDs(nil, []uint32{uint32(n)})), "["+strconv.Itoa(int(uint32(n)))+"]"; got != want {
					t.Fatalf("got %s, want %s", got, want)
				}
			}
		}
	}
	for n := range uint32(200_000) {
		if got, want := string(AppendIDs(nil, []uint32{n})), "["+strconv.Itoa(int(n))+"]"; got != want {
			t.Fatalf("got %s, want %s", got, want)
		}
	}
	if got := string(AppendIDs(nil, nil)); got != "[]" {
		t.Errorf("no ids: got %s, want []", got)
	}
}

// FuzzParseIDs compares with encoding/json, what is given and longer lists that have it at their beginning, at their end and in their
// middle, since those are read in halves.
func FuzzParseIDs(f *testing.F) {
	for _, raw := range []string{
		`[]`, ` [ ] `, `[0]`, `[1,203,4294967295]`, " [\t1 ,\n2,\r\n3 ]\n", `[4294967296]`, `[99999999999999999999999999]`, `[-1]`, `[-0]`, `[+1]`, `[01]`, `[00]`, `[1.0]`,
		`[1e2]`, `["1"]`, `[true]`, `[null]`, `[[1]]`, `[1,]`, `[,1]`, `[1 2]`, `[1,2`, `[1,2]3`, `[1,`, `[`, ``, `null`, `1`, "[1,\v2]",
	} {
		f.Add([]byte(raw))
	}
	padding := strings.Repeat("50,1234567,7,", 30)
	f.Fuzz(func(t *testing.T, raw []byte) {
		checkParseIDs(t, raw)
		if len(raw) > 1 && raw[0] == '[' && raw[len(raw)-1] == ']' {
			inner := string(raw[1 : len(raw)-1])
			checkParseIDs(t, []byte("["+inner+","+padding+"1]"))
			checkParseIDs(t, []byte("["+padding+inner+"]"))
			checkParseIDs(t, []byte("["+padding+inner+","+padding+"1]"))
			checkParseIDs(t, []byte("["+inner+strings.Repeat(" ", 2*len(inner)+300)+"]"))
			checkParseIDs(t, []byte("["+strings.Repeat(" ", 300)+inner+strings.Repeat("\n", 300)+"]"))
		}
	})
}

func checkParseIDs(t *testing.T, raw []byte) {
	t.Helper()
	var reference []*uint32
	want := json.Unmarshal(raw, &reference) == nil && reference != nil && !slices.Contains(reference, nil)
	got, ok := ParseIDs(raw)
	if ok != want {
		t.Fatalf("ParseIDs(%q): ok %t, want %t", raw, ok, want)
	}
	// What is in the room is of no concern, nor how much fits there.
	for _, n := range []int{0, len(got), len(got) + 1, len(raw) + 9} {
		buffer, s := slices.Repeat([]uint32{77}, n), Scanner{Data: raw}
		s.Space()
		again, ok := s.IDsInto(buffer[:n/2])
		if ok = ok && s.End(); ok != want || want && !slices.Equal(again, got) {
			t.Fatalf("IDsInto(%q), room for %d: %v, ok %t, want %v, %t", raw, n, again, ok, got, want)
		}
		if ok && n > len(got) && len(got) > 0 && &again[0] != &buffer[0] {
			t.Fatalf("IDsInto(%q): %d ids do not use the room for %d", raw, len(got), n)
		}
	}
	if !ok {
		return
	}
	if !slices.EqualFunc(got, reference, func(a uint32, b *uint32) bool { return a == *b }) || !EqualIDs(raw, got) {
		t.Fatalf("ParseIDs(%q) = %v", raw, got)
	}
	again := AppendIDs(nil, got)
	if back, ok := ParseIDs(again); !ok || !slices.Equal(back, got) {
		t.Fatalf("%s does not come back", again)
	}
	for i := range got {
		other := slices.Clone(got)
		other[i]++
		if EqualIDs(raw, got[:i]) || EqualIDs(raw, other) || EqualIDs(raw, append(slices.Clone(got), 0)) {
			t.Fatalf("EqualIDs(%q) takes another list", raw)
		}
	}
}

// manyIDs returns n ids of a vocabulary of 152k, and their JSON.
func manyIDs(n int) (raw []byte, ids []uint32) {
	random := rand.New(rand.NewPCG(1, 2))
	for range n {
		ids = append(ids, random.Uint32N(152_000))
	}
	raw, _ = json.Marshal(ids)
	return raw, ids
}

// countInts reads a text that is an array and not empty.
func countInts(raw []byte) (n, end int, ok bool) {
	s := Scanner{Data: raw}
	if more, err := s.Open('['); !more || err != nil {
		return 0, 0, false
	}
	n, ok = s.CountInts()
	return n, s.Pos, ok
}

// readInts is how CountInts came to its result when it read each value: the reference for it.
func readInts(raw []byte) (n, end int, ok bool) {
	s := Scanner{Data: raw}
	if more, err := s.Open('['); !more || err != nil {
		return 0, 0, false
	}
	var buf [512]uint32
	for more := true; more; {
		var read int
		if read, more, ok = s.ReadIDs(buf[:]); !ok || slices.Max(buf[:read]) > math.MaxInt32 {
			return 0, 0, false
		}
		n += read
	}
	return n, s.Pos, true
}

func checkCount(t *testing.T, raw []byte) {
	t.Helper()
	n, end, ok := countInts(raw)
	want, wantEnd, wantOK := readInts(raw)
	if ok != wantOK || ok && (n != want || end != wantEnd) {
		t.Fatalf("CountInts(%q) = %d to %d, %t, want %d to %d, %t", raw, n, end, ok, want, wantEnd, wantOK)
	}
	if !ok {
		return
	}
	list := raw[:end]
	for k := 1; k < n; k++ {
		s := Scanner{Data: list}
		_, _ = s.Open('[')
		_, _, _ = s.ReadIDs(make([]uint32, k))
		at := AfterInts(list, k)
		if got, want := bytes.TrimRight(list[:at], " \t\r\n"), bytes.TrimRight(list[:s.Pos], ", \t\r\n"); list[at] != ',' || !bytes.Equal(got, want) {
			t.Fatalf("the first %d of %q end at %d: got %q, want %q", k, list, at, got, want)
		}
	}
}

// Each list stands at each place of a word, behind ids of all lengths.
func TestCountInts_TakesWhatReadIDsTakes(t *testing.T) {
	for _, element := range []string{
		"0", "1", "00", "01", "10", "7654321", "87654321", "987654321", "999999999", "1000000000", "2147483647", "2147483648",
		"4294967295", "4294967296", "99999999999", "12345678901234567", "-1", "1.0", "1e2", `"1"`, "true", "null", "", " ", " 1", "1 ", "\t1\n", "\v1",
		"[1]", "1 2", "/", ":", "é", "\x80", "\xff", "\x00", ",", "],1",
	} {
		for before := range 18 {
			for _, lead := range []string{"", "1,", "22,", "7654321,", "123456789,", "1, "} {
				head := "[" + strings.Repeat("3,", before) + lead
				for _, tail := range []string{"]", ",5]", ",5,66,777,8888,99999]", ",1234567,1234567,1234567,1234567,123456]x,", "", ","} {
					checkCount(t, []byte(head+element+tail))
				}
			}
		}
	}
}

func TestCountInts_CountsLongLists(t *testing.T) {
	for _, most := range []int{10, 1000, 100_000, 10_000_000, math.MaxInt32} {
		ids := make([]uint32, 3000)
		for n := range ids {
			ids[n] = uint32(n * 7919 % most)
		}
		list := AppendIDs(nil, ids)
		if n, end, ok := countInts(list); n != len(ids) || end != len(list) || !ok {
			t.Errorf("below %d: got %d to %d of %d, %t", most, n, end, len(list), ok)
		}
	}
}

func FuzzCountInts(f *testing.F) {
	f.Add([]byte("[1,22,333,4444,55555,666666,7777777,88888888,999999999,2147483647]"))
	f.Add([]byte("[ 1 , 2 ,\n3 ]]"))
	f.Add([]byte("[123456,1234567,1234567,12345678901234]"))
	f.Fuzz(checkCount)
}
