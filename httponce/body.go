package httponce

import (
	"crypto/sha256"
	"errors"
	"hash"
	"io"
	"net/http"
	"os"
	"sync/atomic"
	"time"
)

// memoryBody is how much of a body is held in memory; a larger one is in a temporary file. Nearly every request that
// takes a key is smaller, and a thousand that are not, sent slowly, take 64 MiB at the most. A body of some hundred
// KiB costs its copy in a file some tens of microseconds: less than its way over the wire.
const memoryBody = 64 << 10

// firstBody is how much memory a sender gets for what it has only announced.
const firstBody = 8 << 10

var errBodyTooLarge = errors.New("httponce: the request body is too large")

// spoolError is a failure of ours, and not the client's: there is no room for a temporary file.
type spoolError struct{ err error }

func (e *spoolError) Error() string {
	return "httponce: the request body cannot be kept: " + e.err.Error()
}
func (e *spoolError) Unwrap() error { return e.err }

// body is a request body that has been read to its end. What it holds outside of memory goes when its last holder
// releases it: the exchange is the first, and a handler that goes on after its exchange has ended must be another.
type body struct {
	size   int64
	mem    []byte   // nil where there is a file
	file   *os.File // of a body larger than memoryBody
	name   string   // the file's, where it could not be removed while it is open
	spool  *spool   // bounds the files of all bodies together
	taken  int64    // of it
	hashed [sha256.Size]byte
	others atomic.Int32 // holders beside the first
	opened bool
	first  bodyReader // what open returns the first time
}

// fill reads src to its end. declared is how long src says that it is, or -1. The errors are src's, errBodyTooLarge,
// os.ErrDeadlineExceeded where a read begins after until, errSpoolFull, and a *spoolError. After one the body is still to be released.
func (b *body) fill(src io.Reader, declared, limit int64, until time.Time) error {
	buf := make([]byte, firstSize(declared))
	var digest hash.Hash // of what is in the file
	for n, empty := 0, 0; ; {
		if n == len(buf) && n < memoryBody {
			buf = append(make([]byte, 0, nextSize(n, declared)), buf...)
			buf = buf[:cap(buf)]
		}
		if n == len(buf) {
			if b.file == nil {
				digest = sha256.New()
			}
			if err := b.spill(buf, digest); err != nil {
				return err
			}
			n = 0
		}
		if !until.IsZero() && time.Now().After(until) {
			return os.ErrDeadlineExceeded
		}
		m, err := src.Read(buf[n:])
		n += m
		if b.size += int64(m); b.size > limit {
			return errBodyTooLarge
		}
		if empty++; m > 0 {
			empty = 0
		}
		switch {
		case err == io.EOF && digest == nil: //nolint:errorlint // an io.Reader ends with EOF itself
			b.mem = buf[:n]
			return nil
		case err == io.EOF: //nolint:errorlint // the same
			err = b.spill(buf[:n], digest)
			digest.Sum(b.hashed[:0])
			return err
		case err != nil:
			return err
		case empty > 100:
			return io.ErrNoProgress
		}
	}
}

// firstSize has room for the body and for a byte more, without which its end cannot be seen.
func firstSize(declared int64) int64 {
	if declared < 0 {
		return 1 << 10
	}
	return min(declared, firstBody-1) + 1
}

// nextSize doubles, up to what is declared and to what memory may hold.
func nextSize(have int, declared int64) int {
	next := min(2*have, memoryBody)
	if declared >= int64(have) && declared < memoryBody {
		next = min(next, int(declared)+1)
	}
	return next
}

// spill adds to the file. Where the system allows, the file has no name from the beginning on, and so is gone with
// the process.
func (b *body) spill(p []byte, digest hash.Hash) error {
	if !b.spool.take(int64(len(p))) {
		return errSpoolFull
	}
	b.taken += int64(len(p))
	if b.file == nil {
		f, err := os.CreateTemp("", "everonce-body-*")
		if err != nil {
			return &spoolError{err}
		}
		b.file = f
		if os.Remove(f.Name()) != nil {
			b.name = f.Name()
		}
	}
	if _, err := b.file.Write(p); err != nil {
		return &spoolError{err}
	}
	digest.Write(p)
	return nil
}

// sum returns the SHA-256 of the body.
func (b *body) sum() [sha256.Size]byte {
	if b.file != nil {
		return b.hashed
	}
	return sha256.Sum256(b.mem)
}

// bytes returns the body, which must not be changed.
func (b *body) bytes() ([]byte, error) {
	if b.file == nil {
		return b.mem, nil
	}
	p := make([]byte, b.size)
	if _, err := io.ReadFull(io.NewSectionReader(b.file, 0, b.size), p); err != nil {
		return nil, &spoolError{err}
	}
	return p, nil
}

// open returns the body from its beginning, as a request holds it. Each has a place of its own.
func (b *body) open() io.ReadCloser {
	if b.size == 0 {
		return http.NoBody
	}
	if !b.opened {
		b.opened = true
		b.first.body = b
		return &b.first
	}
	return &bodyReader{body: b}
}

// hold adds a holder.
func (b *body) hold() { b.others.Add(1) }

// release is the end of one holder. Readers that are left fail after the last one's.
func (b *body) release() {
	if b.others.Add(-1) >= 0 {
		return
	}
	if b.file != nil {
		_ = b.file.Close() //nolint:errcheck // it was only read
	}
	if b.name != "" {
		_ = os.Remove(b.name) //nolint:errcheck // nobody is left who could do something about it
	}
	b.spool.give(b.taken)
}
