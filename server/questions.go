package server

import (
	"net/http"

	"carryover/server/admission"
	"carryover/server/apierror"
	"carryover/server/record"
	"carryover/server/request"
	"carryover/upstream/body"
	"carryover/upstream/fleet"
)

// questions answers what clients ask of engines besides turns: which models there are, and how many tokens a prompt has. Where an engine has
// to be asked, a question occupies a slot as a turn does.
type questions struct {
	fleet    *fleet.Fleet
	legs     Legs
	requests *request.Reader
	slots    *admission.Slots
	errors   *apierror.Mapper
	judged   bool // engines judge the credentials of clients
}

// failed answers a failed request that is not a turn. If the client has left, the connection is aborted, because a client that has
// only closed its sending side would otherwise get an empty 200.
func (q *questions) failed(w http.ResponseWriter, api body.API, err error) {
	known := q.errors.Map(err)
	if known.Status == record.StatusClientGone {
		panic(http.ErrAbortHandler)
	}
	known.Write(w, api)
}
