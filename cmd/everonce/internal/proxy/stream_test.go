package proxy

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"runtime"
	"strconv"
	"strings"
	"testing"
)

// flood is a body that is never stored.
type flood struct {
	left int64
	peak *peak
}

const gigabyte = 1 << 30

func (b *flood) Read(p []byte) (int, error) {
	if b.left == 0 {
		return 0, io.EOF
	}
	n := min(int64(len(p)), b.left)
	b.left -= n
	b.peak.look(n)
	return int(n), nil
}

// peak looks at the memory in use, every 64 MiB.
type peak struct{ moved, most int64 }

func (p *peak) look(n int64) {
	if p.moved += n; p.moved < 64<<20 {
		return
	}
	p.moved = 0
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	p.most = max(p.most, int64(m.HeapInuse))
}

// A gigabyte flows through, up and down, in bounded memory.
func TestProxyGigabyte(t *testing.T) {
	for name, tc := range map[string]struct {
		method   string
		up, down int64
	}{
		"upload":   {http.MethodPut, gigabyte, 0},
		"download": {http.MethodGet, 0, gigabyte},
	} {
		t.Run(name, func(t *testing.T) {
			var seen peak
			p := start(t, func(w http.ResponseWriter, r *http.Request) {
				if n, err := io.Copy(io.Discard, r.Body); n != tc.up || err != nil {
					t.Errorf("the upstream got %d bytes, %v", n, err)
				}
				w.Header().Set("Content-Length", strconv.FormatInt(tc.down, 10))
				io.Copy(w, &flood{left: tc.down, peak: &seen})
			})
			runtime.GC()
			r, err := http.NewRequestWithContext(t.Context(), tc.method, p.url+"/", &flood{left: tc.up, peak: &seen})
			if err != nil {
				t.Fatal(err)
			}
			r.ContentLength = tc.up
			res, err := http.DefaultClient.Do(r)
			if err != nil {
				t.Fatal(err)
			}
			defer res.Body.Close()
			if n, err := io.Copy(io.Discard, res.Body); n != tc.down || err != nil {
				t.Errorf("the client got %d bytes, %v", n, err)
			}
			if seen.most == 0 || seen.most > 64<<20 {
				t.Errorf("up to %d MiB of heap were in use", seen.most>>20)
			}
		})
	}
}

// A WebSocket is a connection through all of the program's layers, longer than a stalled client may take nothing.
func TestProxyUpgrade(t *testing.T) {
	p := start(t, func(w http.ResponseWriter, _ *http.Request) {
		c, rw, err := http.NewResponseController(w).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		defer c.Close()
		io.WriteString(c, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n")
		io.Copy(c, rw)
	})
	c, err := net.Dial("tcp", strings.TrimPrefix(p.url, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	io.WriteString(c, "GET /socket HTTP/1.1\r\nHost: service.test\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n")
	br := bufio.NewReader(c)
	res, err := http.ReadResponse(br, nil)
	if err != nil || res.StatusCode != http.StatusSwitchingProtocols || res.Header.Get("Connection") != "Upgrade" {
		t.Fatalf("%v, %v", res, err)
	}
	for _, word := range []string{"there\n", "and\r back"} { // no HTTP, and not read as such
		io.WriteString(c, word)
		got := make([]byte, len(word))
		if _, err := io.ReadFull(br, got); err != nil || string(got) != word {
			t.Errorf("%q, %v", got, err)
		}
	}
	p.stop() // and is cut when the proxy ends
	if rest, err := io.ReadAll(br); len(rest) > 0 {
		t.Errorf("%q, %v", rest, err)
	}
}

// Server-sent events arrive one by one.
func TestProxyServerSentEvents(t *testing.T) {
	next := make(chan struct{})
	p := start(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		for i := range 3 {
			fmt.Fprintf(w, "data: %d\n\n", i)
			if err := http.NewResponseController(w).Flush(); err != nil {
				t.Error(err)
			}
			<-next
		}
	})
	res, err := http.Get(p.url + "/events")
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	events := bufio.NewReader(res.Body)
	for i := range 3 { // each is sent when the one before it has arrived
		if line, err := events.ReadString('\n'); err != nil || line != fmt.Sprintf("data: %d\n", i) {
			t.Fatalf("%q, %v", line, err)
		}
		events.ReadString('\n')
		next <- struct{}{}
	}
}

// A client that stops in the middle is cut off: one that sends no more of a head, of a body with a key or
// without, and one that takes no more of an answer.
func TestProxyCutsOffSlowClients(t *testing.T) {
	p := start(t, func(w http.ResponseWriter, r *http.Request) {
		if _, err := io.Copy(io.Discard, r.Body); err != nil {
			return
		}
		io.Copy(w, &flood{left: 64 << 20, peak: &peak{}})
	}, "--header-timeout=100ms", "--stall=100ms", "--body-timeout=100ms")
	for name, text := range map[string]string{
		"half of a head":             "POST / HTTP/1.1\r\nHost: a",
		"half of a body":             "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 10\r\n\r\nhalf",
		"half of a body with a key":  "POST / HTTP/1.1\r\nHost: a\r\nIdempotency-Key: k\r\nContent-Length: 10\r\n\r\nhalf",
		"an answer that is not read": "GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c, err := net.Dial("tcp", strings.TrimPrefix(p.url, "http://"))
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			io.WriteString(c, text)
			if strings.HasPrefix(text, "GET") {
				for !strings.Contains(p.log.String(), `"path":"/","status":200`) { // it gives up on its own
					runtime.Gosched()
				}
			}
			if n, err := io.Copy(io.Discard, c); n >= 64<<20 {
				t.Errorf("%d bytes, %v", n, err)
			}
		})
	}
}
