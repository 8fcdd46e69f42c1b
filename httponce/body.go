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

const (
	// firstBody is how much memory a sender gets for what it has only announced.
	firstBody = 8 << 10
	// smallBody is how much of every body may be in memory. Nearly every request that takes a key is smaller, and a
	// thousand that are not, sent slowly, take 64 MiB at the most.
	smallBody = 64 << 10
	// memoryBody is the largest body in memory, as far as Options.MaxBodyMemory goes. Others are in a temporary file.
	memoryBody = 1 << 20
)

var errBodyTooLarge = errors.New("httponce: the request body is too large")

// spoolError is a failure of ours, and not the client's: there is no room for a temporary file.
type spoolError struct{ err error }

func (e *spoolError) Error() string {
	return "httponce: the request body cannot be kept: " + e.err.Error()
}
func (e *spoolError) Unwrap() error { return e.err }

// body is a request body that has been read to its end. Its memory and its file are given back when its last holder
// releases it. The exchange is the first holder; a handler that continues after its exchange has ended must be another
// one.
type body struct {
	content
	memory, files *space       // of all bodies together
	others        atomic.Int32 // holders beside the first
	opened        bool
	first         bodyReader // what open returns the first time
}

// content is what has been read.
type content struct {
	size     int64
	mem      []byte   // nil where there is a file
	file     *os.File // nil where it is in memory
	name     string   // the file's, where it could not be removed while it is open
	hashed   [sha256.Size]byte
	inMemory int64 // taken of the space for it
	inFiles  int64
}

// fill reads src to its end. declared is how long src says that it is, or -1. The errors are src's, errBodyTooLarge,
// os.ErrDeadlineExceeded where a read begins after until, errSpoolFull, and a *spoolError. After one the body is still
// to be released.
func (b *body) fill(src io.Reader, declared, limit int64, until time.Time) error {
	buf := make([]byte, firstSize(declared))
	var digest hash.Hash // of what is in the file
	for n, empty := 0, 0; ; {
		if n == len(buf) && b.file == nil {
			buf = b.grown(buf, declared)
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
			b.memory.give(b.inMemory)
			b.inMemory = 0
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

// grown returns a full buffer with more room, or unchanged if memory has no more.
func (b *body) grown(buf []byte, declared int64) []byte {
	size := nextSize(int64(len(buf)), declared)
	if size > smallBody {
		if size == int64(len(buf)) || !b.memory.take(size-b.inMemory) {
			return buf
		}
		b.inMemory = size
	}
	return append(make([]byte, 0, size), buf...)[:size]
}

// nextSize has room for the body and a byte more where its length is declared, and doubles where it is not. A sender
// that only announces gets no more than smallBody.
func nextSize(have, declared int64) int64 {
	limit := int64(smallBody)
	if have >= smallBody {
		limit = memoryBody + 1
	}
	switch {
	case declared < have:
		return min(2*have, limit)
	case declared > memoryBody && have >= smallBody: // it will be in a file
		return have
	}
	return min(declared, limit-1) + 1
}

// spill adds to the file. Where the system allows, the file has no name from the beginning on, and so is gone with
// the process.
func (b *body) spill(p []byte, digest hash.Hash) error {
	if !b.files.take(int64(len(p))) {
		return errSpoolFull
	}
	b.inFiles += int64(len(p))
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

// open returns the body from its beginning, as a request holds it. Each returned reader has its own position.
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
		_ = os.Remove(b.name) //nolint:errcheck,gosec // os.CreateTemp made the name; no caller could handle an error
	}
	b.memory.give(b.inMemory)
	b.files.give(b.inFiles)
}
