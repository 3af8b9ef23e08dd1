package rawjson_test

import (
	"bytes"
	"math"
	"slices"
	"strconv"
	"strings"
	"testing"

	"carryover/sse/rawjson"
)

// countInts reads a text that is an array and not empty.
func countInts(raw []byte) (n, end int, ok bool) {
	s := rawjson.Scanner{Data: raw}
	if more, err := s.Open('['); !more || err != nil {
		return 0, 0, false
	}
	n, ok = s.CountInts()
	return n, s.Pos, ok
}

// readInts is how CountInts came to its result when it read each value: the reference for it.
func readInts(raw []byte) (n, end int, ok bool) {
	s := rawjson.Scanner{Data: raw}
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
		s := rawjson.Scanner{Data: list}
		_, _ = s.Open('[')
		_, _, _ = s.ReadIDs(make([]uint32, k))
		at := rawjson.AfterInts(list, k)
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
		var list []byte
		for n := range 3000 {
			list = strconv.AppendInt(append(list, ','), int64(n*7919%most), 10)
		}
		list = append(list, ']')
		list[0] = '['
		if n, end, ok := countInts(list); n != 3000 || end != len(list) || !ok {
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
