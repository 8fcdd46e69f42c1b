package main

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/examples/internal/docs"
	"github.com/everonce/everonce/examples/internal/program"
	"github.com/everonce/everonce/store/sqlitestore"
)

// unknowns makes a database with three orders whose outcome is unknown, one of them because of a step.
func unknowns(t *testing.T, file string) {
	t.Helper()
	store, err := sqlitestore.Open(t.Context(), file, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := store.Close(); err != nil {
			t.Error(err)
		}
	}()
	r, err := everonce.NewReceiver(store, everonce.Refuse, &everonce.Options{Owner: "shop-7f4d:1"})
	if err != nil {
		t.Fatal(err)
	}
	lost := errors.New("timeout")
	for order, work := range map[string]func(context.Context, *everonce.Attempt) (string, error){
		"order-1": func(context.Context, *everonce.Attempt) (string, error) { return "", lost },
		"order-2": func(context.Context, *everonce.Attempt) (string, error) { return "", lost },
		"order-3": func(ctx context.Context, a *everonce.Attempt) (string, error) {
			return everonce.Step(ctx, a, "mail", func(context.Context) (string, error) { return "", lost })
		},
	} {
		key := everonce.Key{Scope: everonce.ScopeOf("shop-1", "charge"), ID: order}
		var opts []everonce.CallOption
		if order == "order-3" {
			opts = append(opts, everonce.EffectsInSteps())
		}
		if _, err := everonce.Do(t.Context(), r, key, work, opts...); !errors.Is(err, everonce.ErrOutcomeUnknown) {
			t.Fatalf("%s: %v", order, err)
		}
	}
}

// TestCommandsOfThePage runs the commands of docs/how-to/settle-the-unknown.md, in their order, and looks at
// what became of the orders.
func TestCommandsOfThePage(t *testing.T) {
	dir, bin := t.TempDir(), t.TempDir()
	file := filepath.Join(dir, "payments.db")
	unknowns(t, file)
	if err := os.Symlink(program.Build(t, "../../cmd/everonce"), filepath.Join(bin, "everonce")); err != nil {
		t.Fatal(err)
	}
	path := "PATH=" + bin + string(os.PathListSeparator) + os.Getenv("PATH")
	var commands strings.Builder
	for _, block := range docs.Blocks(t, "how-to/settle-the-unknown.md", "sh", "") {
		commands.WriteString(block)
	}
	got := program.Shell(t, dir, commands.String(), path)
	for _, want := range []string{
		"shop-1/charge  order-1  abandoned  ", "order-2  abandoned  ", "order-3  abandoned (mail)", // list
		"The operation is abandoned", "unknown step  mail", // explain, show
		"settled as done; the operation is completed\nsettled as not_done; the operation is released\nsettled as done; the operation is released\n",
	} {
		if !strings.Contains(got, want) {
			t.Errorf("the commands did not print %q, but\n%s", want, got)
		}
	}

	store, err := sqlitestore.Open(t.Context(), file, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := store.Close(); err != nil {
			t.Error(err)
		}
	}()
	r, err := everonce.NewReceiver(store, everonce.Refuse, nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []struct {
		order, value string
		outcome      everonce.Outcome
	}{
		{"order-1", "receipt-1", everonce.Replayed},
		{"order-2", "again", everonce.Executed},
		{"order-3", "sent", everonce.Executed},
	} {
		key := everonce.Key{Scope: everonce.ScopeOf("shop-1", "charge"), ID: want.order}
		res, err := everonce.Do(t.Context(), r, key, func(ctx context.Context, a *everonce.Attempt) (string, error) {
			if want.order != "order-3" {
				return "again", nil
			}
			return everonce.Step(ctx, a, "mail", func(context.Context) (string, error) { return "sent twice", nil })
		})
		if err != nil || res.Outcome != want.outcome || res.Value != want.value {
			t.Errorf("%s: %v %q, %v; want %v %q", want.order, res.Outcome, res.Value, err, want.outcome, want.value)
		}
	}
}
