package client_test

import (
	"context"
	"encoding/binary"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/everonce/everonce/httponce/client"
)

// Frames and errors of RFC 9113.
const (
	h2FrameData, h2FrameHeaders, h2FrameReset, h2FrameSettings, h2FrameGoAway = 0, 1, 3, 4, 7
	h2FlagEndStream, h2FlagAck, h2FlagEndHeaders                              = 1, 1, 4
	h2NoError, h2ProtocolError, h2InternalError, h2RefusedStream, h2Calm      = 0, 1, 2, 7, 11
)

// h2Peer is the server's end of an HTTP/2 connection, frame by frame. It reads while it writes, as the client does.
type h2Peer struct {
	net.Conn
	out chan []byte
}

func (p h2Peer) write(kind, flags byte, stream uint32, payload []byte) {
	frame := binary.BigEndian.AppendUint32(nil, uint32(len(payload))<<8|uint32(kind))
	frame = binary.BigEndian.AppendUint32(append(frame, flags), stream)
	p.out <- append(frame, payload...)
}

func (p h2Peer) reset(stream uint32, code uint32) {
	p.write(h2FrameReset, 0, stream, binary.BigEndian.AppendUint32(nil, code))
}

func (p h2Peer) goAway(last, code uint32) {
	p.write(h2FrameGoAway, 0, 0, binary.BigEndian.AppendUint32(binary.BigEndian.AppendUint32(nil, last), code))
}

// answer begins an answer: status 200, and some of its body.
func (p h2Peer) answer(stream uint32, body string) {
	p.write(h2FrameHeaders, h2FlagEndHeaders, stream, []byte{0x88}) // :status 200, from the static table
	p.write(h2FrameData, 0, stream, []byte(body))
}

// serveHTTP2 is a server on a network in memory that calls act for each request.
func serveHTTP2(t *testing.T, act func(p h2Peer, stream uint32) (more bool)) *pipes {
	t.Helper()
	pipes := newPipes()
	var all sync.WaitGroup
	all.Go(func() {
		for {
			c, err := pipes.Accept()
			if err != nil {
				return
			}
			all.Go(func() {
				defer c.Close()
				serveFrames(c, act)
			})
		}
	})
	t.Cleanup(func() {
		pipes.close()
		all.Wait()
	})
	return pipes
}

// serveFrames reads requests to their end and calls act for each, until the connection ends or act returns false.
// Pending writes are done before it returns.
func serveFrames(c net.Conn, act func(p h2Peer, stream uint32) (more bool)) {
	p := h2Peer{c, make(chan []byte, 100)}
	var writer sync.WaitGroup
	writer.Go(func() {
		for frame := range p.out {
			_, _ = c.Write(frame)
		}
	})
	defer func() {
		close(p.out)
		go func() { _, _ = io.Copy(io.Discard, c) }() // the client may be writing, and reads only afterwards
		writer.Wait()
	}()
	if _, err := io.ReadFull(p, make([]byte, 24)); err != nil { // the preface
		return
	}
	p.write(h2FrameSettings, 0, 0, nil)
	var head [9]byte
	for {
		if _, err := io.ReadFull(p, head[:]); err != nil {
			return
		}
		kind, flags, stream := head[3], head[4], binary.BigEndian.Uint32(head[5:])
		if _, err := io.CopyN(io.Discard, p, int64(binary.BigEndian.Uint32(head[:4])>>8)); err != nil {
			return
		}
		switch {
		case kind == h2FrameSettings && flags&h2FlagAck == 0:
			p.write(h2FrameSettings, h2FlagAck, 0, nil)
		case (kind == h2FrameHeaders || kind == h2FrameData) && flags&h2FlagEndStream != 0:
			if !act(p, stream) {
				return
			}
		}
	}
}

// h2C is HTTP/2 without TLS.
func h2C() *http.Protocols {
	p := new(http.Protocols)
	p.SetUnencryptedHTTP2(true)
	return p
}

// An HTTP/2 server refuses instead of answering. net/http repeats a request that was surely not processed; the
// transport retries the others. Either way the server that answers gets the body and the key of the first attempt.
func TestTransportHTTP2(t *testing.T) {
	for name, tc := range map[string]struct {
		act      func(p h2Peer, stream uint32) bool
		byItself bool
	}{
		"GOAWAY before the request":     {func(p h2Peer, _ uint32) bool { p.goAway(0, h2NoError); return false }, true},
		"GOAWAY after the request":      {func(p h2Peer, s uint32) bool { p.goAway(s, h2NoError); return false }, false},
		"GOAWAY with an internal error": {func(p h2Peer, s uint32) bool { p.goAway(s, h2InternalError); return false }, false},
		"GOAWAY, enhance your calm":     {func(p h2Peer, s uint32) bool { p.goAway(s, h2Calm); return false }, false},
		"REFUSED_STREAM":                {func(p h2Peer, s uint32) bool { p.reset(s, h2RefusedStream); return true }, true},
		"PROTOCOL_ERROR":                {func(p h2Peer, s uint32) bool { p.reset(s, h2ProtocolError); return true }, true},
		"INTERNAL_ERROR":                {func(p h2Peer, s uint32) bool { p.reset(s, h2InternalError); return true }, false},
		"the connection ends":           {func(h2Peer, uint32) bool { return false }, false},
		"the body is reset":             {func(p h2Peer, s uint32) bool { p.answer(s, "cha"); p.reset(s, h2InternalError); return true }, false},
		"the body breaks off":           {func(p h2Peer, s uint32) bool { p.answer(s, "cha"); return false }, false},
		"GOAWAY within the body":        {func(p h2Peer, s uint32) bool { p.answer(s, "cha"); p.goAway(s, h2InternalError); return false }, false},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var keys, bodies []string
				base, good := serve(t, func(w http.ResponseWriter, r *http.Request) {
					body, err := io.ReadAll(r.Body)
					if err != nil {
						return
					}
					keys, bodies = append(keys, r.Proto+" "+r.Header.Get("Idempotency-Key")), append(bodies, string(body))
					_, _ = io.WriteString(w, "charged")
				})
				sent := 0
				bad := serveHTTP2(t, func(p h2Peer, stream uint32) bool {
					if sent++; sent > 1 {
						p.goAway(0, h2NoError) // a second request on this connection goes elsewhere
						return false
					}
					return tc.act(p, stream)
				})
				first := true
				base.Protocols = h2C()
				base.DialContext = func(ctx context.Context, network, addr string) (net.Conn, error) {
					if first {
						first = false
						return bad.dial(ctx, network, addr)
					}
					return good.dial(ctx, network, addr)
				}
				retries := 0
				sender := over(t, base, &client.Options{OnRetry: func(context.Context, client.Retry) { retries++ }})
				resp, err := post(t, sender, "http://pay.example/")
				wantAnswer(t, resp, err, http.StatusOK, "charged")
				if want := "HTTP/2.0 " + resp.Request.Header.Get("Idempotency-Key"); !slices.Equal(keys, []string{want}) || !slices.Equal(bodies, []string{"charge"}) {
					t.Errorf("the server that answers got the bodies %q and the keys %q, want %s", bodies, keys, want)
				}
				if want := map[bool]int{true: 0, false: 1}[tc.byItself]; retries != want {
					t.Errorf("%d attempts more, want %d", retries, want)
				}
			})
		})
	}
}

// A server that refuses every stream: net/http repeats each attempt seven times before it says so.
func TestTransportTrapHTTP2SendsAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var sent atomic.Int32
		pipes := serveHTTP2(t, func(p h2Peer, stream uint32) bool {
			sent.Add(1)
			p.reset(stream, h2RefusedStream)
			return true
		})
		base := &http.Transport{DialContext: pipes.dial, Protocols: h2C()}
		t.Cleanup(base.CloseIdleConnections)
		sender := over(t, base, &client.Options{MaxAttempts: 2, AttemptTimeout: -1, MaxElapsed: 10 * time.Minute})
		resp, err := post(t, sender, "http://pay.example/")
		wantError(t, resp, err, 2)
		if !strings.Contains(err.Error(), "REFUSED_STREAM") || sent.Load() != 2*8 {
			t.Errorf("%d requests on the wire, want 16; the error is %v", sent.Load(), err)
		}
	})
}

// The same over TLS, with Go's own server: statuses, a handler that gives up in the middle of its answer, and the end
// of the server.
func TestTransportHTTP2OverTLS(t *testing.T) {
	var keys []string
	srv := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		keys = append(keys, r.Proto+" "+r.Header.Get("Idempotency-Key"))
		switch len(keys) {
		case 1:
			w.WriteHeader(http.StatusServiceUnavailable)
		case 2:
			_, _ = io.WriteString(w, "cha")
			_ = http.NewResponseController(w).Flush()
			panic(http.ErrAbortHandler)
		case 3:
			panic(http.ErrAbortHandler)
		default:
			_, _ = io.WriteString(w, "charged")
		}
	}))
	srv.EnableHTTP2 = true
	srv.StartTLS()
	t.Cleanup(srv.Close)
	resp, err := post(t, over(t, srv.Client().Transport, nil), srv.URL)
	wantAnswer(t, resp, err, http.StatusOK, "charged")
	want := "HTTP/2.0 " + resp.Request.Header.Get("Idempotency-Key")
	if !slices.Equal(keys, []string{want, want, want, want}) {
		t.Errorf("the server got %q, want four times %s", keys, want)
	}
}
