package everonce

import (
	"reflect"
	"slices"
)

// clashing returns the places of the fields of a struct that JSON leaves out because another has their name at the same depth. A name
// that a field nearer to the struct has is that one's, as in Go, and no clash.
func clashing(t reflect.Type) [][]int { return clashes.ask(t, findClashing) }

// spread is a struct whose fields JSON writes as those of the one around it.
type spread struct {
	t     reflect.Type
	index []int
}

// namedField is a field by the name that it has in JSON.
type namedField struct {
	index  []int
	tagged bool
}

func findClashing(t reflect.Type) (clashing [][]int) {
	taken, seen := make(map[string]bool), make(map[reflect.Type]bool)
	for level := []spread{{t: t}}; len(level) > 0; {
		var deeper []spread
		byName := make(map[string][]namedField)
		for _, s := range level {
			for i := range s.t.NumField() {
				f := s.t.Field(i)
				name, tagged := nameOf(f)
				switch index := append(slices.Clone(s.index), i); {
				case !isSaid(f) || taken[name] && !isSpread(f):
				case !isSpread(f):
					byName[name] = append(byName[name], namedField{index, tagged})
				case !seen[pointed(f.Type)]:
					deeper = append(deeper, spread{pointed(f.Type), index})
				}
			}
		}
		for _, s := range level {
			seen[s.t] = true
		}
		for name, fields := range byName {
			taken[name] = true
			clashing = append(clashing, losers(fields)...)
		}
		level = deeper
	}
	return clashing
}

// losers are all fields of one name and depth but the one that JSON writes: the only one there is, or the only one that a tag has
// given the name.
func losers(fields []namedField) (lost [][]int) {
	tags := 0
	for _, f := range fields {
		if f.tagged {
			tags++
		}
	}
	for _, f := range fields {
		if wins := len(fields) == 1 || f.tagged && tags == 1; !wins {
			lost = append(lost, f.index)
		}
	}
	return lost
}
