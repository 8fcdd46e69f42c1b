package main

import "fmt"

const rowFormat = "%-10s %-34s %-36s %10s %7s %7s %7s %9s\n"

func printHead() {
	fmt.Printf(rowFormat, "store", "mode", "way", "ops/s", "× bare", "time ×", "trips", "allocs/op")
}

// print writes a contest's rows. "× bare" is the rate as a share of the first way's, "time ×" the inverse.
func (c *contest) print() {
	for i, w := range c.ways {
		store, mode := c.store, c.mode
		if c.callers > 1 {
			mode = fmt.Sprintf("%s, %d callers", mode, c.callers)
		}
		if i > 0 {
			store, mode = "", ""
		}
		trips := "–"
		if c.trips != nil {
			digits := 1
			if w.size > 1 { // a part of one for each
				digits = 3
			}
			trips = fmt.Sprintf("%.*f", digits, w.tripsPerOp())
		}
		share := w.per(c.ways[0])
		fmt.Printf(rowFormat, store, mode, w.name, thousands(w.rate()),
			fmt.Sprintf("%.2f", share), fmt.Sprintf("%.2f", 1/share), trips, fmt.Sprintf("%.1f", w.allocsPerOp()))
	}
	fmt.Println()
}

func thousands(rate float64) string {
	switch {
	case rate >= 1e6:
		return fmt.Sprintf("%.2f M", rate/1e6)
	case rate >= 1e3:
		return fmt.Sprintf("%.1f k", rate/1e3)
	}
	return fmt.Sprintf("%.0f", rate)
}

// slack is the part of a target that must be reached for it not to count as missed.
const slack = 0.9

// printTargets writes what was promised and what came out, and returns how many were missed.
func printTargets(all []target) (missed int) {
	fmt.Printf("%-66s %-9s %-9s\n", "promised", "target", "measured")
	for _, t := range all {
		got, sign := t.measured(), "≥"
		reached := got >= t.want*slack
		if t.atMost {
			sign, reached = "≤", got <= t.want/slack
		}
		verdict := ""
		if !reached {
			verdict = "  missed"
			missed++
		}
		fmt.Printf("%-66s %s %-7.2f %-7.2f%s\n", t.what, sign, t.want, got, verdict)
	}
	return missed
}
