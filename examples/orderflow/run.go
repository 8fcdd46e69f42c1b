package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"time"

	"github.com/everonce/everonce/httponce/client"
)

// settings are what the flags say.
type settings struct {
	Orders, Kills int
	Seed          uint64
	Postgres      string
	Broken        mistake
	Log           *log.Logger
	Said          io.Writer // by the services
}

// names are the services' names. The order service comes last, because it needs the addresses of the others.
var names = []string{"stock", "payment", "shipping", "order"}

// run is one run.
type run struct {
	settings
	places    map[string]string // of the databases
	processes map[string]*process
	client    *http.Client
	kills     int
}

// orderflow starts the services, sends orders while it kills them, waits until all sagas have ended, and counts.
func orderflow(ctx context.Context, s settings) (rep Report, err error) {
	began := time.Now()
	r := &run{settings: s, places: map[string]string{}, processes: map[string]*process{}}
	remove, err := r.makePlaces(ctx)
	if err != nil {
		return rep, err
	}
	defer func() { err = errors.Join(err, remove()) }()
	transport, err := client.NewTransport(nil, &client.Options{MaxAttempts: 1000, Backoff: 10 * time.Millisecond, MaxBackoff: 200 * time.Millisecond})
	if err != nil {
		return rep, err
	}
	r.client = &http.Client{Transport: transport}
	err = r.operate(ctx)
	for _, p := range r.processes {
		err = errors.Join(err, p.stop())
	}
	if err != nil {
		return rep, err
	}
	if rep, err = audit(ctx, r.places, ordersOf(s.Orders, s.Seed)); err != nil {
		return rep, err
	}
	rep.Kills, rep.Seconds = r.kills, time.Since(began).Seconds()
	return rep, nil
}

// makePlaces makes the databases, or a folder for them.
func (r *run) makePlaces(ctx context.Context) (remove func() error, err error) {
	if r.Postgres != "" {
		return makeSchemas(ctx, r.Postgres, r.places)
	}
	dir, err := os.MkdirTemp("", "everonce-orderflow-")
	if err != nil {
		return nil, err
	}
	for _, name := range names {
		r.places[name] = filepath.Join(dir, name+".db")
	}
	return func() error { return os.RemoveAll(dir) }, nil
}

func (r *run) operate(ctx context.Context) error {
	addrs := map[string]string{}
	for _, name := range names {
		p := &process{said: r.Said, serviceSettings: serviceSettings{Name: name, Addr: anywhere, Database: r.places[name], Addrs: addrs, Seed: r.Seed, Broken: r.Broken}}
		r.processes[name] = p
		if err := p.start(ctx); err != nil {
			return err
		}
		addrs[name] = p.Addr
	}
	if err := r.feed(ctx); err != nil {
		return err
	}
	return r.settle(ctx)
}

// feed sends the orders. It lets some of them begin, kills a service in the middle of that, and starts it again.
func (r *run) feed(ctx context.Context) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	queue := make(chan Order, r.Orders)
	var sending sync.WaitGroup
	for range 8 {
		sending.Go(func() {
			for o := range queue {
				if err := r.send(ctx, o); err != nil {
					cancel(err)
					return
				}
			}
		})
	}
	err := r.allowAndKill(ctx, queue)
	close(queue)
	sending.Wait()
	return errors.Join(err, context.Cause(ctx))
}

func (r *run) allowAndKill(ctx context.Context, queue chan<- Order) error {
	random := rand.New(rand.NewPCG(r.Seed, 3)) //nolint:gosec // when to kill, and whom
	orders := ordersOf(r.Orders, r.Seed)
	for kill := range r.Kills + 1 {
		for _, o := range orders[r.Orders*kill/(r.Kills+1) : r.Orders*(kill+1)/(r.Kills+1)] {
			queue <- o
		}
		if kill == r.Kills {
			break
		}
		if err := pause(ctx, time.Duration(1+random.IntN(80))*time.Millisecond); err != nil {
			return err
		}
		victim := r.processes[names[min(random.IntN(len(names)+1), len(names)-1)]] // the order service twice as often
		victim.Seed++
		if err := victim.kill(); err != nil {
			return err
		}
		r.kills++
		if err := victim.start(ctx); err != nil {
			return err
		}
	}
	return nil
}

// send sends an order until there is an answer. Its ID is the key.
func (r *run) send(ctx context.Context, o Order) error {
	body, err := json.Marshal(o)
	if err != nil {
		return err
	}
	_, err = r.post(client.WithKey(ctx, o.ID), "/orders", body, http.StatusAccepted)
	return err
}

func (r *run) post(ctx context.Context, path string, body []byte, want int) (text []byte, err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+r.processes["order"].Addr+path, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	res, err := r.client.Do(req)
	if err != nil {
		return nil, err
	}
	text, err = io.ReadAll(res.Body)
	if err = errors.Join(err, res.Body.Close()); err == nil && res.StatusCode != want {
		err = fmt.Errorf("POST %s was answered %s: %s", path, res.Status, text)
	}
	return text, err
}

// settle waits until all sagas have ended, and until what the network keeps back has come.
func (r *run) settle(ctx context.Context) error {
	for {
		text, err := r.post(ctx, "/retry", nil, http.StatusOK)
		if err != nil {
			return err
		}
		left, err := strconv.Atoi(string(text))
		if err != nil || left == 0 {
			return errors.Join(err, pause(ctx, time.Second))
		}
		if err := pause(ctx, 20*time.Millisecond); err != nil {
			return err
		}
	}
}
