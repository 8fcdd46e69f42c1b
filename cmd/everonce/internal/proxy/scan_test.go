package proxy

import (
	"bytes"
	"errors"
	"testing"
)

// What a scanner says does not depend on how the bytes arrive.
func FuzzHeadScanner(f *testing.F) {
	for _, seed := range []string{
		"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\nabGET / HTTP/1.1\r\n\r\n",
		"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\nContent-Length: 2\r\n\r\n",
		"GET / HTTP/1.1\nHost: a\r\n\r\n", "GET / HTTP/1.1\r\nA: b\r\n c\r\n\r\n", "\r\n\r\nGET / HTTP/1.0\r\nTransfer-Encoding: x\r\n\r\n",
		"GET / HTTP/1.1\r\nUpgrade: x\r\n\r\n\n\n\n",
	} {
		f.Add([]byte(seed), 3)
	}
	f.Fuzz(func(t *testing.T, text []byte, step int) {
		var whole, pieces headScanner
		good, err := whole.scan(text)
		if good < 0 || good > len(text) || err == nil && good != len(text) {
			t.Fatalf("%d of %d are good, and the error is %v", good, len(text), err)
		}
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
