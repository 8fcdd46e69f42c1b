package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/httponce"
	"github.com/everonce/everonce/store/memstore"
)

// waitingDuplicates is how many requests wait at the same time.
const waitingDuplicates = 2000

// waiting is what a duplicate costs that waits for the first request's answer, in bytes: beside it, a handler that
// has read its request and does nothing.
type waiting struct {
	bare, ours float64
}

func (*waiting) name() string { return "memory, HTTP, waiting" }

func (m *waiting) run(ctx context.Context, _ pace) (err error) {
	block := make(chan struct{})
	var blocked atomic.Int64
	hold := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var p payment
		if err := json.NewDecoder(r.Body).Decode(&p); err != nil {
			panic(err) // the requests here are right
		}
		blocked.Add(1)
		<-block
		w.WriteHeader(http.StatusCreated)
	})
	if m.bare, err = crowd(ctx, hold, func() bool { return blocked.Load() >= waitingDuplicates }); err != nil {
		return err
	}
	var asked counter
	recv, err := everonce.NewReceiver(memstore.New(nil), everonce.Refuse, &everonce.Options{Observer: &asked})
	if err != nil {
		return err
	}
	protect, err := httponce.Middleware(recv, byAccount, &httponce.Options{MaxWaiting: waitingDuplicates, Route: httponce.Route{Wait: time.Hour}})
	if err != nil {
		return err
	}
	m.ours, err = crowd(ctx, protect(hold), func() bool { return asked.Load() >= waitingDuplicates })
	close(block)
	if err == nil && blocked.Load() != waitingDuplicates+1 {
		err = fmt.Errorf("%d handlers ran, want the bare handlers and one more", blocked.Load())
	}
	return err
}

func (m *waiting) print() {
	format := "%-10s %-34s %-36s %10s\n"
	fmt.Printf(format, "memory", fmt.Sprintf("HTTP, %d connections", waitingDuplicates), "bare: a handler that is blocked", kilobytes(m.bare))
	fmt.Printf(format+"\n", "", "", "ours, a duplicate that waits", kilobytes(m.ours))
}

func kilobytes(n float64) string { return fmt.Sprintf("%.1f KB", n/1000) }

func (m *waiting) promised() []target {
	return []target{{what: "HTTP, waiting: KB over a bare blocked handler", want: 10, atMost: true, measured: func() float64 { return (m.ours - m.bare) / 1000 }}}
}

// counter counts the operations that begin.
type counter struct{ atomic.Int64 }

// Start counts the call.
func (c *counter) Start(ctx context.Context, _ everonce.Op) context.Context {
	c.Add(1)
	return ctx
}

// End does nothing.
func (c *counter) End(context.Context, everonce.Observation) {}

// crowd sends the same request over many connections, and returns the bytes, of heap and stacks, that each
// of them holds when all have arrived and nothing moves any more. Connections are pipes in memory, the same for all.
func crowd(ctx context.Context, h http.Handler, arrived func() bool) (float64, error) {
	ln := &pipeListener{conns: make(chan net.Conn), closed: make(chan struct{})}
	server := &http.Server{Handler: h, ReadHeaderTimeout: time.Minute}
	go server.Serve(ln) //nolint:errcheck // it ends with Close
	request := newWire("pay.example", sampleRequest).with(httpKey(0))
	clients := make([]net.Conn, 0, waitingDuplicates)
	defer func() {
		for _, c := range clients {
			_ = c.Close() //nolint:errcheck // a pipe
		}
		_ = server.Close() //nolint:errcheck // nothing is connected any more
	}()
	before, err := settled(ctx, func() bool { return true })
	if err != nil {
		return 0, err
	}
	for range waitingDuplicates {
		client, conn := net.Pipe()
		ln.conns <- conn
		clients = append(clients, client)
		if _, err := client.Write(request); err != nil {
			return 0, err
		}
	}
	after, err := settled(ctx, arrived)
	return (after - before) / waitingDuplicates, err
}

// The bounds of waiting until nothing moves.
const (
	stillness = 10 // looks that say the same
	lookEvery = 20 * time.Millisecond
	lookLimit = time.Minute
)

// settled waits until it is so and memory does not change any more, and returns it.
func settled(ctx context.Context, so func() bool) (float64, error) {
	limit := time.Now().Add(lookLimit)
	var last float64
	for still := 0; still < stillness; {
		if err := ctx.Err(); err != nil {
			return 0, err
		}
		if time.Now().After(limit) {
			return 0, errors.New("the requests do not come to rest")
		}
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		now := float64(m.HeapAlloc + m.StackInuse)
		if so() && now > last*0.999 && now < last*1.001 {
			still++
		} else {
			still = 0
		}
		last = now
		time.Sleep(lookEvery)
	}
	return last, nil
}

// pipeListener is given its connections.
type pipeListener struct {
	conns  chan net.Conn
	once   sync.Once
	closed chan struct{}
}

// Accept returns the next one.
func (l *pipeListener) Accept() (net.Conn, error) {
	select {
	case c := <-l.conns:
		return c, nil
	case <-l.closed:
		return nil, net.ErrClosed
	}
}

// Close ends Accept.
func (l *pipeListener) Close() error {
	l.once.Do(func() { close(l.closed) })
	return nil
}

// Addr returns the address that every pipe has.
func (l *pipeListener) Addr() net.Addr {
	c, _ := net.Pipe()
	return c.LocalAddr()
}
