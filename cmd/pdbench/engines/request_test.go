package engines

import (
	"hash/maphash"
	"testing"
)

// FuzzRequest reads any bytes as a request: none makes it panic.
func FuzzRequest(f *testing.F) {
	f.Add([]byte(`{"messages":[{"role":"user","content":"a \"b\" \\"}],"stream":true,"n":[[1,2],[3]],"x":null , "y" : -1.5e+3}`))
	f.Add([]byte(chat(question, streamed+`,"return_token_ids":true,"kv_transfer_params":{"do_remote_prefill":true}`)))
	f.Fuzz(func(t *testing.T, text []byte) {
		var r chatRequest
		_ = r.read(maphash.MakeSeed(), text)
	})
}
