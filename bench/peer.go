package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/gofiber/fiber/v3"
	"github.com/gofiber/fiber/v3/middleware/idempotency"
	"github.com/valyala/fasthttp"
)

// peer is gofiber/fiber's idempotency middleware around fiber's own bare handler, driven as its server does: a
// request is parsed into a context that is used again, and the handler called. It has no principal, no
// fingerprint and no lease; its key is its header's value.
type peer struct {
	bare, protected fasthttp.RequestHandler
	storage         *peerStorage

	wire   *wire
	bytes  bytes.Reader
	reader *bufio.Reader
	ctx    fasthttp.RequestCtx
}

func newPeer(body []byte, handle fiber.Handler) *peer {
	p := &peer{wire: newWire("pay.example", body), storage: &peerStorage{}}
	p.reader = bufio.NewReader(&p.bytes)
	p.ctx.Init(&fasthttp.Request{}, nil, nil)
	bare, protected := fiber.New(), fiber.New()
	bare.Post("/payments", handle)
	protected.Use(idempotency.New(idempotency.Config{KeyHeader: "Idempotency-Key", Storage: p.storage}))
	protected.Post("/payments", handle)
	p.bare, p.protected = bare.Handler(), protected.Handler()
	return p
}

// payOnFiber is pay.
func payOnFiber(c fiber.Ctx) error {
	var in payment
	if err := c.Bind().JSON(&in); err != nil {
		return err
	}
	return c.Status(fiber.StatusCreated).JSON(answerOf(in))
}

// takeOnFiber is take: fasthttp has read the body before it calls a handler.
func takeOnFiber(c fiber.Ctx) error {
	return c.Status(fiber.StatusCreated).Send(sampleBytes)
}

func (p *peer) empty() error { return p.storage.Reset() }

func (p *peer) way(name string, h fasthttp.RequestHandler, keys []string) *way {
	return &way{name: name, do: func(_ context.Context, n int64) error { return p.do(h, keys[n%int64(len(keys))]) }}
}

func (p *peer) do(h fasthttp.RequestHandler, key string) error {
	p.bytes.Reset(p.wire.with(key))
	p.reader.Reset(&p.bytes)
	p.ctx.Request.Reset()
	p.ctx.Response.Reset()
	p.ctx.ResetUserValues()
	if err := p.ctx.Request.Read(p.reader); err != nil {
		return err
	}
	h(&p.ctx)
	if status := p.ctx.Response.StatusCode(); status != fiber.StatusCreated || len(p.ctx.Response.Body()) == 0 {
		return fmt.Errorf("fiber answered %d: %s", status, p.ctx.Response.Body())
	}
	return nil
}

// peerStorage is what the middleware has by default, a map behind a lock that copies what goes in and out, but
// for the goroutine that looks for what has expired; and it can be emptied for the next turn.
type peerStorage struct {
	mu sync.RWMutex
	m  map[string][]byte
}

// Get returns what is stored.
func (s *peerStorage) Get(key string) ([]byte, error) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return bytes.Clone(s.m[key]), nil
}

// GetWithContext is Get.
func (s *peerStorage) GetWithContext(_ context.Context, key string) ([]byte, error) {
	return s.Get(key)
}

// Set stores.
func (s *peerStorage) Set(key string, val []byte, _ time.Duration) error {
	key, val = strings.Clone(key), bytes.Clone(val)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.m[key] = val
	return nil
}

// SetWithContext is Set.
func (s *peerStorage) SetWithContext(_ context.Context, key string, val []byte, exp time.Duration) error {
	return s.Set(key, val, exp)
}

// Reset empties it.
func (s *peerStorage) Reset() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.m = map[string][]byte{}
	return nil
}

// ResetWithContext is Reset.
func (s *peerStorage) ResetWithContext(context.Context) error { return s.Reset() }

var errNotUsed = errors.New("the idempotency middleware deletes nothing")

// Delete is not called.
func (s *peerStorage) Delete(string) error { return errNotUsed }

// DeleteWithContext is not called.
func (s *peerStorage) DeleteWithContext(context.Context, string) error { return errNotUsed }

// Close does nothing.
func (s *peerStorage) Close() error { return nil }
