package proxy

import (
	"bufio"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
)

// raw sends bytes to a proxy and returns all that it answers until it closes the connection.
func raw(t *testing.T, p *proxied, text string) string {
	t.Helper()
	c, err := net.Dial("tcp", strings.TrimPrefix(p.url, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if _, err := io.WriteString(c, text); err != nil {
		t.Fatal(err)
	}
	answer, _ := io.ReadAll(c) // a reset is an end, too
	return string(answer)
}

// A request that two servers in a row could read differently is rejected, and no part of it reaches the upstream.
func TestProxyRefusesSmuggling(t *testing.T) {
	var calls atomic.Int32
	p := start(t, func(w http.ResponseWriter, r *http.Request) {
		calls.Add(1)
		io.Copy(io.Discard, r.Body)
	})
	const head = "POST / HTTP/1.1\r\nHost: service.test\r\nIdempotency-Key: k\r\n"
	const inner = "GET /smuggled HTTP/1.1\r\nHost: service.test\r\n\r\n"
	for name, text := range map[string]string{
		"a length beside chunks":        head + "Content-Length: 6\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n" + inner,
		"chunks beside a length":        head + "Transfer-Encoding: chunked\r\nContent-Length: 6\r\n\r\n0\r\n\r\n" + inner,
		"in small letters":              head + "content-length: 6\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n" + inner,
		"in capitals":                   head + "TRANSFER-ENCODING: chunked\r\nCONTENT-LENGTH: 6\r\n\r\n0\r\n\r\n" + inner,
		"two lengths":                   head + "Content-Length: 1\r\nContent-Length: 2\r\n\r\nab",
		"one length twice":              head + "Content-Length: 1\r\nContent-Length: 1\r\n\r\na",
		"lengths in a list":             head + "Content-Length: 1, 1\r\n\r\na",
		"a length with a sign":          head + "Content-Length: +1\r\n\r\na",
		"a length in hexadecimal":       head + "Content-Length: 0x1\r\n\r\na",
		"a length of many zeros":        head + "Content-Length: " + strings.Repeat("0", 60) + "31\r\n\r\nPOST / HTTP/1.1\r\nUpgrade: x\r\n\r\n" + head + "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
		"the preface of HTTP/2":         "PRI * HTTP/2.0\r\nHost: service.test\r\nUpgrade: x\r\n\r\n" + head + "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
		"an empty length":               head + "Content-Length:\r\n\r\n",
		"chunks twice":                  head + "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
		"another encoding":              head + "Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
		"an encoding that is hidden":    head + "Transfer-Encoding : chunked\r\n\r\n0\r\n\r\n",
		"a tab in the encoding":         head + "Transfer-Encoding: \x0bchunked\r\n\r\n0\r\n\r\n",
		"chunks in HTTP/1.0":            "POST / HTTP/1.0\r\nHost: service.test\r\nConnection: keep-alive\r\nTransfer-Encoding: chunked\r\n\r\n" + inner,
		"a folded line":                 head + "X-Folded: a\r\n b\r\n\r\n",
		"a line folded by a tab":        head + "X-Folded: a\r\n\tb\r\n\r\n",
		"a folded length":               head + "Content-Length:\r\n 1\r\n\r\na",
		"a line that ends without CR":   head + "X-Line: a\n\r\n",
		"a head that ends without CR":   head + "\n",
		"a CR within a line":            head + "X-Line: a\rX-Injected: b\r\n\r\n",
		"a NUL":                         head + "X-Line: a\x00b\r\n\r\n",
		"a key with a CR":               "POST / HTTP/1.1\r\nHost: service.test\r\nIdempotency-Key: k\rX-Injected: b\r\n\r\n",
		"a line without a colon":        head + "X-Line\r\n\r\n",
		"a name with a blank":           head + "X Line: a\r\n\r\n",
		"two hosts":                     head + "Host: other.test\r\n\r\n",
		"a chunk that ends without CR":  head + "Transfer-Encoding: chunked\r\n\r\n1\na\n0\n\n",
		"a chunk with a size too large": head + "Transfer-Encoding: chunked\r\n\r\nffffffffffffffffff\r\na\r\n0\r\n\r\n",
	} {
		answer := raw(t, p, text)
		if !strings.HasPrefix(answer, "HTTP/1.1 400 ") && !strings.HasPrefix(answer, "HTTP/1.1 501 ") || strings.Count(answer, "HTTP/1.1 ") != 1 {
			t.Errorf("%s: the answer is %q, want one refusal", name, answer)
		}
	}
	if n := calls.Load(); n != 0 {
		t.Errorf("the upstream was called %d times", n)
	}
}

// No other request is read on a connection behind one in chunks, nor behind one whose upgrade was not granted: only
// their sender knows where they end.
func TestProxyNothingFollowsChunks(t *testing.T) {
	var calls atomic.Int32
	p := start(t, func(_ http.ResponseWriter, r *http.Request) {
		calls.Add(1)
		if r.URL.Path == "/smuggled" {
			t.Error("the smuggled request arrived")
		}
		io.Copy(io.Discard, r.Body)
	})
	const inner = "GET /smuggled HTTP/1.1\r\nHost: service.test\r\n\r\n"
	for i, text := range []string{
		"POST / HTTP/1.1\r\nHost: service.test\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\n0\r\n\r\n" + inner,
		"POST / HTTP/1.1\r\nHost: service.test\r\nIdempotency-Key: k\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\n0\r\n\r\n" + inner,
		"GET / HTTP/1.1\r\nHost: service.test\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\n" + inner,
	} {
		answer := raw(t, p, text)
		if !strings.HasPrefix(answer, "HTTP/1.1 200 ") || !strings.Contains(answer, "\r\nConnection: close\r\n") || strings.Count(answer, "HTTP/1.1 ") != 1 {
			t.Errorf("%d: %q", i, answer)
		}
	}
	if n := calls.Load(); n != 3 {
		t.Errorf("the upstream was called %d times, want 3", n)
	}
}

// net/http answers OPTIONS * without calling a handler, and continues with the connection, even if the head asks for an
// upgrade. Only net/http would then read the bytes that follow.
func TestProxyReadsHeadsBehindOptions(t *testing.T) {
	service := &counting{}
	p := start(t, service.ServeHTTP)
	const inner = "POST /smuggled HTTP/1.1\r\nHost: service.test\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"
	for name, head := range map[string]string{
		"":            "\r\n",
		"an upgrade":  "Upgrade: x\r\n\r\n",
		"no body":     "Content-Length: 0\r\n\r\n",
		"chunks":      "Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
		"many chunks": "Transfer-Encoding: chunked\r\n\r\n" + strings.Repeat("1\r\na\r\n", 10_000) + "0\r\n\r\n",
	} {
		answer := raw(t, p, "OPTIONS * HTTP/1.1\r\nHost: service.test\r\n"+head+inner)
		if !strings.HasPrefix(answer, "HTTP/1.1 200 ") || strings.Count(answer, "HTTP/1.1 200 ") != 1 || service.count() != 0 {
			t.Errorf("%s: %q, %d calls", name, answer, service.count())
		}
	}
}

// Bytes in chunks are not a head: lines in the body of a request with a long first line arrive unchanged.
func TestProxyChunksAreNoHead(t *testing.T) {
	const body = "{\n \"a\": 1\r\n}\r\n\r\nContent-Length: 1\nContent-Length: 2\r\n"
	var got string
	p := start(t, func(_ http.ResponseWriter, r *http.Request) {
		b, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		got = string(b)
	})
	text := fmt.Sprintf("POST /%s HTTP/1.1\r\nHost: service.test\r\nTransfer-Encoding: chunked\r\n\r\n%x\r\n%s\r\n0\r\n\r\n", strings.Repeat("a", 300), len(body), body)
	if answer := raw(t, p, text); !strings.HasPrefix(answer, "HTTP/1.1 200 ") || got != body {
		t.Errorf("%q, and the service got %q", answer, got)
	}
}

// Requests that follow each other on one connection, with lengths and without, are all read.
func TestProxyKeepsConnections(t *testing.T) {
	service := &counting{}
	p := start(t, service.ServeHTTP)
	one := "POST / HTTP/1.1\r\nHost: service.test\r\nContent-Length: 2\r\n\r\n\n "
	last := strings.Replace(one, "Host", "Connection: close\r\nHost", 1)
	if answer := raw(t, p, one+"GET / HTTP/1.1\r\nHost: service.test\r\n\r\n"+last); strings.Count(answer, "HTTP/1.1 201 ") != 3 {
		t.Errorf("%q", answer)
	}
	// The second of them is refused, the first is answered.
	answer := raw(t, p, one+"POST / HTTP/1.1\r\nHost: service.test\r\nContent-Length: 1\r\nContent-Length: 1\r\n\r\na")
	if !strings.Contains(answer, "HTTP/1.1 400 ") {
		t.Errorf("%q", answer)
	}
}

// An upstream's header that holds a line break makes no second header, first or replayed, and a key that is echoed
// makes none.
func TestProxyReplayedHeadersInjectNothing(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { ln.Close() })
	theirs := map[string]string{
		"/cr":     "X-Theirs: a\rX-Injected: b\r\n",
		"/folded": "X-Theirs: a\r\n X-Injected: b\r\n",
		"/plain":  "X-Theirs: a\r\n",
	}
	go func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			if r, err := http.ReadRequest(bufio.NewReader(c)); err == nil {
				io.WriteString(c, "HTTP/1.1 201 Created\r\n"+theirs[r.URL.Path]+"Content-Length: 0\r\nConnection: close\r\n\r\n")
			}
			c.Close()
		}
	}()
	p := startBefore(t, "http://"+ln.Addr().String(), "--echo-key")
	for path, want := range map[string][]string{
		"/cr":     {"502 ", "409 "}, // no HTTP, so no answer
		"/folded": {"201 ", "201 "},
		"/plain":  {"201 ", "201 "},
	} {
		for i, status := range want {
			answer := raw(t, p, "POST "+path+" HTTP/1.1\r\nHost: service.test\r\nIdempotency-Key: \"a\\\\ \\\"X-Injected: c\"\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
			head, _, _ := strings.Cut(answer, "\r\n\r\n")
			if !strings.HasPrefix(answer, "HTTP/1.1 "+status) || strings.Contains(head, "\nX-Injected") || strings.Contains(strings.ReplaceAll(head, "\r\n", ""), "\r") {
				t.Errorf("%s, answer %d: %q", path, i, answer)
			}
		}
	}
}

// A head that is too large is refused, over HTTP/1.1 and HTTP/2, and one that is large is not.
func TestProxyBoundsHeads(t *testing.T) {
	cert, key := writePair(t, t.TempDir(), "proxy")
	for name, args := range map[string][]string{"HTTP/1.1": nil, "HTTP/2.0": {"--tls-cert=" + cert, "--tls-key=" + key}} {
		service := &counting{}
		p := start(t, service.ServeHTTP, args...)
		tr := &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, ForceAttemptHTTP2: true}
		t.Cleanup(tr.CloseIdleConnections)
		for size, want := range map[int]int{63 << 10: http.StatusCreated, 70 << 10: http.StatusRequestHeaderFieldsTooLarge} {
			r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, p.url+"/", http.NoBody)
			if err != nil {
				t.Fatal(err)
			}
			r.Header.Set("Idempotency-Key", "k")
			r.Header.Set("X-Large", strings.Repeat("x", size))
			res, err := (&http.Client{Transport: tr}).Do(r)
			if err != nil {
				if want == http.StatusCreated || name == "HTTP/1.1" {
					t.Errorf("%s, %d bytes: %v", name, size, err)
				}
				continue // over HTTP/2 the client itself may refuse to send what the server has said that it does not take
			}
			if res.Body.Close(); res.StatusCode != want || res.Proto != name {
				t.Errorf("%s, %d bytes: %s %d, want %d", name, size, res.Proto, res.StatusCode, want)
			}
		}
		if n := service.count(); n != 1 {
			t.Errorf("%s: the service was called %d times, want 1", name, n)
		}
	}
}
