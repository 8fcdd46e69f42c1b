package proxy

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"net/http"
	"testing"
)

// The scanner's verdict does not depend on how the bytes arrive, and it looks for a head where net/http reads one.
func FuzzHeadScanner(f *testing.F) {
	for _, seed := range []string{
		"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\nabGET / HTTP/1.1\r\n\r\n",
		"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\nContent-Length: 2\r\n\r\n",
		"GET / HTTP/1.1\nHost: a\r\n\r\n", "GET / HTTP/1.1\r\nA: b\r\n c\r\n\r\n", "\r\n\r\nGET / HTTP/1.0\r\nTransfer-Encoding: x\r\n\r\n",
		"GET / HTTP/1.1\r\nUpgrade: x\r\n\r\n\n\n\n",
		"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 02\r\n\r\nabGET / HTTP/1.1\r\nHost: a\r\n\r\n",
		"POST / HTTP/1.1\r\nHost: a\r\nContent-Length:\t1 \r\nX-Content-Length: 9\r\n\r\naGET / HTTP/1.1\r\nHost: a\r\n\r\n",
		"POST / HTTP/1.0\r\nContent-Length: 1\r\n\r\naGET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n",
		"POST / HTTP/1.1\r\nHost: a\r\nContent-Length : 2\r\n\r\nabGET / HTTP/1.1\r\nHost: a\r\n\r\n",
		"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 00000000000000000000000000000000000000000000000000000000000000000002\r\n\r\nab",
	} {
		f.Add([]byte(seed), 3)
	}
	f.Fuzz(func(t *testing.T, text []byte, step int) {
		var whole, pieces headScanner
		good, err := whole.scan(text)
		if good < 0 || good > len(text) || err == nil && good != len(text) {
			t.Fatalf("%d of %d are good, and the error is %v", good, len(text), err)
		}
		agrees(t, text)
		step = max(1, step%7)
		total, rest := 0, text
		for len(rest) > 0 {
			piece := rest[:min(step, len(rest))]
			n, bad := pieces.scan(piece)
			if total += n; bad != nil {
				if !errors.Is(bad, err) || total != good {
					t.Fatalf("in pieces: %v after %d; at once: %v after %d", bad, total, err, good)
				}
				return
			}
			rest = rest[len(piece):]
		}
		if err != nil || total != good {
			t.Fatalf("in pieces: all of %d; at once: %v after %d", total, err, good)
		}
	})
}

// agrees checks that where net/http reads a request the scanner looks for its head: else one could hide in what it
// takes for a body.
func agrees(t *testing.T, text []byte) {
	t.Helper()
	in := bytes.NewReader(text)
	buffered := bufio.NewReader(in)
	for {
		at := len(text) - in.Len() - buffered.Buffered()
		var s headScanner
		if _, err := s.scan(text[:at]); err != nil || s.state == scanRest {
			return // it lets no more through; or there is chunked coding, or no HTTP any more
		}
		if s.state != scanHead || s.begun || len(s.line) > 0 {
			t.Fatalf("net/http reads a request at %d of %q, and the scanner is in the middle of something", at, text)
		}
		r, err := http.ReadRequest(buffered)
		if err != nil {
			return
		}
		if _, err := io.Copy(io.Discard, r.Body); err != nil {
			return
		}
	}
}

// A body is not looked at, and the head behind it is.
func TestHeadScannerFindsTheNextHead(t *testing.T) {
	body := bytes.Repeat([]byte("\n \r"), 100)
	text := append([]byte("PUT / HTTP/1.1\r\nContent-Length: 300\r\n\r\n"), body...)
	var s headScanner
	if good, err := s.scan(text); good != len(text) || err != nil {
		t.Errorf("%d, %v", good, err)
	}
	if good, err := s.scan([]byte("GET /\n")); good != 5 || !errors.Is(err, errBareLF) {
		t.Errorf("%d, %v", good, err)
	}
}
