package client_test

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/everonce/everonce/httponce/client"
)

const cut = "HTTP/1.1 201 Created\r\nContent-Length: 7\r\n\r\ncha"

// The last attempt's answer comes back though it is cut off, as net/http would give it: the status says something.
func TestTransportLastAnswerIsCutOff(t *testing.T) {
	wire := onTheWire(t, answers(cut))
	resp, err := post(t, over(t, base(), &client.Options{MaxAttempts: 3}), wire.url)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	got, err := io.ReadAll(resp.Body)
	if resp.StatusCode != http.StatusCreated || string(got) != "cha" || !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("got %d %q, %v", resp.StatusCode, got, err)
	}
	if bodies, _ := wire.requests(t); len(bodies) != 3 {
		t.Errorf("%d requests, want 3", len(bodies))
	}
}

// A 409 that is cut off says nothing yet: it is asked for again, and is the answer where it was the last.
func TestTransportConflictIsCutOff(t *testing.T) {
	const cut = "HTTP/1.1 409 Conflict\r\nContent-Type: application/problem+json\r\nContent-Length: 90\r\n\r\n{\"type\""
	wire := onTheWire(t, answers(cut), answers(created))
	resp, err := post(t, over(t, base(), nil), wire.url)
	wantAnswer(t, resp, err, http.StatusCreated, "charged")
	wire = onTheWire(t, answers(cut))
	resp, err = post(t, over(t, base(), &client.Options{MaxAttempts: 2}), wire.url)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if got, err := io.ReadAll(resp.Body); resp.StatusCode != http.StatusConflict || string(got) != `{"type"` || !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("got %d %q, %v", resp.StatusCode, got, err)
	}
}

// An answer that is not read as a whole is the caller's: too large, a stream, or by choice.
func TestTransportDoesNotBuffer(t *testing.T) {
	for name, tc := range map[string]struct {
		opts client.Options
		text string
		want string
	}{
		"by choice":                  {client.Options{BufferAnswer: -1}, cut, "cha"},
		"larger by its length":       {client.Options{BufferAnswer: 6}, cut, "cha"},
		"larger, without a length":   {client.Options{BufferAnswer: 2}, "HTTP/1.1 201 Created\r\nTransfer-Encoding: chunked\r\n\r\n3\r\ncha\r\n", "cha"},
		"a stream of events":         {client.Options{}, "HTTP/1.1 201 Created\r\nContent-Type: text/event-stream; charset=utf-8\r\nContent-Length: 7\r\n\r\ncha", "cha"},
		"a stream of lines of JSON":  {client.Options{}, "HTTP/1.1 201 Created\r\nContent-Type: application/x-ndjson\r\nContent-Length: 7\r\n\r\ncha", "cha"},
		"a stream of gRPC":           {client.Options{}, "HTTP/1.1 201 Created\r\nContent-Type: application/grpc+proto\r\nContent-Length: 7\r\n\r\ncha", "cha"},
		"exactly as large, complete": {client.Options{BufferAnswer: 7}, created, "charged"},
	} {
		t.Run(name, func(t *testing.T) {
			wire := onTheWire(t, answers(tc.text))
			resp, err := post(t, over(t, base(), &tc.opts), wire.url)
			if err != nil {
				t.Fatal(err)
			}
			defer resp.Body.Close()
			got, err := io.ReadAll(resp.Body)
			if string(got) != tc.want || (tc.want == "cha") != errors.Is(err, io.ErrUnexpectedEOF) {
				t.Errorf("got %q, %v; want %q", got, err, tc.want)
			}
			if bodies, _ := wire.requests(t); len(bodies) != 1 {
				t.Errorf("%d requests, want 1", len(bodies))
			}
		})
	}
}

// An answer of just BufferAnswer bytes is read as a whole, and so asked for again where it is cut off.
func TestTransportBuffersUpToItsLimit(t *testing.T) {
	wire := onTheWire(t, answers(cut), answers(created))
	resp, err := post(t, over(t, base(), &client.Options{BufferAnswer: 7}), wire.url)
	wantAnswer(t, resp, err, http.StatusCreated, "charged")
}

// twoWays is the body of an upgrade.
type twoWays struct{ io.Reader }

func (twoWays) Write(p []byte) (int, error) { return len(p), nil }
func (twoWays) Close() error                { return nil }

// An attempt gives back its timer and its context when it is over: with its error, with an answer that is read here or
// to its end by the caller, or when the caller closes it.
func TestTransportGivesBackWhatAnAttemptHolds(t *testing.T) {
	for name, tc := range map[string]struct {
		status int // 0: an error
		buffer int64
		end    func(io.ReadCloser)
		empty  bool
	}{
		"an error":              {status: 0},
		"a refusal":             {status: 503, end: func(io.ReadCloser) {}},
		"an answer":             {status: 200, end: func(io.ReadCloser) {}},
		"an answer without one": {status: 204, end: func(io.ReadCloser) {}, empty: true},
		"read by the caller":    {status: 200, buffer: -1, end: func(b io.ReadCloser) { _, _ = io.Copy(io.Discard, b) }},
		"closed by the caller":  {status: 200, buffer: -1, end: func(b io.ReadCloser) { b.Close() }},
		"an upgrade, is closed": {status: 101, end: func(b io.ReadCloser) { b.Close() }},
	} {
		synctest.Test(t, func(t *testing.T) {
			var attempts []context.Context
			base := roundTrip(func(r *http.Request) (*http.Response, error) {
				_ = r.Body.Close()
				if attempts = append(attempts, r.Context()); tc.status == 0 {
					return nil, io.ErrUnexpectedEOF
				}
				if tc.empty {
					return &http.Response{StatusCode: tc.status, Body: http.NoBody, Header: http.Header{}}, nil
				}
				return &http.Response{StatusCode: tc.status, Body: twoWays{strings.NewReader("text")}, Header: http.Header{}, ContentLength: -1}, nil
			})
			opts := &client.Options{MaxAttempts: 2, MaxElapsed: -1, AttemptTimeout: time.Hour, BufferAnswer: tc.buffer}
			resp, err := post(t, over(t, base, opts), "http://pay.example/")
			if (err != nil) != (tc.status == 0) {
				t.Fatal(err)
			}
			if err == nil {
				tc.end(resp.Body)
			}
			for i, ctx := range attempts {
				if ctx.Err() == nil {
					t.Errorf("%s: attempt %d is not over", name, i+1)
				}
			}
		})
	}
}

// A stream arrives as it is sent, and the limit of the attempt does not end it.
func TestTransportStreamOutlivesTheAttempt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		base, _ := serve(t, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "text/event-stream")
			for i := range 5 {
				_, _ = io.WriteString(w, strconv.Itoa(i)+"\n")
				_ = http.NewResponseController(w).Flush()
				<-time.After(time.Minute)
			}
		})
		begun := time.Now()
		resp, err := post(t, over(t, base, nil), "http://pay.example/")
		if err != nil {
			t.Fatal(err)
		}
		lines := bufio.NewScanner(resp.Body)
		for i := range 5 {
			if !lines.Scan() || lines.Text() != strconv.Itoa(i) || time.Since(begun) != time.Duration(i)*time.Minute {
				t.Fatalf("line %d is %q, after %v: %v", i, lines.Text(), time.Since(begun), lines.Err())
			}
		}
		if lines.Scan() || lines.Err() != nil {
			t.Errorf("there is more: %q, %v", lines.Text(), lines.Err())
		}
		resp.Body.Close()
	})
}

// The request's context ends a stream that was handed on, as it does without this transport.
func TestTransportContextEndsAStream(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		base, _ := serve(t, func(w http.ResponseWriter, r *http.Request) {
			_, _ = io.Copy(io.Discard, r.Body)
			w.Header().Set("Content-Type", "text/event-stream")
			_ = http.NewResponseController(w).Flush()
			<-r.Context().Done()
		})
		ctx, cancel := context.WithCancel(t.Context())
		resp, err := postWith(ctx, over(t, base, nil), "http://pay.example/")
		if err != nil {
			t.Fatal(err)
		}
		cancel()
		if _, err := resp.Body.Read(make([]byte, 1)); !errors.Is(err, context.Canceled) {
			t.Errorf("the stream ended with %v", err)
		}
		resp.Body.Close()
	})
}

// An answer that comes too slowly is cut off by the attempt's limit, and asked for again.
func TestTransportSlowAnswerIsAskedForAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var requests atomic.Int32
		base, _ := serve(t, func(w http.ResponseWriter, r *http.Request) {
			_, _ = io.Copy(io.Discard, r.Body)
			w.WriteHeader(http.StatusCreated)
			_, _ = io.WriteString(w, "cha")
			if requests.Add(1) == 1 {
				_ = http.NewResponseController(w).Flush()
				<-r.Context().Done()
			}
			_, _ = io.WriteString(w, "rged")
		})
		begun := time.Now()
		resp, err := post(t, over(t, base, &client.Options{AttemptTimeout: 5 * time.Second}), "http://pay.example/")
		wantAnswer(t, resp, err, http.StatusCreated, "charged")
		if took := time.Since(begun); took < 5*time.Second || took > 6*time.Second || requests.Load() != 2 {
			t.Errorf("%d requests in %v", requests.Load(), took)
		}
	})
}

// Dropped answers are read up to a bound, so that the connection can be used again, and no further.
func TestTransportDropsAnswers(t *testing.T) {
	for name, tc := range map[string]struct {
		write func(w http.ResponseWriter, r *http.Request)
		dials int32
	}{
		"short": {func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, strings.Repeat("x", 60<<10)) }, 1},
		"long":  {func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, strings.Repeat("x", 1<<20)) }, 2},
		"endless": {func(w http.ResponseWriter, r *http.Request) {
			_ = http.NewResponseController(w).Flush()
			<-r.Context().Done()
		}, 2},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				first := true
				base, pipes := serve(t, func(w http.ResponseWriter, r *http.Request) {
					_, _ = io.Copy(io.Discard, r.Body)
					if first {
						first = false
						w.WriteHeader(http.StatusServiceUnavailable)
						tc.write(w, r)
					}
				})
				begun := time.Now()
				resp, err := post(t, over(t, base, nil), "http://pay.example/")
				wantAnswer(t, resp, err, http.StatusOK, "")
				if took := time.Since(begun); pipes.dials.Load() != tc.dials || took > time.Second+time.Millisecond {
					t.Errorf("%d connections in %v, want %d", pipes.dials.Load(), took, tc.dials)
				}
			})
		})
	}
}

// Reading a dropped answer leaves time for the next attempt.
func TestTransportDropsAnswersWithinMaxElapsed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		first := true
		base, _ := serve(t, func(w http.ResponseWriter, r *http.Request) {
			if first {
				first = false
				w.WriteHeader(http.StatusServiceUnavailable)
				_ = http.NewResponseController(w).Flush()
				<-r.Context().Done()
			}
		})
		begun := time.Now()
		resp, err := post(t, over(t, base, &client.Options{MaxElapsed: 500 * time.Millisecond}), "http://pay.example/")
		wantAnswer(t, resp, err, http.StatusOK, "")
		if took := time.Since(begun); took >= 500*time.Millisecond {
			t.Errorf("it took %v", took)
		}
	})
}

// Every answer that is not handed on is closed, and every one that is, is closed by its reader.
func TestTransportClosesAnswers(t *testing.T) {
	var bodies []*reader
	base := roundTrip(func(r *http.Request) (*http.Response, error) {
		_ = r.Body.Close()
		code := http.StatusServiceUnavailable
		if len(bodies) == 3 {
			code = http.StatusOK
		}
		b := &reader{Reader: strings.NewReader("text")}
		bodies = append(bodies, b)
		return &http.Response{StatusCode: code, Body: b, Header: http.Header{}, ContentLength: -1}, nil
	})
	for _, buffer := range []int64{0, -1} {
		bodies = nil
		resp, err := post(t, over(t, base, &client.Options{BufferAnswer: buffer}), "http://pay.example/")
		wantAnswer(t, resp, err, http.StatusOK, "text")
		for i, b := range bodies {
			if !b.closed {
				t.Errorf("the body of answer %d is open", i+1)
			}
		}
		if len(bodies) != 4 {
			t.Errorf("%d answers, want 4", len(bodies))
		}
	}
}

// The trailer of an answer that was read as a whole is available at once.
func TestTransportKeepsTrailers(t *testing.T) {
	url, _ := first(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Trailer", "Sum")
		_, _ = io.WriteString(w, "charged")
		w.Header().Set("Sum", "42")
	})
	resp, err := post(t, over(t, nil, nil), url)
	wantAnswer(t, resp, err, http.StatusOK, "charged")
	if got := resp.Trailer.Get("Sum"); got != "42" {
		t.Errorf("the trailer is %v", resp.Trailer)
	}
}

// A connection that is upgraded goes both ways.
func TestTransportUpgrade(t *testing.T) {
	wire := onTheWire(t, func(c net.Conn) {
		if reads(c) == nil {
			return
		}
		_, _ = io.WriteString(c, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n")
		_, _ = io.CopyN(c, c, 4)
	})
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, wire.url, http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Connection", "Upgrade")
	req.Header.Set("Upgrade", "echo")
	resp, err := over(t, base(), nil).Do(req)
	if err != nil {
		t.Fatal(err)
	}
	both, ok := resp.Body.(io.ReadWriteCloser)
	if resp.StatusCode != http.StatusSwitchingProtocols || !ok {
		t.Fatalf("got %s with a %T", resp.Status, resp.Body)
	}
	if _, err := io.WriteString(both, "ping"); err != nil {
		t.Fatal(err)
	}
	if got, err := io.ReadAll(both); string(got) != "ping" || err != nil {
		t.Errorf("got %q, %v", got, err)
	}
	if err := both.Close(); err != nil {
		t.Error(err)
	}
}
