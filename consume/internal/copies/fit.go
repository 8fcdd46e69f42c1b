package copies

import (
	"maps"
	"slices"
)

// Fit removes the largest headers of the producer until the rest has at most room bytes. It returns their names, for
// [Note.Dropped]. Without it, a copy that the broker refuses would be retried for ever. Each header takes overhead
// bytes besides its name and its value.
func Fit(headers map[string]string, room, overhead int) (dropped []string) {
	size := 0
	for name, value := range headers {
		size += len(name) + len(value) + overhead
	}
	names := slices.Sorted(maps.Keys(headers))
	slices.SortStableFunc(names, func(a, b string) int { return len(headers[b]) - len(headers[a]) })
	for _, name := range names {
		if size <= room {
			break
		}
		if Ours(name) && len(headers[name]) <= MaxDetail {
			continue
		}
		size += len(name) + 4 - (len(name) + len(headers[name]) + overhead) // its name goes into Dropped
		delete(headers, name)
		dropped = append(dropped, name)
	}
	return dropped
}
