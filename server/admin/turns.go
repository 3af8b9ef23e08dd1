package admin

import (
	"encoding/json"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"carryover/server/journal"
)

// Ticket is a ticket in the store, as far as this replica knows.
type Ticket struct {
	Instance string    `json:"instance"` // the decode instance that holds its blocks
	Tokens   int       `json:"tokens"`   // in whole blocks
	Deadline time.Time `json:"deadline"` // after which it is not used
}

const usualTurns = 100

// filter returns the condition of a parameter, nil for a wrong value. takes describes right values, "" for an unknown parameter.
func (a *admin) filter(name, value string) (wants func(*journal.TurnRecord) bool, takes string) {
	switch name {
	case "failed":
		if value == "true" || value == "false" {
			wants = func(r *journal.TurnRecord) bool { return r.Failed() == (value == "true") }
		}
		return wants, "true or false"
	case "status":
		least, err := strconv.Atoi(strings.Replace(value, "xx", "00", 1))
		if most := least; err == nil && len(value) == 3 && least >= 100 && least < 600 {
			if strings.HasSuffix(value, "xx") {
				most += 99
			}
			wants = func(r *journal.TurnRecord) bool { return r.Status >= least && r.Status <= most }
		}
		return wants, "a status such as 502 or a class such as 5xx"
	case "instance":
		served := func(r *journal.TurnRecord) bool { return value == r.Prefill || value == r.Decode || value == r.Blame }
		if value != "" && (slices.ContainsFunc(a.instances(), func(i instance) bool { return i.Name == value }) || len(a.Journal.Recent(1, served)) > 0) {
			wants = served
		}
		return wants, "the name of an instance that GET /admin/instances lists or a kept turn has"
	case "since", "until":
		at, err := time.Parse(time.RFC3339, value)
		if ago, none := time.ParseDuration(value); none == nil {
			at, err = time.Now().Add(-ago), nil
		}
		if err == nil {
			wants = func(r *journal.TurnRecord) bool { return r.Ended().Before(at) == (name == "until") }
		}
		return wants, "how long ago the turn ended, such as 15m, or a time such as 2026-01-31T12:00:00Z"
	}
	return nil, ""
}

// turns returns the newest first.
func (a *admin) turns(w http.ResponseWriter, r *http.Request) {
	limit, all := usualTurns, []func(*journal.TurnRecord) bool{}
	for name, values := range r.URL.Query() {
		for _, value := range values {
			n, err := strconv.Atoi(value)
			wants, takes := a.filter(name, value)
			switch {
			case name == "limit" && err == nil && n > 0:
				limit = n
			case name == "limit":
				refuseParam(w, http.StatusBadRequest, name, "invalid_limit", "limit must be a whole number above 0.")
				return
			case takes == "":
				refuseParam(w, http.StatusBadRequest, name, "unknown_parameter", "The parameters are limit, failed, status, instance, since and until.")
				return
			case wants == nil:
				refuseParam(w, http.StatusBadRequest, name, "invalid_"+name, name+" must be "+takes+".")
				return
			default:
				all = append(all, wants)
			}
		}
	}
	answer(w, http.StatusOK, map[string][]journal.TurnRecord{"turns": a.Journal.Recent(limit, all...)})
}

// maxID bounds a client's id in bytes (package request).
const maxID = 512

// search takes the id in the body, so that no log of a proxy has it, and compares only its keyed hash.
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

// conversation answers with the journal's records of a conversation's turns, newest first, and this replica's tickets for it.
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
