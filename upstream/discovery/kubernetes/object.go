package kubernetes

import (
	"encoding/json"
	"fmt"

	"carryover/upstream"
)

// resource is a kind of object that the API server lists and watches. It makes instances from objects.
type resource interface {
	// group returns the API's group and version; the core group is empty.
	group() (group, version string)
	// name returns the name of the resource, in the plural.
	name() string
	// read makes the instances of one object. It fails if data is not such an object.
	read(data []byte) (object, error)
}

// object has the parts of a pod or slice that matter here.
type object struct {
	name      string
	version   string // opaque; version of the event in which the object came
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
