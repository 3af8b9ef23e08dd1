package policies

import (
	"reflect"
	"testing"
)

func TestTurnLines_LeavesOutWhatIsNone(t *testing.T) {
	got := turnLines([]byte(`{"msg":"serving","address":"127.0.0.1:1"}` + "\n" + "no log\n" + `{"msg":"turn","turn":"a","prefill":"p","decode":"d","error":"e"}` + "\n"))
	if want := map[string]turnLine{"a": {Message: "turn", Turn: "a", Prefill: "p", Decode: "d", Error: "e"}}; !reflect.DeepEqual(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}
