package lmcache

import (
	"strconv"

	"carryover/sse/rawjson"
)

// Receiver is the address at which the LMCache of a decode instance takes KV: pd_peer_host, pd_peer_init_port, pd_peer_alloc_port and
// pd_peer_query_port of its configuration. Prefill's worker of tensor-parallel rank r uses the r-th port of each list. LMCache looks up
// every value: a missing member or port raises KeyError or IndexError in the engine (vllm_v1_adapter.py, update_state_after_alloc).
type Receiver struct {
	Host       string
	InitPorts  []int
	AllocPorts []int
	QueryPorts []int // with pd_bidirectional only, else nil
}

// params returns the kv_transfer_params of a prefill leg whose KV goes to the receiver. They never have ret_first_tok, which would make
// LMCache name the first token's id in the answer's params: if a request with it is aborted before its first token, the engine ends (an
// IndexError in request_finished, vllm_v1_adapter.py; measured on 0.5.6, sync and async: without it six such requests do no harm).
// Requests can be aborted at any time, by clients that leave and by time limits. return_token_ids gives the same id.
func (r Receiver) params(id string) []byte {
	var spec, params object
	spec.add("req_id", rawjson.Quote(id))
	spec.add("receiver_host", rawjson.Quote(r.Host))
	spec.add("receiver_init_port", ports(r.InitPorts))
	spec.add("receiver_alloc_port", ports(r.AllocPorts))
	if r.QueryPorts != nil {
		spec.add("receiver_query_port", ports(r.QueryPorts))
	}
	params.add("disagg_spec", spec.end())
	params.add(tag, rawjson.Quote(id))
	return params.end()
}

// tag is the member of kv_transfer_params that becomes part of the keys of an attempt's chunks (CacheEngineKey.tags in utils.py; measured
// on LMCache 0.5.6: with it decode loads 600 of 601 ids, with another tag or none it loads no id; older versions ignore it). Only the legs
// of the attempt have the tag, so no other request finds its chunks. This matters because LMCache registers chunks before their bytes have
// come, and if the prefill engine ends meanwhile, such chunks stay for ever. It also keeps tenants apart, because LMCache ignores cache_salt.
const tag = "lmcache.tag.attempt"

// tagged returns the kv_transfer_params with which a leg finds the chunks of an attempt.
func tagged(id string) []byte {
	var params object
	params.add(tag, rawjson.Quote(id))
	return params.end()
}

func ports(list []int) []byte {
	out := []byte{'['}
	for i, port := range list {
		if i > 0 {
			out = append(out, ',')
		}
		out = strconv.AppendInt(out, int64(port), 10)
	}
	return append(out, ']')
}
