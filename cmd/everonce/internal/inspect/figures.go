package inspect

import (
	"fmt"
	"io"
	"text/tabwriter"
	"time"

	"github.com/everonce/everonce/backlog"
)

// Figures are the figures of a table, as JSON.
type Figures struct {
	Waiting int `json:"waiting"`
	InHand  int `json:"in_hand"`
	Delayed int `json:"delayed"`
	Blocked int `json:"blocked"`
	Dead    int `json:"dead"`
	// Lag is the age of the oldest that is due and not done.
	Lag float64 `json:"lag_seconds"`
	// Types counts an inbox's waiting messages by type.
	Types []TypeFigures `json:"types,omitempty"`
}

// TypeFigures are the figures of one type of message in an inbox: see [backlog.KindStats].
type TypeFigures struct {
	Type       string  `json:"type"`
	Waiting    int     `json:"waiting"`
	Untried    int     `json:"untried"`
	UntriedFor float64 `json:"untried_seconds"`
}

// FiguresOf returns the figures of a table, and of its kinds if they are asked for.
func FiguresOf(s backlog.Stats, kinds []backlog.KindStats) *Figures {
	f := &Figures{Waiting: s.Waiting, InHand: s.InHand, Delayed: s.Delayed, Blocked: s.Blocked, Dead: s.Dead, Lag: s.Lag.Seconds()}
	for _, k := range kinds {
		f.Types = append(f.Types, TypeFigures{k.Kind, k.Waiting, k.Untried, k.UntriedFor.Seconds()})
	}
	return f
}

// WriteFigures writes figures, a line for each, and a table of the types.
func WriteFigures(out io.Writer, f *Figures) error {
	duration := func(seconds float64) time.Duration {
		return time.Duration(seconds * float64(time.Second)).Round(time.Millisecond)
	}
	_, err := fmt.Fprintf(out, "waiting  %d\nin hand  %d\ndelayed  %d\nblocked  %d\ndead     %d\nlag      %v\n",
		f.Waiting, f.InHand, f.Delayed, f.Blocked, f.Dead, duration(f.Lag))
	if err != nil || len(f.Types) == 0 {
		return err
	}
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprint(w, "\nTYPE\tWAITING\tNEVER TRIED\tFOR\n")
	for _, t := range f.Types {
		fmt.Fprintf(w, "%s\t%d\t%d\t%v\n", printable(t.Type), t.Waiting, t.Untried, duration(t.UntriedFor))
	}
	return w.Flush()
}
