package explain

import (
	"context"

	"carryover/server/pick"
	"carryover/upstream"
	"carryover/upstream/fleet"
)

// lastRead takes of every engine what was read last, and asks none. It implements pick.Asker.
type lastRead struct{}

// Serves implements pick.Asker. Whether an engine takes connections shows in the turn itself.
func (lastRead) Serves(context.Context, *fleet.Engine) *upstream.LegError { return nil }

// Pin implements pick.Asker.
func (lastRead) Pin(_ context.Context, prefill, decode *fleet.Engine, _ bool) (p, d *fleet.Incarnation) {
	return prefill.Last(), decode.Last()
}

// unoccupied tells which of the slots a turn would be given now, and occupies none. It implements pick.Slots.
type unoccupied struct {
	pick.Slots
	fleet *fleet.Fleet
}

// Await implements pick.Slots. It waits for nothing: where all engines are full, the error is upstream.ErrBusy.
func (u unoccupied) Await(_ context.Context, wish pick.Wish) (*fleet.Engine, pick.Slot, error) {
	engine, err := u.fleet.Picker.Predict(wish.Role, wish.Hint, wish.Exclude)
	return engine, pick.Slot{}, err
}

// DecodeOnly implements pick.Slots.
func (u unoccupied) DecodeOnly(client string) (leave func(), ok bool) {
	return func() {}, u.Free(client)
}

// asNamed admits every prefill instance, and adds none to the fleet.
type asNamed struct{}

// Admit implements request.Prefillers.
func (asNamed) Admit(hostPort string) (name string, err error) { return hostPort, nil }
