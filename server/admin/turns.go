package admin

import (
	"encoding/json"
	"io"
	"net/http"
	"strconv"
	"time"

	"carryover/server/journal"
)

// Ticket is a ticket that is in the store, as far as this replica knows.
type Ticket struct {
	Instance string    `json:"instance"` // the decode instance that holds its blocks
	Tokens   int       `json:"tokens"`   // in whole blocks
	Deadline time.Time `json:"deadline"` // after which it is not used
}

// usualTurns is how many turns are listed if the request gives no number.
const usualTurns = 100

// turns answers GET /admin/turns?limit=N with the records of the last turns, newest first.
func (a *admin) turns(w http.ResponseWriter, r *http.Request) {
	limit := usualTurns
	if asked := r.URL.Query().Get("limit"); asked != "" {
		n, err := strconv.Atoi(asked)
		if err != nil || n < 1 {
			refuseParam(w, http.StatusBadRequest, "limit", "invalid_limit", "limit must be a number from 1 on.")
			return
		}
		limit = n
	}
	answer(w, http.StatusOK, map[string][]journal.TurnRecord{"turns": a.Journal.Recent(limit)})
}

// maxID is the length in bytes of the longest id that a client may send (package request).
const maxID = 512

// search answers POST /admin/conversations/search with the conversations whose turns had a client's id. The id comes in the body, so that no
// log of a proxy has it, and only its keyed hash is compared.
func (a *admin) search(w http.ResponseWriter, r *http.Request) {
	var asked struct{ ID string }
	text, err := io.ReadAll(r.Body)
	if err == nil {
		err = json.Unmarshal(text, &asked)
	}
	if err != nil || asked.ID == "" || len(asked.ID) > maxID {
		refuseParam(w, http.StatusBadRequest, "id", "invalid_id", `The body must be {"id": "…"} with the id that the client sent, of at most 512 bytes.`)
		return
	}
	answer(w, http.StatusOK, map[string][]journal.Named{"conversations": a.Journal.Named(a.HashID(asked.ID))})
}

// conversation answers GET /admin/conversations/{hash}. The answer has the records that are kept of the conversation's turns, newest first,
// and the tickets that this replica has stored for it. The conversation is named as in the log.
func (a *admin) conversation(w http.ResponseWriter, r *http.Request) {
	hash := r.PathValue("hash")
	turns := a.Journal.Conversation(hash)
	tickets := []Ticket{}
	if a.Tickets != nil {
		tickets = a.Tickets(hash)
	}
	if len(turns) == 0 && len(tickets) == 0 {
		refuse(w, http.StatusNotFound, "conversation_not_found", "No turn of this conversation is kept.")
		return
	}
	answer(w, http.StatusOK, struct {
		Conversation string               `json:"conversation"`
		Turns        []journal.TurnRecord `json:"turns"`
		Tickets      []Ticket             `json:"tickets"`
	}{hash, turns, tickets})
}
