package e2e

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"os"
	"os/signal"
	"strconv"
	"sync"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"golang.org/x/sync/errgroup"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/consume"
	"github.com/everonce/everonce/store/pgxstore"
)

const messageWorkerEnv = "EVERONCE_E2E_MESSAGE_WORKER"

// The ways of consuming. Each has a separate queue, with the same messages, and each worker consumes in all of them.
const (
	wayTx       = "transactional" // the effect commits with the record of the message
	wayGuarded  = "guarded"       // the effect is at a gateway that takes each downstream key once
	wayRefused  = "refused"       // at one that takes everything: what is unknown is refused until it is settled
	wayBare     = "bare"          // saved before it is acknowledged, and without everonce: doubles
	wayAckFirst = "ack-first"     // acknowledged before it is saved: loses
)

var rightWays = []string{wayTx, wayGuarded, wayRefused}

// messageSpec is what a test tells a worker.
type messageSpec struct {
	Worker               string
	Kind, Broker, Queues string // the kind of the broker, its URL, and what the names of the queues begin with
	Line                 string // the address by which consumers reach the broker, if it is not the URL's
	Postgres, Schema     string
	Referee              string
}

// operation is a message's payload.
type operation struct {
	Op int `json:"op"`
}

func (s *messageSpec) poolConfig() (*pgxpool.Config, error) {
	cfg, err := pgxpool.ParseConfig(s.Postgres)
	if err != nil {
		return nil, errors.New("the PostgreSQL URL does not parse")
	}
	cfg.ConnConfig.RuntimeParams["search_path"] = s.Schema
	cfg.MaxConns = 40
	return cfg, nil
}

func (s *messageSpec) pool(ctx context.Context) (*pgxpool.Pool, error) {
	cfg, err := s.poolConfig()
	if err != nil {
		return nil, err
	}
	return pgxpool.NewWithConfig(ctx, cfg)
}

// messageWorker is a process that consumes until it is told to end, or is killed.
type messageWorker struct {
	spec   messageSpec
	client *http.Client
	pool   *pgxpool.Pool
	after  sync.Map // messages in progress that had been done before
}

func runMessageWorker(raw string) error {
	var spec messageSpec
	if err := json.Unmarshal([]byte(raw), &spec); err != nil {
		return err
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	slog.SetDefault(slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn})))
	w := &messageWorker{spec: spec, client: &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 64}}}
	var err error
	if w.pool, err = spec.pool(ctx); err != nil {
		return err
	}
	defer w.pool.Close()
	return w.run(ctx)
}

func (w *messageWorker) run(ctx context.Context) error {
	store, err := pgxstore.New(w.pool, &pgxstore.Options{Schema: w.spec.Schema})
	if err != nil {
		return err
	}
	opts := &everonce.Options{Lease: e2eLease, CompletionTimeout: 3 * time.Second} // less than a store is away for, at times
	tx, err := everonce.NewTxReceiver[pgx.Tx](store, opts)
	if err != nil {
		return err
	}
	guarded, err := everonce.NewReceiver(store, everonce.Reexecute, opts)
	if err != nil {
		return err
	}
	refusing, err := everonce.NewReceiver(store, everonce.Refuse, opts)
	if err != nil {
		return err
	}
	consumers := map[string]func() (*consume.Consumer, error){
		wayTx:      func() (*consume.Consumer, error) { return w.transactional(tx) },
		wayGuarded: func() (*consume.Consumer, error) { return w.guarded(guarded, wayGuarded) },
		wayRefused: func() (*consume.Consumer, error) { return w.guarded(refusing, wayRefused) },
		wayBare:    w.bare,
	}
	broker := w.spec.broker()
	g, ctx := errgroup.WithContext(ctx)
	for way, newConsumer := range consumers {
		h, err := newConsumer()
		if err != nil {
			return err
		}
		c, err := broker.consumer(ctx, way, h, quickWorkers)
		if err != nil {
			return err
		}
		g.Go(func() error { return c.Run(ctx) })
	}
	if kind := brokerKinds[w.spec.Kind]; kind.ackFirst {
		g.Go(func() error { return w.ackFirst(ctx) })
	}
	g.Go(func() error { return w.call("/up", url.Values{}) })
	return g.Wait()
}

// quickWorkers make pauses short.
var quickWorkers = consume.Workers{Backoff: consume.Backoff{Min: 20 * time.Millisecond, Max: 500 * time.Millisecond}}

const insertEffect = `INSERT INTO effect (way, op) VALUES ($1, $2)`

// transactional is a consumer with a business row in the transaction.
func (w *messageWorker) transactional(recv *everonce.TxReceiver[pgx.Tx]) (*consume.Consumer, error) {
	return consume.NewTx(recv, consume.TxSpec[operation, pgx.Tx]{
		Consumer: wayTx, Key: consume.ProducerID(), Decode: w.received(wayTx), Observe: w.recorded(wayTx),
		Handle: func(ctx context.Context, tx pgx.Tx, m *consume.Message, v operation) error {
			_, done := w.after.Load(m)
			if _, err := w.tell(phaseWorking, wayTx, v.Op, flag("after", done)); err != nil {
				return err
			}
			if _, err := tx.Exec(ctx, insertEffect, wayTx, v.Op); err != nil {
				return err
			}
			return w.at(phaseWorked, wayTx, v.Op)
		},
	})
}

// guarded is a consumer whose effect is elsewhere.
func (w *messageWorker) guarded(recv *everonce.Receiver, way string) (*consume.Consumer, error) {
	return consume.New(recv, consume.Spec[operation]{
		Consumer: way, Key: consume.ProducerID(), Decode: w.received(way), Observe: w.recorded(way),
		Handle: func(ctx context.Context, _ *consume.Message, v operation) error {
			if err := w.at(phaseWorking, way, v.Op); err != nil {
				return err
			}
			attempt, ok := everonce.AttemptFrom(ctx)
			if !ok {
				return errors.New("there is no attempt")
			}
			if err := w.call("/charge", url.Values{"way": {way}, "op": {strconv.Itoa(v.Op)}, "key": {attempt.DownstreamKey("charge")}}); err != nil {
				return err
			}
			return w.at(phaseWorked, way, v.Op)
		},
	})
}

// bare is the consumer to compare everonce with: all is right, but there are no records.
func (w *messageWorker) bare() (*consume.Consumer, error) {
	return consume.NewNatural(consume.NaturalSpec[operation]{
		Consumer: wayBare, Key: consume.ProducerID(), Decode: w.received(wayBare), Observe: w.recorded(wayBare),
		Handle: func(ctx context.Context, _ *consume.Message, v operation) (bool, error) {
			if err := w.at(phaseWorking, wayBare, v.Op); err != nil {
				return false, err
			}
			if _, err := w.pool.Exec(ctx, insertEffect, wayBare, v.Op); err != nil {
				return false, fmt.Errorf("%w: %w", everonce.ErrStore, err)
			}
			return true, w.at(phaseWorked, wayBare, v.Op)
		},
	})
}

// received decodes a message, and tells the referee.
func (w *messageWorker) received(way string) func(*consume.Message) (operation, error) {
	return func(m *consume.Message) (v operation, err error) {
		if err := json.Unmarshal(m.Body, &v); err != nil {
			return v, err
		}
		done, err := w.tell(phaseReceived, way, v.Op, flag("again", m.Redelivered))
		if done {
			w.after.Store(m, true)
		}
		return v, err
	}
}

// recorded reports a verdict to the referee, before the broker gets it.
func (w *messageWorker) recorded(way string) func(context.Context, *consume.Message, consume.Decision) {
	return func(_ context.Context, m *consume.Message, v consume.Decision) {
		var op operation
		if err := json.Unmarshal(m.Body, &op); err != nil {
			return
		}
		_, done := w.after.LoadAndDelete(m)
		more := flag("after", done)
		if v.Disposition == consume.Ack {
			more.Set("ack", "1")
		}
		if v.Disposition == consume.SetAside {
			more.Set("dead", "1")
		}
		more.Set("outcome", v.Outcome.String())
		if _, err := w.tell(phaseRecorded, way, op.Op, more); err != nil {
			slog.Error("the referee does not answer", "error", err)
		}
	}
}

func flag(name string, set bool) url.Values {
	if set {
		return url.Values{name: {"1"}}
	}
	return url.Values{}
}

func (w *messageWorker) at(phase, way string, op int) error {
	_, err := w.tell(phase, way, op, url.Values{})
	return err
}

// tell tells the referee of a phase, and returns whether the message was done by then.
func (w *messageWorker) tell(phase, way string, op int, more url.Values) (done bool, err error) {
	more.Set("worker", w.spec.Worker)
	more.Set("way", way)
	more.Set("phase", phase)
	more.Set("op", strconv.Itoa(op))
	header, err := w.ask("/phase", more)
	return header.Get(doneHeader) != "", err
}

func (w *messageWorker) call(path string, q url.Values) error {
	_, err := w.ask(path, q)
	return err
}

// ask asks the referee, who may hold the answer back; nothing else may end it.
func (w *messageWorker) ask(path string, q url.Values) (http.Header, error) {
	req, err := http.NewRequestWithContext(context.Background(), http.MethodPost, w.spec.Referee+path+"?"+q.Encode(), nil)
	if err != nil {
		return nil, err
	}
	resp, err := w.client.Do(req)
	if err != nil {
		return nil, err
	}
	return resp.Header, resp.Body.Close()
}
