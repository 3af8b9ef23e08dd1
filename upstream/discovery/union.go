package discovery

import "carryover/upstream"

// clash is an instance that is not used as its source gives it, because an earlier one of the same role has its name
// or address.
type clash struct {
	role            upstream.Role
	instance, first string // name and address
	becomes         string // the name that the instance gets, "nothing" if it does not count
}

// unite returns the instances of all lists in order, each address and each name once within a role. Of equal addresses
// the first counts. An instance whose name is taken by another address gets its address as its name. The union is
// never nil.
func unite(lists [][]upstream.Instance) (union []upstream.Instance, clashes []clash) {
	type named struct {
		role upstream.Role
		name string
	}
	total := 0
	for _, list := range lists {
		total += len(list)
	}
	union = make([]upstream.Instance, 0, total)
	locations, names := make(map[location]int, total), make(map[named]int, total) // the instance of the union
	for _, list := range lists {
		for _, instance := range list {
			at := locationOf(instance)
			c := clash{role: instance.Role, instance: described(instance), becomes: "nothing"}
			first, taken := locations[at]
			if !taken {
				if first, taken = names[named{instance.Role, instance.Name}]; taken {
					instance.Name = at.address()
					if _, also := names[named{instance.Role, instance.Name}]; !also {
						c.becomes = instance.Name
					}
				}
			}
			if taken {
				c.first = described(union[first])
				clashes = append(clashes, c)
				if c.becomes == "nothing" {
					continue
				}
			}
			locations[at], names[named{instance.Role, instance.Name}] = len(union), len(union)
			union = append(union, instance)
		}
	}
	return union, clashes
}

func described(i upstream.Instance) string { return i.Name + " at " + locationOf(i).address() }
