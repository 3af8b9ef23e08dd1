package kubernetes

import (
	"encoding/json"
	"fmt"

	"carryover/upstream"
)

// resource is a kind of object that the API server lists and watches, with what makes instances of one.
type resource interface {
	// group and version are those of the API; the core group is empty.
	group() (group, version string)
	// name is that of the resource, in the plural.
	name() string
	// read makes the instances of one object. It fails if data is not one.
	read(data []byte) (object, error)
}

// object is what matters of a pod or slice.
type object struct {
	name      string
	version   string // opaque; that of the event in which the object came
	instances []upstream.Instance
	problem   string // why it has no instances although its labels ask for some; empty if all is well
}

// metadata are the fields of every object's metadata that are needed.
type metadata struct {
	Name              string            `json:"name"`
	ResourceVersion   string            `json:"resourceVersion"`
	Labels            map[string]string `json:"labels"`
	Annotations       map[string]string `json:"annotations"`
	DeletionTimestamp *string           `json:"deletionTimestamp"`
}

// parse reads an object's JSON and requires a name.
func parse(data []byte, into any, meta *metadata) error {
	if err := json.Unmarshal(data, into); err != nil {
		return fmt.Errorf("read object: %w", err)
	}
	if meta.Name == "" {
		return errNameless
	}
	return nil
}
