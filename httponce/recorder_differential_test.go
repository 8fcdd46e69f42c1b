package httponce_test

import (
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/everonce/everonce/httponce"
)

// deed is one thing that a handler does to its ResponseWriter.
type deed struct {
	name string
	do   func(http.ResponseWriter)
}

// deeds are a handler.
type deeds []deed

func (ds deeds) String() string {
	var names []string
	for _, d := range ds {
		names = append(names, d.name)
	}
	return strings.Join(names, "; ")
}

func (ds deeds) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	_, _ = io.Copy(io.Discard, r.Body)
	for _, d := range ds {
		d.do(w)
	}
}

var texts = [...]string{"<html><body>", "plain ", `{"a":1}`, "\x89PNG\r\n\x1a\n", "%PDF-1.4 "}

func text(n, kind int) string {
	s := texts[kind%len(texts)]
	return strings.Repeat(s, n/len(s)+1)[:n]
}

// slowReader gives so many bytes per Read, and has no WriteTo.
type slowReader struct {
	text string
	step int
}

func (s *slowReader) Read(p []byte) (int, error) {
	if s.text == "" {
		return 0, io.EOF
	}
	n := copy(p[:min(len(p), s.step)], s.text)
	s.text = s.text[n:]
	return n, nil
}

// script decides what a handler does: a fuzzer varies it.
type script []byte

// pick returns a number below n; when the script has ended, 0.
func (s *script) pick(n int) (picked int) {
	for most := n - 1; most > 0 && len(*s) > 0; most >>= 8 {
		picked, *s = picked<<8|int((*s)[0]), (*s)[1:]
	}
	return picked % n
}

func oneOf[T any](s *script, of ...T) T { return of[s.pick(len(of))] }

// addScripts makes seeds of scripts at random, always the same ones.
func addScripts(f *testing.F) {
	f.Add([]byte{})
	source := rand.NewChaCha8([32]byte{})
	for range 100 {
		seed := make([]byte, 120)
		_, _ = source.Read(seed)
		f.Add(seed)
	}
}

// size is around what net/http does differently.
func (s *script) size() int {
	if s.pick(2) == 0 {
		return oneOf(s, 0, 1, 511, 512, 513, 2047, 2048, 2049, 4096, 4097, 9000, 40000)
	}
	return s.pick(3000)
}

// deed returns one deed. Flushes and sizes beyond what is kept make a stream.
func (s *script) deed(flushes, lengths bool) deed {
	n, kind := s.size(), s.pick(len(texts))
	name := oneOf(s, "X-A", "X-B", "x-lower", "Content-Type", "Vary", "X-Outer", "Location", "Etag", "Cache-Control")
	value := oneOf(s, "v", "w", "text/plain", "a, b")
	status := oneOf(s, 200, 201, 202, 204, 206, 299, 301, 304, 400, 404, 409, 422, 500, 503)
	trailer := oneOf(s, "X-Sum", "X-Late")
	step := oneOf(s, 1<<20, 1000, 300, 40000)
	all := []deed{
		{fmt.Sprintf("Write(%d)", n), func(w http.ResponseWriter) { _, _ = w.Write([]byte(text(n, kind))) }},
		{fmt.Sprintf("Write(%d)", n/10), func(w http.ResponseWriter) { _, _ = w.Write([]byte(text(n/10, kind))) }},
		{fmt.Sprintf("WriteString(%d)", n), func(w http.ResponseWriter) { _, _ = io.WriteString(w, text(n, kind)) }},
		{fmt.Sprintf("Copy(%d by %d)", n, step), func(w http.ResponseWriter) { _, _ = io.Copy(w, &slowReader{text(n, kind), step}) }},
		{fmt.Sprintf("Set(%s)", name), func(w http.ResponseWriter) { w.Header().Set(name, value) }},
		{fmt.Sprintf("h[%s]=", name), func(w http.ResponseWriter) { w.Header()[name] = []string{value, "2"} }},
		{fmt.Sprintf("Add(%s)", name), func(w http.ResponseWriter) { w.Header().Add(name, value) }},
		{fmt.Sprintf("Del(%s)", name), func(w http.ResponseWriter) { w.Header().Del(name) }},
		{fmt.Sprintf("h[%s]=nil", name), func(w http.ResponseWriter) { w.Header()[name] = nil }},
		{fmt.Sprintf("WriteHeader(%d)", status), func(w http.ResponseWriter) { w.WriteHeader(status) }},
		{"WriteHeader(103)", func(w http.ResponseWriter) { w.WriteHeader(http.StatusEarlyHints) }},
		{"Trailer: " + trailer, func(w http.ResponseWriter) { w.Header().Add("Trailer", trailer) }},
		{trailer, func(w http.ResponseWriter) { w.Header().Set(trailer, value) }},
		{"Trailer:X-P", func(w http.ResponseWriter) { w.Header().Set(http.TrailerPrefix+"X-P", value) }},
	}
	if lengths { // and no copies: net/http's ReadFrom sends more than was declared
		all = slices.Delete(all, 3, 4)
		all = append(all, deed{fmt.Sprintf("Content-Length: %d", n), func(w http.ResponseWriter) { w.Header().Set("Content-Length", strconv.Itoa(n)) }})
	}
	if flushes {
		all = append(all,
			deed{"Flush", func(w http.ResponseWriter) { _ = http.NewResponseController(w).Flush() }},
			deed{"Flusher", func(w http.ResponseWriter) { w.(http.Flusher).Flush() }})
	}
	return oneOf(s, all...)
}

func (s *script) deeds(flushes, lengths bool) deeds {
	ds := make(deeds, s.pick(9))
	for i := range ds {
		ds[i] = s.deed(flushes, lengths)
	}
	return ds
}

// latePrefixed leave a trailer that was not declared behind what has net/http send chunks.
var latePrefixed = func() []deeds {
	set := func(name, value string) deed {
		return deed{name + ": " + value, func(w http.ResponseWriter) { w.Header().Set(name, value) }}
	}
	write := deed{"Write", func(w http.ResponseWriter) { _, _ = io.WriteString(w, "body") }}
	late := set(http.TrailerPrefix+"X-P", "late")
	return []deeds{{set("Trailer", "X-Sum"), write, late}, {set(http.TrailerPrefix+"X-P", "early"), write, late}}
}()

// The answer on the wire equals the bare handler's, except for its framing, whatever the handler does.
func FuzzTheBytesOnTheWireAreTheBareHandlers(f *testing.F) {
	w := newWire(f, false, httponce.Route{Save: saveAll, MaxAnswer: 30000})
	addScripts(f)
	f.Fuzz(func(t *testing.T, by []byte) {
		s := script(by)
		flushes, lengths := s.pick(2) == 1, s.pick(2) == 1
		proto, method := oneOf(&s, "HTTP/1.1", "HTTP/1.1", "HTTP/1.0"), oneOf(&s, "POST", "POST", "HEAD")
		ds := s.deeds(flushes, lengths)
		name := w.handle(ds.ServeHTTP)
		defer w.handlers.Delete(name)
		// net/http closes the connection of who writes more than was declared; the middleware writes no more.
		alone := lengths || proto == "HTTP/1.0"
		want := w.raw(t, w.bare, proto, method, name, alone)
		got := w.raw(t, w.protected, proto, method, name, alone)
		if got, want := unframed(got, method), unframed(want, method); got.text != want.text || got.trailers != want.trailers && want.trailers != "" {
			t.Fatalf("%s %s, %v:\nwith the middleware %q, %q\nwithout            %q, %q", proto, method, ds, cut(got.text), got.trailers, cut(want.text), want.trailers)
		}
	})
}

// The same over HTTP/2, as a client decodes it.
func FuzzOverHTTP2TheAnswerIsTheBareHandlers(f *testing.F) {
	w := newWire(f, true, httponce.Route{Save: saveAll, MaxAnswer: 30000})
	addScripts(f)
	f.Fuzz(func(t *testing.T, by []byte) {
		s := script(by)
		ds := s.deeds(s.pick(2) == 1, false)
		name := w.handle(ds.ServeHTTP)
		defer w.handlers.Delete(name)
		want, got := w.ask(t, w.bare, "POST", name), w.ask(t, w.protected, "POST", name)
		if !reflect.DeepEqual(got, want) {
			t.Fatalf("%v:\nwith the middleware %+v\nwithout            %+v", ds, got, want)
		}
	})
}

// message is an answer without its framing. A trailer that was not declared, net/http alone sends behind chunks only.
type message struct{ text, trailers string }

func unframed(raw, method string) (m message) {
	var length int64
	chunked, bodyless := false, method == http.MethodHead
	for {
		head, rest, _ := strings.Cut(raw, "\r\n\r\n")
		status, fields, _ := strings.Cut(head, "\r\n")
		m.text += status + "\n"
		raw, length, chunked = rest, -1, false
		for line := range strings.SplitSeq(fields, "\r\n") {
			switch name, value, _ := strings.Cut(line, ": "); name {
			case "Content-Length":
				length, _ = strconv.ParseInt(value, 10, 64)
			case "Transfer-Encoding":
				chunked = true
			case "Connection":
			default:
				m.text += line + "\n"
			}
		}
		if !strings.Contains(status, " 1") {
			bodyless = bodyless || strings.Contains(status, " 204 ") || strings.Contains(status, " 304 ")
			break
		}
	}
	switch {
	case bodyless:
	case chunked:
		for {
			size, rest, _ := strings.Cut(raw, "\r\n")
			n, _ := strconv.ParseInt(size, 16, 64)
			if n == 0 || n > int64(len(rest)) {
				if m.trailers, raw, _ = strings.Cut(rest, "\r\n\r\n"); strings.HasPrefix(rest, "\r\n") {
					m.trailers, raw = "", rest[2:]
				}
				break
			}
			m.text, raw = m.text+rest[:n], rest[n+2:]
		}
	case length >= 0:
		length = min(length, int64(len(raw)))
		m.text, raw = m.text+raw[:length], raw[length:]
	default:
		m.text, raw = m.text+raw, ""
	}
	m.text += "\n" + raw // the answer to the next request
	return m
}

// A replay is the answer, but for the marker, and for 1xx, which announced it.
func FuzzTheReplayIsTheAnswer(f *testing.F) {
	wires := []*wire{newWire(f, false, httponce.Route{Save: saveAll}), newWire(f, true, httponce.Route{Save: saveAll})}
	addScripts(f)
	f.Fuzz(func(t *testing.T, by []byte) {
		s := script(by)
		w, ds := oneOf(&s, wires...), s.deeds(false, false)
		name := w.handle(ds.ServeHTTP)
		defer w.handlers.Delete(name)
		want, got := w.ask(t, w.protected, "POST", name), w.ask(t, w.protected, "POST", name)
		if got.Header.Get("Idempotent-Replayed") != "true" {
			t.Fatalf("%v: no marker in %+v", ds, got)
		}
		got.Header.Del("Idempotent-Replayed")
		want.Infos = nil
		// How the body is framed is the server's affair: one write may be counted where several were chunked.
		want.Header.Del("Content-Length")
		got.Header.Del("Content-Length")
		if !reflect.DeepEqual(got, want) {
			t.Fatalf("%v:\nfirst  %+v\nreplay %+v", ds, want, got)
		}
	})
}

// A trailer that was not declared is sent again where net/http sent it.
func TestTheReplayHasUndeclaredTrailers(t *testing.T) {
	for _, http2 := range []bool{false, true} {
		w := newWire(t, http2, httponce.Route{Save: saveAll})
		for _, ds := range latePrefixed {
			name := w.handle(ds.ServeHTTP)
			want, got := w.ask(t, w.protected, "POST", name), w.ask(t, w.protected, "POST", name)
			if want.Trailer.Get("X-P") != "late" || got.Trailer.Get("X-P") != "late" {
				t.Errorf("HTTP/2 %v, %v: the trailers are %v, and again %v", http2, ds, want.Trailer, got.Trailer)
			}
		}
	}
}

func cut(s string) string {
	if len(s) > 600 {
		return s[:400] + "…" + s[len(s)-200:]
	}
	return s
}
