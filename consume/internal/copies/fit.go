package copies

import (
	"maps"
	"slices"
)

// Fit drops the largest headers of a producer until the rest has at most room bytes, and returns their names, for [Note.Dropped]: a copy
// that the broker refuses would be tried for ever. Each header takes the bytes of its name and its value, and overhead.
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
		size += len(name) + 4 - (len(name) + len(headers[name]) + overhead) // it is noted
		delete(headers, name)
		dropped = append(dropped, name)
	}
	return dropped
}
