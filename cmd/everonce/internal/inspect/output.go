package inspect

import (
	"fmt"
	"io"
	"regexp"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/everonce/everonce/driver"
)

// printable returns a name that somebody else chose, as a terminal may show it.
func printable(s string) string {
	if s == "" {
		return "-"
	}
	// A byte that is not UTF-8 is read as a rune that can be shown, and to some terminals begins a command.
	if !utf8.ValidString(s) || strings.IndexFunc(s, func(r rune) bool { return !unicode.IsGraphic(r) }) >= 0 {
		return strconv.QuoteToGraphic(s)
	}
	return s
}

// plainWord is what a shell takes for one word, and for nothing else.
var plainWord = regexp.MustCompile(`^[A-Za-z0-9_./:@%+=-]+$`)

// Word quotes a text that somebody else chose, so that a shell takes it for one word of a command.
func Word(s string) string {
	if s = printable(s); plainWord.MatchString(s) {
		return s
	}
	return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
}

// stamp is a time of the store's, and how far it is from now.
func stamp(t, now time.Time) string {
	if t.IsZero() {
		return "-"
	}
	d := now.Sub(t)
	unit := time.Millisecond
	if d.Abs() >= time.Minute {
		unit = time.Second
	}
	at := t.UTC().Format(time.RFC3339)
	if d >= 0 {
		return fmt.Sprintf("%s (%v ago)", at, d.Round(unit))
	}
	return fmt.Sprintf("%s (in %v)", at, (-d).Round(unit))
}

// WriteList writes records as a table.
func WriteList(out io.Writer, records []Record) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "SCOPE\tID\tSTATE\tATTEMPT\tOWNER\tUPDATED\tRECORD")
	for i := range records {
		r := &records[i]
		state := r.State
		if r.UnknownStep != "" {
			state += " (" + printable(r.UnknownStep) + ")"
		}
		updated := "-"
		if !r.UpdatedAt.IsZero() { // as in what a newer version wrote
			updated = r.UpdatedAt.UTC().Format(time.RFC3339)
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%d\t%s\t%s\t%s\n", printable(string(r.Scope)), printable(r.ID), state, r.Attempt, printable(r.Owner), updated, r.Record)
	}
	return w.Flush()
}

// WriteRecord writes one record, a line for each thing that is known.
func WriteRecord(out io.Writer, r *Record, now time.Time) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	line := func(name, value string) {
		if value != "" && value != "-" {
			fmt.Fprintf(w, "%s\t%s\n", name, value)
		}
	}
	line("scope", printable(string(r.Scope)))
	line("id", printable(r.ID))
	line("record", r.Record)
	line("key hash", r.Key)
	line("state", r.State)
	line("unknown step", printable(r.UnknownStep))
	line("attempt", fmt.Sprintf("%d, by %s, token %d", r.Attempt, printable(r.Owner), r.Token))
	line("claimed", stamp(r.ClaimedAt, now))
	line("lease until", stamp(r.LeaseUntil, now))
	line("last error", printable(r.LastError))
	if p := r.Previous; p != nil {
		line("claim found", fmt.Sprintf("%s, by %s, claimed %s", p.State, printable(p.Owner), stamp(p.ClaimedAt, now)))
	}
	if f := r.Fingerprint; f != nil {
		line("fingerprint", printable(f.Alg)+" "+f.Sum)
	}
	line("result", resultText(r.Result))
	line("created", stamp(r.CreatedAt, now))
	line("updated", stamp(r.UpdatedAt, now))
	line("completed", stamp(r.CompletedAt, now))
	line("result until", stamp(r.ResultUntil, now))
	line("removed from", stamp(r.PurgeAt, now))
	for _, s := range r.Steps {
		line("step "+printable(s.Name), strings.Join(nonEmpty(s.State, fmt.Sprintf("attempt %d", s.Attempt),
			prefixed("begun ", stamp(s.BeganAt, now)), prefixed("ended ", stamp(s.EndedAt, now)), resultText(s.Result)), ", "))
	}
	return w.Flush()
}

func resultText(r *Result) string {
	if r == nil {
		return ""
	}
	s := r.Kind
	if r.Kind != driver.ResultElided.String() && r.Bytes != nil {
		s += fmt.Sprintf(", %d bytes of %s", *r.Bytes, printable(r.Codec))
	}
	if r.Summary != "" {
		s += ", summary " + printable(r.Summary)
	}
	switch {
	case r.JSON != nil:
		s += ": " + printable(string(r.JSON))
	case r.Data != nil:
		s += fmt.Sprintf(": %q", r.Data)
	}
	return s
}

func nonEmpty(parts ...string) []string {
	var some []string
	for _, p := range parts {
		if p != "" {
			some = append(some, p)
		}
	}
	return some
}

func prefixed(prefix, s string) string {
	if s == "-" {
		return ""
	}
	return prefix + s
}

// stateText is the name of a state, as a sentence goes on with it.
func stateText(state string) string {
	if state == driver.StateTombstone.String() {
		return "completed, and its result has expired (" + state + ")"
	}
	return state
}

// WriteExplanation writes the sentences.
func WriteExplanation(out io.Writer, x *Explanation) error {
	var b strings.Builder
	fmt.Fprintf(&b, "The operation is %s.\n", stateText(x.State))
	for _, s := range x.Story {
		b.WriteString(s + "\n")
	}
	b.WriteString("\nThe next delivery:\n")
	for _, a := range x.Next {
		if a.Policy != "" {
			fmt.Fprintf(&b, "  under the policy %s: %s: %s.\n", a.Policy, a.Outcome, a.Why)
			continue
		}
		fmt.Fprintf(&b, "  %s: %s.\n", a.Outcome, a.Why)
	}
	if len(x.Steps) > 0 {
		b.WriteString("\nIts steps, when it runs:\n")
		for _, a := range x.Steps {
			fmt.Fprintf(&b, "  %s: %s: %s.\n", printable(a.Step), a.Outcome, a.Why)
		}
	}
	if len(x.Notes) > 0 {
		b.WriteString("\n" + strings.Join(x.Notes, "\n") + "\n")
	}
	_, err := io.WriteString(out, b.String())
	return err
}
