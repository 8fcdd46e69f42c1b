package e2e

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/everonce/everonce"
)

const workerEnv = "EVERONCE_E2E_WORKER"

// workerSpec is what a test tells the process that it will kill.
type workerSpec struct {
	SQLite   string // a file, or
	MariaDB  string // a URL, or
	Postgres string // a URL, with
	Schema   string // or a database of MariaDB
	DynamoDB string // or a URL, with
	Table    string
	Gateway  string
	From, To int // the operations
	Seed     uint64
	Callers  int
	Lease    time.Duration
}

// The operations take turns in the ways of executing them.
const (
	wayTransact = iota
	wayDoTx
	wayReexecute
	wayRefuse
	waySteps
	wayOptimistic
	ways
)

const e2eLease = 2 * time.Second

func runWorker(raw string) error {
	var spec workerSpec
	if err := json.Unmarshal([]byte(raw), &spec); err != nil {
		return err
	}
	ctx := context.Background()
	if open := spec.openSQL(); open != nil {
		a, err := open(ctx)
		if err != nil {
			return err
		}
		defer a.close()
		return work(ctx, spec, a)
	}
	if spec.DynamoDB != "" {
		a, err := openDynamoDB(ctx, spec.DynamoDB, spec.Table)
		if err != nil {
			return err
		}
		defer a.close()
		return work(ctx, spec, a)
	}
	a, err := openPostgres(ctx, spec.Postgres, spec.Schema)
	if err != nil {
		return err
	}
	defer a.close()
	return work(ctx, spec, a)
}

// openSQL is how to open a service that stands on database/sql, or nil.
func (s workerSpec) openSQL() func(context.Context) (*app[*sql.Tx], error) {
	switch {
	case s.SQLite != "":
		return func(ctx context.Context) (*app[*sql.Tx], error) { return openSQLite(ctx, s.SQLite) }
	case s.MariaDB != "":
		return func(ctx context.Context) (*app[*sql.Tx], error) { return openMariaDB(ctx, s.MariaDB, s.Schema) }
	}
	return nil
}

// worker delivers every operation to a final answer, in its own order.
type worker[Tx any] struct {
	spec     workerSpec
	app      *app[Tx]
	client   *http.Client
	reexec   *everonce.Receiver
	refuse   *everonce.Receiver
	tx       *everonce.TxReceiver[Tx]
	failures atomic.Int64
}

func work[Tx any](ctx context.Context, spec workerSpec, a *app[Tx]) error {
	w := &worker[Tx]{spec: spec, app: a, client: &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 64}}}
	opts := &everonce.Options{Lease: spec.Lease, TxRetries: 50}
	var err error
	if w.reexec, err = everonce.NewReceiver(a.store, everonce.Reexecute, opts); err != nil {
		return err
	}
	if w.refuse, err = everonce.NewReceiver(a.store, everonce.Refuse, opts); err != nil {
		return err
	}
	if w.tx, err = everonce.NewTxReceiver(a.store, opts); err != nil {
		return err
	}
	order := rand.New(rand.NewPCG(spec.Seed, 2)).Perm(spec.To - spec.From)
	var next atomic.Int64
	var wg sync.WaitGroup
	errs := make(chan error, spec.Callers)
	for range spec.Callers {
		wg.Go(func() {
			for {
				i := int(next.Add(1)) - 1
				if i >= len(order) {
					return
				}
				if err := w.deliver(ctx, spec.From+order[i]); err != nil {
					errs <- err
					return
				}
			}
		})
	}
	wg.Wait()
	close(errs)
	return <-errs
}

// deliver repeats one operation until its answer is final.
func (w *worker[Tx]) deliver(ctx context.Context, op int) error {
	if err := w.call(ctx, "/begin", op, ""); err != nil {
		return err
	}
	for {
		outcome, err := w.execute(ctx, op)
		switch outcome {
		case everonce.Executed, everonce.Replayed, everonce.Unknown:
			return w.call(ctx, "/end", op, "&outcome="+outcome.String())
		case everonce.InProgress, everonce.Failed, everonce.StoreFailed, everonce.LeaseLost, everonce.NotRecorded:
			if w.failures.Add(1) > 100_000 {
				return fmt.Errorf("operation %d does not come to an end: %w", op, err)
			}
			var e *everonce.Error
			pause := 20 * time.Millisecond
			if errors.As(err, &e) && e.RetryAfter > 0 {
				pause = min(e.RetryAfter, 200*time.Millisecond)
			}
			<-time.After(pause)
		default:
			return fmt.Errorf("operation %d ended with %v: %w", op, outcome, err)
		}
	}
}

func (w *worker[Tx]) execute(ctx context.Context, op int) (everonce.Outcome, error) {
	key := operationKey(op)
	fp := everonce.FingerprintOf(op)
	charge := func(ctx context.Context, tx Tx) (int, error) {
		if err := w.app.charge(ctx, tx, op); err != nil {
			return 0, err
		}
		return op, w.call(ctx, "/touch", op, "")
	}
	switch op % ways {
	case wayTransact:
		return outcome(everonce.Transact(ctx, w.tx, key, charge, fp))
	case wayOptimistic:
		return outcome(everonce.Transact(ctx, w.tx, key, charge, fp, everonce.Optimistic()))
	case wayDoTx:
		return w.doTx(ctx, key, charge, fp)
	case wayReexecute:
		return outcome(everonce.Do(ctx, w.reexec, key, func(ctx context.Context, a *everonce.Attempt) (int, error) {
			return op, w.call(ctx, "/charge", op, "&key=reexecute-"+a.DownstreamKey("charge"))
		}, fp))
	case wayRefuse:
		return outcome(everonce.Do(ctx, w.refuse, key, func(ctx context.Context, a *everonce.Attempt) (int, error) {
			return op, w.call(ctx, "/charge", op, "&key=refuse-"+a.DownstreamKey("charge"))
		}, fp))
	}
	return outcome(everonce.Do(ctx, w.reexec, key, func(ctx context.Context, a *everonce.Attempt) (int, error) {
		if _, err := everonce.StepTx(ctx, a, w.tx, "charge", charge); err != nil {
			return 0, err
		}
		return everonce.Step(ctx, a, "mail", func(ctx context.Context) (int, error) {
			return op, w.call(ctx, "/charge", op, "&key=mail-"+a.DownstreamKey("mail"))
		}, everonce.WithPolicy(everonce.Refuse))
	}, everonce.EffectsInSteps(), fp))
}

// doTx is the caller's own transaction.
func (w *worker[Tx]) doTx(ctx context.Context, key everonce.Key, charge func(context.Context, Tx) (int, error), fp everonce.Fingerprint) (everonce.Outcome, error) {
	tx, err := w.app.begin(ctx)
	if err != nil {
		return everonce.StoreFailed, err
	}
	res, err := everonce.DoTx(ctx, tx, w.tx, key, func(ctx context.Context) (int, error) { return charge(ctx, tx) }, fp)
	if err != nil {
		w.app.discard(ctx, tx)
		return res.Outcome, err
	}
	if err := w.app.commit(ctx, tx); err != nil {
		return everonce.Failed, err
	}
	return res.Outcome, nil
}

func outcome[T any](res everonce.Result[T], err error) (everonce.Outcome, error) {
	return res.Outcome, err
}

func operationKey(op int) everonce.Key {
	return everonce.Key{Scope: everonce.ScopeOf("shop", "charge"), ID: fmt.Sprintf("order-%d", op)}
}

func (w *worker[Tx]) call(ctx context.Context, path string, op int, more string) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, fmt.Sprintf("%s%s?op=%d%s", w.spec.Gateway, path, op, more), nil)
	if err != nil {
		return err
	}
	resp, err := w.client.Do(req)
	if err != nil {
		return err
	}
	return resp.Body.Close()
}
