//go:build unix

package filelog

import (
	"bytes"
	"fmt"
	"io"
	"syscall"
	"testing"

	"github.com/everonce/everonce/session/producer"
)

// disk is a file with the system's cache before it. A sync that fails takes what it could not write for written, as on
// Linux.
type disk struct {
	io.Reader
	cache, durable []byte
	unwritten      []func()
	broken         error
}

func (d *disk) Close() error              { return nil }
func (d *disk) Truncate(size int64) error { d.cache = d.cache[:size]; return nil }

func (d *disk) WriteAt(b []byte, at int64) (int, error) {
	to := func(file *[]byte) {
		*file = append(*file, make([]byte, max(0, int(at)+len(b)-len(*file)))...)
		copy((*file)[at:], b)
	}
	to(&d.cache)
	d.unwritten = append(d.unwritten, func() { to(&d.durable) })
	return len(b), nil
}

func (d *disk) Sync() error {
	if d.broken == nil {
		for _, write := range d.unwritten {
			write()
		}
	}
	d.unwritten = nil
	return d.broken
}

// TestSyncFails: a batch that is acknowledged after its sync has failed, and after the log was opened again, is on the
// disk.
func TestSyncFails(t *testing.T) {
	d := &disk{}
	reopened := func() *Log {
		d.Reader = bytes.NewReader(bytes.Clone(d.cache))
		l, err := recovered(d)
		if err != nil {
			t.Fatal(err)
		}
		return l
	}
	l := reopened()
	g, err := l.Init("")
	if err != nil {
		t.Fatal(err)
	}
	b := &Batch{Stream: "orders", Producer: g.Producer, Records: [][]byte{[]byte("a")}}
	d.broken = syscall.EIO
	if a, err := l.Append(b); err == nil {
		t.Errorf("%+v, and the sync has failed", a)
	}
	d.broken = nil
	if a, err := reopened().Append(b); a != (producer.Decision{Duplicate: true}) || err != nil {
		t.Errorf("%+v, %v", a, err)
	}
	d.cache = d.durable // the power fails
	if got := fmt.Sprintf("%s", reopened().Read("orders", 0)); got != "[a]" {
		t.Errorf("the disk has %s", got)
	}
}
