package enginetest

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/store/memstore"
)

// warningsOf runs f with a receiver on a store that can fail, and returns what was logged, line by line.
func warningsOf(t *testing.T, o everonce.Options, f func(r *everonce.Receiver, s *faultStore)) (lines []string) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		var buf bytes.Buffer
		if o.Log == nil {
			o.Log = slog.New(slog.NewTextHandler(&buf, nil))
		}
		o.CompletionTimeout, o.StoreTimeout = time.Second, time.Second
		s := newFaultStore()
		f(newReceiver(t, s, everonce.Refuse, &o), s)
		lines = strings.FieldsFunc(buf.String(), func(c rune) bool { return c == '\n' })
	})
	return lines
}

// An outcome that may be reported nowhere else is logged once, with what to do, and without the key.
func TestOutcomesThatNeedAPersonAreLogged(t *testing.T) {
	const raw = "very-secret-idempotency-key"
	key := keyOf(raw)
	for outcome, call := range map[everonce.Outcome]func(r *everonce.Receiver, s *faultStore){
		everonce.Unknown: func(r *everonce.Receiver, s *faultStore) { // of a process that was killed
			diedIn(t, s, key, time.Second)
			time.Sleep(2 * time.Second)
			do(t, r, key, never(t), everonce.Unknown, everonce.ErrOutcomeUnknown)
			do(t, r, key, never(t), everonce.Unknown, everonce.ErrOutcomeUnknown)
		},
		everonce.NotRecorded: func(r *everonce.Receiver, s *faultStore) {
			s.on("Complete", 0, refuse(errNet))
			do(t, r, key, returns("v", nil), everonce.NotRecorded, errNet)
		},
		everonce.StoreFailed: func(r *everonce.Receiver, s *faultStore) {
			s.on("Claim", 0, refuse(errNet))
			do(t, r, key, never(t), everonce.StoreFailed, errNet)
			do(t, r, key, never(t), everonce.StoreFailed, errNet)
		},
		everonce.LeaseLost: func(r *everonce.Receiver, _ *faultStore) {
			do(t, r, key, func(context.Context, *everonce.Attempt) (string, error) {
				checkErr(t, r.Settle(context.Background(), key, everonce.Settlement{Verdict: everonce.SettleNotDone, Force: true}), nil)
				return "dropped", nil
			}, everonce.LeaseLost, everonce.ErrLeaseLost)
		},
	} {
		t.Run(outcome.String(), func(t *testing.T) {
			lines := warningsOf(t, everonce.Options{}, call)
			if len(lines) != 1 {
				t.Fatalf("%d lines, want 1: %q", len(lines), lines)
			}
			hash := key.RecordID().Short()
			for _, want := range []string{
				"level=WARN", "key=" + hash, `scope="tenant-1/POST %2Fcharges"`, "outcome=" + outcome.String(), "error=",
				`run="everonce keys explain --hash ` + hash + `"`,
			} {
				if !strings.Contains(lines[0], want) {
					t.Errorf("%s is not in the line %s", want, lines[0])
				}
			}
			if strings.Contains(lines[0], raw) {
				t.Errorf("the key is in the line %s", lines[0])
			}
		})
	}
}

// An attempt of the call itself is news, also where the key was logged before; a panic of the work is one too.
func TestEachUnknownAttemptIsLogged(t *testing.T) {
	lines := warningsOf(t, everonce.Options{}, func(r *everonce.Receiver, _ *faultStore) {
		for range 2 {
			do(t, r, keyOf("x"), returns("", errWork), everonce.Unknown, errWork)
			checkErr(t, r.Settle(context.Background(), keyOf("x"), everonce.Settlement{Verdict: everonce.SettleNotDone}), nil)
		}
		func() {
			defer func() { _ = recover() }()
			_, _ = everonce.Do(context.Background(), r, keyOf("x"), func(context.Context, *everonce.Attempt) (string, error) { panic("a fault") })
		}()
		do(t, r, keyOf("x"), never(t), everonce.Unknown, everonce.ErrOutcomeUnknown)
	})
	if len(lines) != 3 || !strings.Contains(lines[2], "panicked") {
		t.Errorf("want three lines, and a panic in the last: %q", lines)
	}
}

func TestTransactionsThatNeedAPersonAreLogged(t *testing.T) {
	key := keyOf("x")
	for name, call := range map[string]func(x *everonce.TxReceiver[*mapTx], s *mapStore){
		"Transact": func(x *everonce.TxReceiver[*mapTx], s *mapStore) {
			s.on("Begin", 0, refuse(errNet))
			_, err := everonce.Transact(context.Background(), x, key, adds)
			checkErr(t, err, errNet)
		},
		"TransactBatch": func(x *everonce.TxReceiver[*mapTx], s *mapStore) {
			s.on("Begin", 0, refuse(errNet))
			_, err := everonce.TransactBatch(context.Background(), x, []everonce.BatchItem{{Key: key}, {Key: keyOf("y")}}, everonce.EachItem(
				func(ctx context.Context, tx *mapTx, _ int) (int, error) { return adds(ctx, tx) }))
			checkErr(t, err, nil)
		},
		"DoTx": func(x *everonce.TxReceiver[*mapTx], s *mapStore) {
			s.on("tx.Claim", 0, refuse(errNet))
			checkErr(t, x.InTx(context.Background(), func(ctx context.Context, tx *mapTx) error {
				_, err := everonce.DoTx(ctx, tx, x, key, func(context.Context) (int, error) { return 0, nil })
				checkErr(t, err, errNet)
				return nil
			}), nil)
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var buf bytes.Buffer
				s := newMapStore()
				call(newTxReceiver(t, s, &everonce.Options{Log: slog.New(slog.NewTextHandler(&buf, nil))}), s)
				if got := buf.String(); strings.Count(got, "key="+key.RecordID().Short()+" ") != 1 || !strings.Contains(got, "outcome=store_failed") {
					t.Errorf("logged: %q", got)
				}
			})
		})
	}
}

// An outage is not a line for each request; the first line after a second says how many were left out.
func TestWarningsAreBounded(t *testing.T) {
	lines := warningsOf(t, everonce.Options{}, func(r *everonce.Receiver, s *faultStore) {
		s.on("Claim", 0, refuse(errNet))
		var requests sync.WaitGroup
		for i := range 1000 {
			requests.Go(func() { _, _ = everonce.Do(context.Background(), r, keyOf(fmt.Sprint(i)), never(t)) })
		}
		requests.Wait()
		time.Sleep(time.Second)
		do(t, r, keyOf("later"), never(t), everonce.StoreFailed, errNet)
	})
	if n := len(lines); n != 11 || !strings.Contains(lines[n-1], "dropped=990") {
		t.Errorf("%d lines, the last is %q", n, lines[n-1])
	}
}

func TestWarningsCanBeTurnedOff(t *testing.T) {
	var buf bytes.Buffer
	old := slog.Default()
	slog.SetDefault(slog.New(slog.NewTextHandler(&buf, nil)))
	defer slog.SetDefault(old)
	elsewhere := everonce.LogObserver(slog.New(slog.DiscardHandler))
	for _, c := range []struct {
		name  string
		opts  *everonce.Options
		call  []everonce.CallOption
		lines int
	}{
		{"default", nil, nil, 1},
		{"an observer that does not log", &everonce.Options{Observer: &recorder{}}, nil, 1},
		{"a logger that discards", &everonce.Options{Log: slog.New(slog.DiscardHandler)}, nil, 0},
		{"an observer that logs", &everonce.Options{Observer: elsewhere}, nil, 0},
		{"one among others", &everonce.Options{Observer: everonce.JoinObservers(&recorder{}, elsewhere)}, nil, 0},
		{"a record of an adapter", nil, []everonce.CallOption{everonce.Unobserved()}, 0},
	} {
		buf.Reset()
		r := newReceiver(t, memstore.New(nil), everonce.Refuse, c.opts)
		do(t, r, keyOf("x"), returns("", errWork), everonce.Unknown, errWork, c.call...)
		checkEqual(t, c.name+": lines", strings.Count(buf.String(), "\n"), c.lines)
	}
}
