package convcache

// clientIDVersion begins the input of the keyed hash of a client's id.
const clientIDVersion byte = 10

// ClientID is the keyed hash of an id by which a client names its conversation: enough to find the id's turns again, too little to
// guess the id without the secret. It is equal for all tenants and models, and is the key of nothing. The zero value stands for no id.
type ClientID [8]byte

// ClientID returns the keyed hash of an id.
func (s Secret) ClientID(id string) (hash ClientID) {
	sum := s.hashed(clientIDVersion, id)
	copy(hash[:], sum[:])
	return hash
}
