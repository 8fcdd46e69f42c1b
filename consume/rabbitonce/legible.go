package rabbitonce

import (
	"bufio"
	"encoding/binary"
	"io"
	"net"
)

// legibleConn is a connection by which no headers come that the library does not read: it ends the connection where a table is nested too
// deeply, or has too many entries, though the broker takes both. One such message, of anybody who may publish, would end it at each
// delivery, and count as one for all that was sent ahead with it, until the broker has made dead letters of them all.
//
// The value of a header that cannot be read is none here, and of too many headers the last are left out.
type legibleConn struct {
	net.Conn
	in    *bufio.Reader
	left  int    // bytes of a frame that passes as it is
	ready []byte // what is left of one that was looked at
	frame []byte // room for one
	raw   bool   // this is no stream of frames, or its end
}

func newLegibleConn(c net.Conn) *legibleConn {
	return &legibleConn{Conn: c, in: bufio.NewReaderSize(c, 16<<10)}
}

// The frames of AMQP, as far as they are looked at (4.2.3 of its specification): type, channel, size, payload, end.
const (
	frameMethod    = 1
	frameHeader    = 2
	frameBody      = 3
	frameHeartbeat = 8

	frameHeadLen = 7
	frameEndLen  = 1
	// maxFrame is the largest that the library agrees to. It refuses a larger one.
	maxFrame = 128 << 10

	contentHeadLen      = 14 // class, weight, size of the body, flags
	flagContentType     = 1 << 15
	flagContentEncoding = 1 << 14
	flagHeaders         = 1 << 13
)

// Read reads. Like any connection's, it is called by one goroutine at a time.
func (c *legibleConn) Read(p []byte) (int, error) {
	if !c.raw && c.left == 0 && len(c.ready) == 0 {
		if err := c.next(); err != nil {
			return 0, err
		}
	}
	if len(c.ready) > 0 {
		n := copy(p, c.ready)
		c.ready = c.ready[n:]
		return n, nil
	}
	if !c.raw {
		p = p[:min(len(p), c.left)]
	}
	n, err := c.in.Read(p)
	c.left -= n
	return n, err
}

// next looks at the head of the next frame.
func (c *legibleConn) next() error {
	head, err := c.in.Peek(frameHeadLen)
	if err != nil {
		if len(head) > 0 { // who reads them tells the error
			c.raw = true
			return nil
		}
		return err
	}
	size := binary.BigEndian.Uint32(head[3:])
	switch kind := head[0]; {
	case size > maxFrame, kind != frameMethod && kind != frameHeader && kind != frameBody && kind != frameHeartbeat:
		c.raw = true
	case kind == frameHeader:
		return c.look(frameHeadLen + int(size) + frameEndLen)
	default:
		c.left = frameHeadLen + int(size) + frameEndLen
	}
	return nil
}

// look reads a frame of a message's head, whole, and makes it one that can be read.
func (c *legibleConn) look(size int) error {
	if cap(c.frame) < size {
		c.frame = make([]byte, size)
	}
	n, err := io.ReadFull(c.in, c.frame[:size])
	c.ready = c.frame[:n]
	if err != nil { // who reads what there is asks for more
		c.raw = true
		return nil
	}
	c.ready = legibleFrame(c.ready)
	return nil
}

// legibleFrame returns a frame of a message's head as the library can read it; one that is none, as it is.
func legibleFrame(frame []byte) []byte {
	payload := frame[frameHeadLen : len(frame)-frameEndLen]
	if len(payload) < contentHeadLen {
		return frame
	}
	flags, at := binary.BigEndian.Uint16(payload[contentHeadLen-2:]), contentHeadLen
	for _, flag := range []uint16{flagContentType, flagContentEncoding} {
		if flags&flag != 0 && at < len(payload) {
			at += 1 + int(payload[at])
		}
	}
	if flags&flagHeaders == 0 || at+4 > len(payload) {
		return frame
	}
	size, payload := int64(binary.BigEndian.Uint32(payload[at:])), payload[at+4:]
	if size > int64(len(payload)) {
		return frame
	}
	headers, rest := payload[:size], payload[size:]
	if legible(headers, true, 0) {
		return frame
	}
	kept := legibleHeaders(headers)
	b := append([]byte(nil), frame[:frameHeadLen+at]...)
	b = append(binary.BigEndian.AppendUint32(b, uint32(len(kept))), kept...) //nolint:gosec // less than a frame
	b = append(append(b, rest...), frame[len(frame)-frameEndLen])
	binary.BigEndian.PutUint32(b[3:], uint32(len(b)-frameHeadLen-frameEndLen)) //nolint:gosec // as above
	return b
}

// What the library reads of a table, and of an array: how deep others lie in a table, and how many values there are in each.
const (
	maxNesting = 32
	maxValues  = 8192
)

// legible reports whether the library reads what is in a table, whose values have names, or in an array, so deep in others.
func legible(b []byte, named bool, depth int) bool {
	for n := 0; len(b) > 0; n++ {
		_, value, rest, ok := split(b, named)
		if !ok || n == maxValues || !legibleValue(value, depth) {
			return false
		}
		b = rest
	}
	return true
}

func legibleValue(value []byte, depth int) bool {
	switch value[0] {
	case 'F', 'A':
		return depth < maxNesting && legible(value[5:], value[0] == 'F', depth+1)
	}
	return true
}

// legibleHeaders returns what can be read of the headers of a message.
func legibleHeaders(b []byte) (kept []byte) {
	for range maxValues {
		name, value, rest, ok := split(b, true)
		if !ok {
			break
		}
		if !legibleValue(value, 0) {
			value = []byte{'V'}
		}
		kept = append(append(kept, name...), value...)
		b = rest
	}
	return kept
}

// split takes the first value, with its type, out of a table, where a name stands before it, or out of an array. ok is false where there is
// none, or none of a type that the library knows.
func split(b []byte, named bool) (name, value, rest []byte, ok bool) {
	if named {
		if len(b) == 0 || len(b) <= 1+int(b[0]) {
			return nil, nil, nil, false
		}
		name, b = b[:1+int(b[0])], b[1+int(b[0]):]
	}
	if len(b) == 0 {
		return nil, nil, nil, false
	}
	size := uint64(0)
	switch b[0] {
	case 'V':
		size = 1
	case 't', 'B', 'b':
		size = 2
	case 's', 'u':
		size = 3
	case 'I', 'i', 'f':
		size = 5
	case 'D':
		size = 6
	case 'l', 'd', 'T':
		size = 9
	case 'S', 'x', 'F', 'A':
		if len(b) >= 5 {
			size = 5 + uint64(binary.BigEndian.Uint32(b[1:]))
		}
	}
	if size == 0 || size > uint64(len(b)) {
		return nil, nil, nil, false
	}
	return name, b[:size], b[size:], true
}
