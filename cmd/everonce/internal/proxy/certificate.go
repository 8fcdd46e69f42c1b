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

	mu   sync.Mutex
	pair *tls.Certificate
	read [2]os.FileInfo // the files that were read last, usable or not
}

func loadCertificate(certFile, keyFile string, log *slog.Logger) (*certificate, error) {
	c := &certificate{certFile: certFile, keyFile: keyFile, log: log}
	c.read = c.stat()
	pair, err := tls.LoadX509KeyPair(certFile, keyFile)
	if err != nil {
		return nil, fmt.Errorf("%s and %s: %w", certFile, keyFile, err)
	}
	c.pair = &pair
	return c, nil
}

// stat reads the state of the files; a missing one is nil.
func (c *certificate) stat() (infos [2]os.FileInfo) {
	for i, name := range []string{c.certFile, c.keyFile} {
		infos[i], _ = os.Stat(name) //nolint:errcheck // reading the file returns the error
	}
	return infos
}

// get returns the pair. It looks at the files at every handshake, which costs two system calls; a pair
// that cannot be used, as while only one of the files has been replaced, leaves the old one in place.
func (c *certificate) get() *tls.Certificate {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := c.stat()
	if sameFiles(now, c.read) {
		return c.pair
	}
	c.read = now
	pair, err := tls.LoadX509KeyPair(c.certFile, c.keyFile)
	if err != nil {
		c.log.Error("certificate not reloaded; the old one remains in use", "error", err)
		return c.pair
	}
	c.pair = &pair
	c.log.Info("certificate reloaded", "until", pair.Leaf.NotAfter.Format(time.RFC3339))
	return c.pair
}

func sameFiles(a, b [2]os.FileInfo) bool {
	for i := range a {
		if a[i] == nil || b[i] == nil {
			if a[i] != b[i] {
				return false
			}
		} else if !os.SameFile(a[i], b[i]) || !a[i].ModTime().Equal(b[i].ModTime()) || a[i].Size() != b[i].Size() {
			return false
		}
	}
	return true
}
