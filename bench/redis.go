package main

import (
	"context"
	"crypto/rand"
	"crypto/tls"
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"os"
	"sync/atomic"
	"time"

	"github.com/redis/rueidis"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/store/redisstore"
)

const (
	redisCallers = 64
	// recordBytes is the length of a record in Redis, with keys and an owner like ours.
	recordBytes = 200
)

// redisBench is a separate prefix on the server that the tests use.
type redisBench struct {
	client rueidis.Client
	prefix string
	trips  atomic.Int64
	do     *everonce.Receiver
	first  *everonce.Receiver // reads first
}

func redis(ctx context.Context) ([]*contest, func() error, error) {
	url := os.Getenv("EVERONCE_TEST_REDIS_URL")
	if url == "" {
		return nil, nil, errors.New(`no Redis: run it by make bench, or set EVERONCE_TEST_REDIS_URL, or choose others with -only`)
	}
	b := &redisBench{}
	if err := b.open(ctx, url); err != nil {
		return nil, nil, errors.Join(err, b.close())
	}
	return []*contest{b.guarded(), b.replays()}, b.close, nil
}

func (b *redisBench) open(ctx context.Context, url string) error {
	opt, err := rueidis.ParseURL(url)
	if err != nil {
		return err
	}
	opt.DialCtxFn = b.dial
	if b.client, err = rueidis.NewClient(opt); err != nil {
		return err
	}
	random := make([]byte, 6)
	if _, err := rand.Read(random); err != nil {
		return err
	}
	b.prefix = "bench-" + hex.EncodeToString(random) + ":"
	for to, readFirst := range map[**everonce.Receiver]bool{&b.do: false, &b.first: true} {
		store, err := redisstore.New(ctx, b.client, &redisstore.Options{KeyPrefix: b.prefix, ReadFirst: readFirst})
		if err != nil {
			return err
		}
		if *to, err = everonce.NewReceiver(store, everonce.Refuse, &everonce.Options{Codec: everonce.Raw()}); err != nil {
			return err
		}
	}
	return b.fill(ctx)
}

// fill does the operations that are replayed later, ours and those by hand.
func (b *redisBench) fill(ctx context.Context) error {
	for n := range int64(knownKeys) {
		if _, err := b.perform(ctx, b.do, knownKey(n)); err != nil {
			return err
		}
		if err := b.set(ctx, b.name(knownKey(n)), make([]byte, recordBytes+len(sampleBytes))); err != nil {
			return err
		}
	}
	return nil
}

// dial counts round trips: what is written after something was read is a new one. The calls of many callers share
// them.
func (b *redisBench) dial(ctx context.Context, addr string, dialer *net.Dialer, _ *tls.Config) (net.Conn, error) {
	conn, err := dialer.DialContext(ctx, "tcp", addr)
	if err != nil {
		return nil, err
	}
	return &countingConn{Conn: conn, trips: &b.trips}, nil
}

func (b *redisBench) close() error {
	if b.client == nil {
		return nil
	}
	defer b.client.Close()
	ctx := context.Background()
	for cursor := uint64(0); b.prefix != ""; {
		page, err := b.client.Do(ctx, b.client.B().Scan().Cursor(cursor).Match(b.prefix+"*").Count(1000).Build()).AsScanEntry()
		if err != nil {
			return err
		}
		if len(page.Elements) > 0 {
			if err := b.client.Do(ctx, b.client.B().Unlink().Key(page.Elements...).Build()).Error(); err != nil {
				return err
			}
		}
		if cursor = page.Cursor; cursor == 0 {
			break
		}
	}
	return nil
}

func (b *redisBench) perform(ctx context.Context, r *everonce.Receiver, key everonce.Key) (everonce.Outcome, error) {
	res, err := everonce.Do(ctx, r, key, func(context.Context, *everonce.Attempt) ([]byte, error) { return sampleBytes, nil })
	return res.Outcome, err
}

// name is the key of the way by hand.
func (b *redisBench) name(key everonce.Key) string {
	return b.prefix + string(key.Scope) + ":" + key.ID
}

func (b *redisBench) set(ctx context.Context, name string, value []byte) error {
	return b.client.Do(ctx, b.client.B().Set().Key(name).Value(rueidis.BinaryString(value)).ExSeconds(86400).Build()).Error()
}

// guarded: new keys, and an effect elsewhere that costs nothing. Bare is the lock and the result, without fence, lease,
// fingerprint and tombstone.
func (b *redisBench) guarded() *contest {
	bare := &way{name: "bare: SET NX, SET", do: func(ctx context.Context, n int64) error {
		name := b.name(mailKey(n))
		err := b.client.Do(ctx, b.client.B().Set().Key(name).Value("processing").Nx().ExSeconds(86400).Build()).Error()
		if err != nil { // nil where the key is not new
			return err
		}
		return b.set(ctx, name, sampleBytes)
	}}
	ours := &way{name: "ours", do: func(ctx context.Context, n int64) error {
		o, err := b.perform(ctx, b.do, mailKey(n))
		return expect(o, everonce.Executed, err)
	}}
	return &contest{
		store: "Redis", mode: "guarded, new keys", callers: redisCallers, trips: &b.trips,
		ways:    []*way{bare, ours},
		targets: []target{ours.atLeast(0.55, bare, "Redis, guarded, new keys: of SET NX and SET")},
	}
}

// replays: known keys, by callers with a deadline, as a handler's requests have one: without it we make that context,
// for Options.StoreTimeout, and the GET by hand has no bound.
func (b *redisBench) replays() *contest {
	within := func(do func(context.Context, int64) error) func(context.Context, int64) error {
		return func(ctx context.Context, n int64) error {
			ctx, cancel := context.WithTimeout(ctx, time.Second)
			defer cancel()
			return do(ctx, n)
		}
	}
	// As many bytes as a replay reads: a record and its result.
	bare := &way{name: "bare: GET of as many bytes", do: within(func(ctx context.Context, n int64) error {
		value, err := b.client.Do(ctx, b.client.B().Get().Key(b.name(knownKey(n))).Build()).AsBytes()
		if err == nil && len(value) != recordBytes+len(sampleBytes) {
			err = fmt.Errorf("%d bytes", len(value))
		}
		return err
	})}
	replay := func(r *everonce.Receiver) func(context.Context, int64) error {
		return func(ctx context.Context, n int64) error {
			o, err := b.perform(ctx, r, knownKey(n))
			return expect(o, everonce.Replayed, err)
		}
	}
	claim := &way{name: "ours, through the claim", do: within(replay(b.do))}
	first := &way{name: "ours, read first", do: within(replay(b.first))}
	noBound := &way{name: "ours, read first, without a deadline", do: replay(b.first)}
	return &contest{
		store: "Redis", mode: "guarded, replay", callers: redisCallers, trips: &b.trips,
		ways: []*way{bare, claim, first, noBound},
		targets: []target{
			claim.atLeast(0.8, bare, "Redis, replay through the claim: of GET"),
			first.atLeast(0.9, bare, "Redis, replay, read first: of GET"),
		},
	}
}
