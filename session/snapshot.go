package session

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"hash"
	"io"
	"slices"
	"sync/atomic"
	"time"
)

// The format of snapshots: numbers have a fixed width, little endian; a text or bytes follow their length in 32 bits.
//
//	"everonce-session" version(8) name
//	lease window maxResult maxBytes maxSessions perPrincipal (64 each) evict(8)
//	now(64) lastID(64) sessions(32)
//	each session, by ID: id nonce epoch mark high last (64 each, nonce 16 bytes) ordered(8) principal entries(32)
//	    each entry, by number: number(64) fingerprint(32 bytes) state(8) result
//	SHA-256 of all before it
const (
	magic           = "everonce-session"
	snapshotVersion = 1
)

// Errors of [Restore] and [Machine.Snapshot].
var (
	// ErrCorrupt: the snapshot is truncated, or was damaged.
	ErrCorrupt = errors.New("session: the snapshot is corrupt")
	// ErrNewer: a newer version of this package has written the snapshot, or the command.
	ErrNewer = errors.New("session: written by a newer version")
	// ErrOtherMachine: the snapshot belongs to a machine with another Config.Name.
	ErrOtherMachine = errors.New("session: the snapshot belongs to another machine")
	// ErrBusy: a request is being executed.
	ErrBusy = errors.New("session: a request is being executed")
)

// Snapshot is the state of a [Machine] at one moment. WriteTo may run while the machine applies commands.
type Snapshot struct {
	machine  *Machine
	config   Config
	now      int64
	lastID   ID
	listed   []*session
	count    int
	released atomic.Bool
}

// Snapshot returns the machine's current state. The caller must release it. It fails with [ErrBusy] between Begin and
// Record.
func (m *Machine) Snapshot() (*Snapshot, error) {
	if m.open > 0 {
		return nil, ErrBusy
	}
	m.view++
	m.reads++
	return &Snapshot{machine: m, config: m.config, now: m.now, lastID: m.lastID, listed: slices.Clone(m.listed), count: len(m.byID)}, nil
}

// Release ends the use of the snapshot: until then the machine copies what it changes. Like the machine's methods, it
// must not be called at the same time as one of them. Further calls do nothing.
func (s *Snapshot) Release() {
	if !s.released.Swap(true) {
		s.machine.reads--
		s.listed = nil
	}
}

// WriteTo writes the snapshot. Equal states give equal bytes.
func (s *Snapshot) WriteTo(w io.Writer) (int64, error) {
	sum := sha256.New()
	out := &writer{to: io.MultiWriter(w, sum)}
	c := &s.config
	out.raw([]byte(magic))
	out.raw([]byte{snapshotVersion})
	out.bytes([]byte(c.Name))
	for _, n := range []uint64{uint64(c.Lease), c.Window, uint64(c.MaxResult), uint64(c.MaxBytes), uint64(c.MaxSessions), uint64(c.PerPrincipal)} { //nolint:gosec // not negative
		out.number(n)
	}
	out.flag(c.Evict)
	out.number(uint64(s.now)) //nolint:gosec // its bits
	out.number(uint64(s.lastID))
	out.length(s.count)
	for _, one := range s.listed {
		if one != nil {
			out.session(one)
		}
		if out.err != nil {
			return out.n, out.err
		}
	}
	out.flush()
	out.raw(sum.Sum(nil))
	out.flush()
	return out.n, out.err
}

// writer gathers some kilobytes before it writes and hashes them.
type writer struct {
	to  io.Writer
	buf []byte
	n   int64
	err error
}

func (w *writer) raw(b []byte) {
	w.buf = append(w.buf, b...)
	if len(w.buf) >= 1<<15 {
		w.flush()
	}
}

func (w *writer) flush() {
	if w.err == nil {
		var n int
		n, w.err = w.to.Write(w.buf)
		w.n += int64(n)
	}
	w.buf = w.buf[:0]
}

func (w *writer) number(n uint64) { w.buf = binary.LittleEndian.AppendUint64(w.buf, n) }
func (w *writer) length(n int)    { w.buf = binary.LittleEndian.AppendUint32(w.buf, uint32(n)) } //nolint:gosec // at most largest

func (w *writer) bytes(b []byte) {
	w.length(len(b))
	w.raw(b)
}

func (w *writer) flag(on bool) {
	if on {
		w.raw([]byte{1})
	} else {
		w.raw([]byte{0})
	}
}

func (w *writer) session(s *session) {
	w.number(uint64(s.id))
	w.raw(s.Nonce[:])
	for _, n := range [...]uint64{s.Epoch, s.Mark, s.High, uint64(s.last)} { //nolint:gosec // its bits
		w.number(n)
	}
	w.flag(s.Ordered)
	w.length(len(s.of.name))
	w.buf = append(w.buf, s.of.name...)
	w.length(len(s.entries))
	for i := range s.entries {
		e := &s.entries[i]
		w.number(e.number)
		w.raw(e.sum[:])
		w.raw([]byte{byte(e.state)})
		w.bytes(e.result)
	}
}

// Restore returns a machine with the state and the Config of a snapshot, whose name must be name. The error wraps
// [ErrCorrupt], [ErrNewer] or [ErrOtherMachine], or is r's. Restore reads to the end of r.
func Restore(r io.Reader, name string) (*Machine, error) {
	in := &reader{sum: sha256.New(), from: bufio.NewReaderSize(r, 1<<16)}
	m, err := in.machine(name)
	switch {
	case in.err != nil && !errors.Is(in.err, io.EOF) && !errors.Is(in.err, io.ErrUnexpectedEOF):
		return nil, in.err
	case in.err != nil:
		return nil, fmt.Errorf("%w: it is truncated", ErrCorrupt)
	case err != nil:
		return nil, err
	}
	return m, nil
}

// reader reads and hashes. After an error it returns zeros.
type reader struct {
	from *bufio.Reader
	sum  hash.Hash
	tmp  [64]byte
	err  error
}

func (r *reader) fill(b []byte) {
	if r.err != nil {
		clear(b)
		return
	}
	if _, r.err = io.ReadFull(r.from, b); r.err != nil {
		clear(b)
		return
	}
	_, _ = r.sum.Write(b)
}

func (r *reader) small(n int) []byte {
	r.fill(r.tmp[:n])
	return r.tmp[:n]
}

func (r *reader) number() uint64 { return binary.LittleEndian.Uint64(r.small(8)) }
func (r *reader) length() int    { return int(binary.LittleEndian.Uint32(r.small(4))) }

func (r *reader) flag(ok *bool) bool {
	b := r.small(1)[0]
	*ok = *ok && b <= 1
	return b == 1
}

// bytes reads a length and that many bytes, at most most; a larger length is corrupt. It allocates only as bytes
// arrive, because the length may be wrong.
func (r *reader) bytes(most int, ok *bool) []byte {
	n := r.length()
	if n > most {
		*ok = false
	}
	if n == 0 || !*ok || r.err != nil {
		return nil
	}
	if n <= 1<<16 {
		b := make([]byte, n)
		r.fill(b)
		return b
	}
	var b bytes.Buffer
	if _, r.err = io.CopyN(&b, r.from, int64(n)); r.err != nil {
		return nil
	}
	_, _ = r.sum.Write(b.Bytes())
	return b.Bytes()
}

func (r *reader) machine(name string) (*Machine, error) {
	ok := true
	if string(r.small(len(magic))) != magic {
		return nil, fmt.Errorf("%w: it is not a snapshot of sessions", ErrCorrupt)
	}
	if v := r.small(1)[0]; v != snapshotVersion {
		if v > snapshotVersion {
			return nil, fmt.Errorf("%w: version %d; this version reads %d", ErrNewer, v, snapshotVersion)
		}
		return nil, fmt.Errorf("%w: version %d", ErrCorrupt, v)
	}
	if got := string(r.bytes(MaxPrincipal, &ok)); ok && r.err == nil && got != name {
		return nil, fmt.Errorf("%w: %q, want %q", ErrOtherMachine, got, name)
	}
	c := Config{Name: name, Lease: time.Duration(r.number()), Window: r.number()} //nolint:gosec // checked below
	for _, n := range []*int{&c.MaxResult, &c.MaxBytes, &c.MaxSessions, &c.PerPrincipal} {
		v := r.number()
		ok = ok && v <= largest
		*n = int(v) //nolint:gosec // just checked
	}
	c.Evict = r.flag(&ok)
	if checked, err := c.withDefaults(); r.err == nil && (err != nil || !ok || checked != c) {
		return nil, fmt.Errorf("%w: its Config is not valid", ErrCorrupt)
	}
	m := &Machine{config: c, byID: map[ID]*session{}, byNonce: map[Nonce]ID{}, held: map[string]*holder{}}
	m.now, m.lastID = int64(r.number()), ID(r.number()) //nolint:gosec // its bits
	previous := ID(0)
	for n := r.length(); n > 0 && r.err == nil; n-- {
		s := r.session(m, &ok)
		if r.err != nil {
			break
		}
		_, twice := m.byNonce[s.Nonce]
		if !ok || s.id <= previous || s.id > m.lastID || s.last > m.now || twice {
			return nil, fmt.Errorf("%w: a session is not valid", ErrCorrupt)
		}
		previous = s.id
		m.add(s)
	}
	want := r.sum.Sum(nil)
	if got := r.small(sha256.Size); r.err == nil && !bytes.Equal(got, want) {
		return nil, fmt.Errorf("%w: its hash differs", ErrCorrupt)
	}
	if r.err == nil {
		if _, err := r.from.ReadByte(); err == nil {
			return nil, fmt.Errorf("%w: bytes follow it", ErrCorrupt)
		}
	}
	return m, nil
}

func (r *reader) session(m *Machine, ok *bool) *session {
	s := &session{id: ID(r.number())}
	r.fill(s.Nonce[:])
	s.Epoch, s.Mark, s.High, s.last = r.number(), r.number(), r.number(), int64(r.number()) //nolint:gosec // its bits
	s.Ordered = r.flag(ok)
	s.of = m.holder(string(r.bytes(MaxPrincipal, ok)))
	n := r.length()
	*ok = *ok && uint64(n) <= m.config.Window //nolint:gosec // not negative
	if !*ok || r.err != nil {
		return s
	}
	s.entries = make([]entry, 0, n)
	number := s.Mark
	for range n {
		e := entry{number: r.number()}
		r.fill(e.sum[:])
		e.state = state(r.small(1)[0])
		e.result = r.bytes(m.config.MaxResult, ok)
		*ok = *ok && e.number > number && e.number <= s.High && (e.state == kept || e.state == elided && e.result == nil)
		if r.err != nil || !*ok {
			return s
		}
		number = e.number
		s.bytes += len(e.result)
		s.entries = append(s.entries, e)
	}
	return s
}
