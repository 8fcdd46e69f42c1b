package enginetest

import (
	"bytes"
	"context"
	"log/slog"
	"slices"
	"strings"
	"testing"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/store/memstore"
)

// teller is an observer that notes in a list what it is called for, and puts its name where others do.
type teller struct {
	name   string
	list   *[]string
	panics bool
}

type nameKey struct{}

func (n *teller) note(ctx context.Context, what string) {
	name, _ := ctx.Value(nameKey{}).(string)
	*n.list = append(*n.list, what+" "+n.name+" in "+name)
	if n.panics {
		panic(n.name)
	}
}

func (n *teller) Start(ctx context.Context, _ everonce.Op) context.Context {
	n.note(ctx, "start")
	return context.WithValue(ctx, nameKey{}, n.name)
}

func (n *teller) End(ctx context.Context, _ everonce.Observation) { n.note(ctx, "end") }

func TestJoinObservers(t *testing.T) {
	work := func(list *[]string) func(context.Context, *everonce.Attempt) (string, error) {
		return func(ctx context.Context, _ *everonce.Attempt) (string, error) {
			(&teller{name: "work", list: list}).note(ctx, "run")
			return "done", nil
		}
	}
	var list []string
	a, b, c := &teller{name: "a", list: &list}, &teller{name: "b", list: &list}, &teller{name: "c", list: &list}
	broken := &teller{name: "x", list: &list, panics: true}
	for name, o := range map[string]struct {
		observer everonce.Observer
		want     []string
	}{
		"in order, and back": {
			everonce.JoinObservers(a, b, c),
			[]string{"start a in ", "start b in a", "start c in b", "run work in c", "end c in c", "end b in b", "end a in a"},
		},
		"one inside another": {
			everonce.JoinObservers(everonce.JoinObservers(a, b), c),
			[]string{"start a in ", "start b in a", "start c in b", "run work in c", "end c in c", "end b in b", "end a in a"},
		},
		"behind one of somebody's own": {
			&behind{everonce.JoinObservers(a, b)},
			[]string{"start a in ", "start b in a", "run work in behind", "end b in b", "end a in a"},
		},
		"the same twice": {
			everonce.JoinObservers(a, a),
			[]string{"start a in ", "start a in a", "run work in a", "end a in a", "end a in a"},
		},
		"one that panics": {
			everonce.JoinObservers(a, broken, b),
			[]string{"start a in ", "start x in a", "start b in a", "run work in b", "end b in b", "end x in a", "end a in a"},
		},
		"nil ones": {
			everonce.JoinObservers(nil, a, (*teller)(nil), b),
			[]string{"start a in ", "start b in a", "run work in b", "end b in b", "end a in a"},
		},
		"one alone": {everonce.JoinObservers(nil, a), []string{"start a in ", "run work in a", "end a in a"}},
		"none":      {everonce.JoinObservers(nil, (*teller)(nil)), []string{"run work in "}},
		"nothing":   {everonce.JoinObservers(), []string{"run work in "}},
	} {
		t.Run(name, func(t *testing.T) {
			var logs bytes.Buffer
			defer slog.SetDefault(slog.Default())
			slog.SetDefault(slog.New(slog.NewTextHandler(&logs, nil)))
			list = nil
			r := newReceiver(t, memstore.New(nil), everonce.Refuse, &everonce.Options{Observer: o.observer})
			do(t, r, keyOf("x"), work(&list), everonce.Executed, nil)
			if !slices.Equal(list, o.want) {
				t.Errorf("observed %q,\nwant %q", list, o.want)
			}
			if told := strings.Count(logs.String(), "the observer panicked"); told != strings.Count(strings.Join(o.want, ","), " x ") {
				t.Errorf("logged: %s", logs.String())
			}
		})
	}
}

// Joined observers do not change with the caller's slice, nor the slice with them.
func TestJoinObserversKeepsItsOwn(t *testing.T) {
	var list []string
	given := []everonce.Observer{nil, &teller{name: "a", list: &list}, &teller{name: "b", list: &list}}
	joined := everonce.JoinObservers(given...)
	if given[0] != nil {
		t.Error("the caller's slice was changed")
	}
	given[1] = nil
	joined.End(joined.Start(context.Background(), everonce.Op{}), everonce.Observation{})
	checkEqual(t, "observed", len(list), 4)
	joined.End(context.Background(), everonce.Observation{}) // without a Start, as no receiver calls it
	checkEqual(t, "observed", list[4:], []string{"end b in ", "end a in "})
}

// behind is an observer around another, with a separate context.
type behind struct{ everonce.Observer }

func (b *behind) Start(ctx context.Context, op everonce.Op) context.Context {
	return context.WithValue(b.Observer.Start(ctx, op), nameKey{}, "behind")
}
