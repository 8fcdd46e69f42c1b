package proxy

import (
	"crypto/tls"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"time"
)

// certificate is a pair of files that is read again when they change.
type certificate struct {
	certFile, keyFile string
	log               *slog.Logger

	mu     sync.Mutex
	pair   *tls.Certificate
	seen   [2]os.FileInfo
	failed [2]os.FileInfo // what could not be used, which is told once
	gone   bool           // that there is nothing to look at has been told
}

func loadCertificate(certFile, keyFile string, log *slog.Logger) (*certificate, error) {
	c := &certificate{certFile: certFile, keyFile: keyFile, log: log}
	now, err := c.stat()
	if err != nil {
		return nil, err
	}
	pair, err := tls.LoadX509KeyPair(certFile, keyFile)
	if err != nil {
		return nil, fmt.Errorf("%s and %s: %w", certFile, keyFile, err)
	}
	c.pair, c.seen = &pair, now
	return c, nil
}

func (c *certificate) stat() (infos [2]os.FileInfo, err error) {
	for i, name := range []string{c.certFile, c.keyFile} {
		if infos[i], err = os.Stat(name); err != nil {
			return infos, err
		}
	}
	return infos, nil
}

// get returns the pair. It looks at the files at every handshake, which costs two system calls; a pair
// that cannot be used, as while only one of the files has been replaced, leaves the old one in place.
func (c *certificate) get() *tls.Certificate {
	c.mu.Lock()
	defer c.mu.Unlock()
	now, err := c.stat()
	if err != nil {
		if !c.gone {
			c.log.Error("the certificate's files cannot be looked at; the old one stays", "error", err)
		}
		c.gone = true
		return c.pair
	}
	c.gone = false
	if same(now, c.seen) || same(now, c.failed) {
		return c.pair
	}
	pair, err := tls.LoadX509KeyPair(c.certFile, c.keyFile)
	if err != nil {
		c.failed = now
		c.log.Error("the certificate's files have changed and cannot be used; the old one stays", "error", err)
		return c.pair
	}
	c.pair, c.seen, c.failed = &pair, now, [2]os.FileInfo{}
	c.log.Info("the certificate was read again", "until", pair.Leaf.NotAfter.Format(time.RFC3339))
	return c.pair
}

func same(a, b [2]os.FileInfo) bool {
	for i := range a {
		if a[i] == nil || b[i] == nil || !os.SameFile(a[i], b[i]) || !a[i].ModTime().Equal(b[i].ModTime()) || a[i].Size() != b[i].Size() {
			return false
		}
	}
	return true
}
