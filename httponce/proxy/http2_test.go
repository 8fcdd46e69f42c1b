package proxy_test

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/binary"
	"io"
	"log"
	"net"
	"net/http/httptest"
	"net/url"
	"sync"
	"sync/atomic"
	"testing"
)

// quiet is for servers whose clients are meant to fail.
var quiet = log.New(io.Discard, "", 0)

// wireUpstream2 is a service on HTTP/2, frame by frame. It answers its first request with 200, the second
// with the frames that it was given, or by closing, and all after that with 200.
type wireUpstream2 struct {
	url      *url.URL
	client   *tls.Config
	requests atomic.Int64
	second   []byte

	mu    sync.Mutex
	conns []net.Conn
}

// The frames' types, and what else of RFC 9113 the tests need.
const (
	frameData     = 0
	frameHeaders  = 1
	frameRST      = 3
	frameSettings = 4
	frameGoAway   = 7

	flagEndStream  = 1
	flagAck        = 1
	flagEndHeaders = 4

	prefaceLen = len("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")
	status200  = 0x88 // HPACK: the static table's entry 8
)

func frame(kind, flags byte, stream uint32, payload ...byte) []byte {
	f := []byte{byte(len(payload) >> 16), byte(len(payload) >> 8), byte(len(payload)), kind, flags}
	return append(binary.BigEndian.AppendUint32(f, stream), payload...)
}

// rstStream resets stream 3, the second request's.
func rstStream(code uint32) []byte {
	return frame(frameRST, 0, 3, binary.BigEndian.AppendUint32(nil, code)...)
}

// goAway says that streams above last were not processed.
func goAway(last, code uint32) []byte {
	return frame(frameGoAway, 0, 0, binary.BigEndian.AppendUint32(binary.BigEndian.AppendUint32(nil, last), code)...)
}

func newWireUpstream2(t *testing.T, second []byte) *wireUpstream2 {
	t.Helper()
	lent := httptest.NewUnstartedServer(nil) // its certificate
	lent.StartTLS()
	lent.Close()
	roots := x509.NewCertPool()
	roots.AddCert(lent.Certificate())
	ln, err := tls.Listen("tcp", "127.0.0.1:0", &tls.Config{Certificates: lent.TLS.Certificates, NextProtos: []string{"h2"}, MinVersion: tls.VersionTLS13})
	if err != nil {
		t.Fatal(err)
	}
	u := &wireUpstream2{
		url:    &url.URL{Scheme: "https", Host: ln.Addr().String()},
		client: &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS13}, second: second,
	}
	var conns sync.WaitGroup
	conns.Go(func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			u.mu.Lock()
			u.conns = append(u.conns, c)
			u.mu.Unlock()
			conns.Go(func() { u.serve(c) })
		}
	})
	t.Cleanup(func() {
		ln.Close()
		u.mu.Lock()
		for _, c := range u.conns {
			c.Close()
		}
		u.mu.Unlock()
		conns.Wait()
	})
	return u
}

func (u *wireUpstream2) serve(c net.Conn) {
	defer c.Close()
	if _, err := io.CopyN(io.Discard, c, int64(prefaceLen)); err != nil {
		return
	}
	if _, err := c.Write(frame(frameSettings, 0, 0)); err != nil {
		return
	}
	for {
		head := make([]byte, 9)
		if _, err := io.ReadFull(c, head); err != nil {
			return
		}
		size := int64(head[0])<<16 | int64(head[1])<<8 | int64(head[2])
		if _, err := io.CopyN(io.Discard, c, size); err != nil {
			return
		}
		kind, flags, stream := head[3], head[4], binary.BigEndian.Uint32(head[5:])
		var out []byte
		switch {
		case kind == frameSettings && flags&flagAck == 0:
			out = frame(frameSettings, flagAck, 0)
		case (kind == frameData || kind == frameHeaders) && flags&flagEndStream != 0:
			out = frame(frameHeaders, flagEndHeaders|flagEndStream, stream, status200)
			if u.requests.Add(1) == 2 {
				if out = u.second; out == nil {
					return
				}
			}
		}
		if _, err := c.Write(out); err != nil {
			return
		}
	}
}
