package turn

import (
	"errors"
	"log/slog"
	"net/http"
	"time"

	"carryover/server/admission"
	"carryover/server/request"
	"carryover/server/reuse"
)

// intake reads the requests of turns, gets the turns their slots, and begins their proofs. It needs neither an engine nor the store.
type intake struct {
	requests *request.Reader
	prover   *reuse.Prover
	names    request.ClientNames
	logger   *slog.Logger
	slots    *admission.Slots
}

// take reads a request into its turn, and gets the turn a slot.
func (i *intake) take(w http.ResponseWriter, r *http.Request, t *turn) error {
	client := i.names.Address(r)
	t.record.From(client, "")
	tenant, err := i.requests.Tenant(r)
	if err != nil {
		return err
	}
	t.record.From(client, i.names.Tenant(tenant))
	t.share = i.requests.Reserve(r, tenant)
	raw, err := i.requests.Receive(w, r, &t.share, func() (err error) {
		var waited time.Duration
		t.lease, waited, err = i.slots.Take(r.Context(), t.share.Account)
		t.record.Waited(waited, err == nil)
		return err
	})
	if err != nil {
		return err
	}
	t.Request, t.body, err = i.requests.Understand(r, t.API, tenant, raw, &t.share)
	if err != nil {
		var wrong *request.Error
		if errors.As(err, &wrong) && wrong.Cause != nil {
			i.logger.Warn("request names a prefill instance that is not permitted", "turn", t.record.ID(), "error", wrong.Cause)
		}
		return err
	}
	t.proving = i.prover.Begin(&t.Request, t.body, &t.record)
	return nil
}

// dropBody frees the request's body and its ids, and gives back the turn's reserved bytes except those that the end of the stream needs. It
// is called when decode answers and no attempt can follow, so that a stream of minutes does not hold its prompt.
func (t *turn) dropBody() {
	t.body, t.chain = nil, nil
	t.proving.Drop()
	t.share.ShrinkTo(t.proving.Bytes() + t.lookup.Bytes())
}
