package httponce

import "io"

// held is the body of an answer that waits for its record, with the writes that it came in: net/http makes of them
// what is seen on the wire, chunk by chunk.
type held struct {
	buf  []byte   // the head of the saved answer, and the beginning of the body
	head int      // where the body begins
	rest [][]byte // the rest of the body, in pieces of room bytes
	room int      // how much buf, and each piece, may hold
	size int64    // of the body

	ops    []op
	first  [2]op // most answers are one write
	filled int   // how much net/http would have in its buffer
	begun  bool  // net/http would have sent the header
}

// op is one write of the handler's, or several that come to the same on the wire.
type op struct {
	n    int
	kind opKind
}

type opKind uint8

const (
	wrote       opKind = iota
	wroteString        // longer than what was free in net/http's buffer
	copied             // a ReadFrom begins; its reads follow
	read               // one Read of the source of a ReadFrom
)

// wireBuffer is the buffer that net/http has before its chunks. Writes that fit into what is free in it, together,
// need not be told apart.
const wireBuffer = 2048

// note remembers a write, and does what net/http's buffer would do.
func (h *held) note(n int, kind opKind) {
	if h.ops == nil {
		h.ops = h.first[:0]
	}
	free := wireBuffer - h.filled
	if n <= free {
		if kind == wroteString {
			kind = wrote
		}
		last := len(h.ops) - 1
		h.filled += n
		if h.filled > n && last >= 0 && (h.ops[last].kind == kind || kind == wrote && h.ops[last].kind == wroteString) {
			h.ops[last].n += n
			return
		}
		h.ops = append(h.ops, op{n, kind})
		return
	}
	h.begun = true
	h.ops = append(h.ops, op{n, kind})
	switch over := n - free; {
	case kind == wroteString: // it is cut into pieces of the buffer's size
		h.filled = (h.filled+n-1)%wireBuffer + 1
	case h.filled == 0 || over > wireBuffer: // it goes past the buffer
		h.filled = 0
	default:
		h.filled = over
	}
}

// noteFlush is what a ReadFrom does after its first 512 bytes.
func (h *held) noteFlush() { h.filled, h.begun = 0, true }

// add keeps p and s.
func (h *held) add(p []byte, s string) {
	h.size += int64(len(p) + len(s))
	room := h.room - footRoom
	if len(h.rest) == 0 && len(h.buf)+len(p)+len(s) <= room {
		h.buf = append(append(h.buf, p...), s...)
		return
	}
	if len(s) > 0 {
		p = []byte(s)
	}
	if len(h.rest) == 0 {
		n := max(min(room-len(h.buf), len(p)), 0)
		h.buf, p = append(h.buf, p[:n]...), p[n:]
	}
	for len(p) > 0 {
		last := len(h.rest) - 1
		if last < 0 || len(h.rest[last]) == h.room {
			h.rest = append(h.rest, nil)
			last++
		}
		n := min(h.room-len(h.rest[last]), len(p))
		h.rest[last] = append(h.rest[last], p[:n]...)
		p = p[n:]
	}
}

// footRoom is for what follows the body in its first piece, where others follow.
const footRoom = 64

// body returns the body from its beginning.
func (h *held) body() cursor { return cursor{h: h, at: h.buf[h.head:]} }

// cursor reads a body that is in pieces.
type cursor struct {
	h    *held
	at   []byte // what is left of the current piece
	next int    // the piece after it
}

// take returns the next n bytes: without a copy, where they are in one piece.
func (c *cursor) take(n int) []byte {
	c.advance()
	if n <= len(c.at) {
		b := c.at[:n]
		c.at = c.at[n:]
		return b
	}
	b := make([]byte, 0, n)
	for len(b) < n {
		m := min(n-len(b), len(c.at))
		b, c.at = append(b, c.at[:m]...), c.at[m:]
		c.advance()
	}
	return b
}

func (c *cursor) advance() {
	for len(c.at) == 0 && c.next < len(c.h.rest) {
		c.at = c.h.rest[c.next]
		c.next++
	}
}

// copyTo gives w the bytes of some reads, as a source that is copied. It returns what is left: c itself stays
// off the heap.
func (c cursor) copyTo(w io.Writer, reads []op) (cursor, error) {
	src := &copySource{body: c, ops: reads}
	_, err := io.Copy(w, src)
	return src.body, err
}

// copySource is the source of a ReadFrom, read by read.
type copySource struct {
	body cursor
	ops  []op // the reads
	left int  // of the first of them
}

// Read returns what one read of the handler's source did.
func (s *copySource) Read(p []byte) (int, error) {
	for s.left == 0 {
		if len(s.ops) == 0 {
			return 0, io.EOF
		}
		s.left, s.ops = s.ops[0].n, s.ops[1:]
	}
	n := copy(p, s.body.take(min(len(p), s.left)))
	s.left -= n
	return n, nil
}
