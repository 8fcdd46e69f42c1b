package session

import (
	"encoding/binary"
	"errors"
	"fmt"
)

// commandVersion begins the encoding of a command.
const commandVersion = 1

// ErrEncoding is wrapped by the errors of [ParseCommand] and [Command.AppendTo].
var ErrEncoding = errors.New("session: not a command")

// AppendTo appends the command in its binary encoding, which is the same in logs and on the wire, and which every later
// version reads. Numbers are 64 bits wide, little endian:
//
//	version(8) op(8) ordered(8) session epoch number mark nonce(16 bytes) fingerprint(32 bytes)
//	principal (length in 8 bits) beats (count in 16 bits; each session nonce epoch mark) payload (the rest)
//
// It fails if Principal or Beats exceed their limits.
func (c *Command) AppendTo(b []byte) ([]byte, error) {
	if len(c.Principal) > MaxPrincipal || len(c.Beats) > MaxBeats {
		return b, fmt.Errorf("%w: a principal of %d bytes, or %d beats, is over the limit", ErrEncoding, len(c.Principal), len(c.Beats))
	}
	ordered := byte(0)
	if c.Ordered {
		ordered = 1
	}
	number := binary.LittleEndian.AppendUint64
	b = append(b, commandVersion, byte(c.Op), ordered)
	b = number(number(number(number(b, uint64(c.Session)), c.Epoch), c.Number), c.Mark)
	b = append(append(b, c.Nonce[:]...), c.Fingerprint[:]...)
	b = append(append(b, byte(len(c.Principal))), c.Principal...) //nolint:gosec // at most MaxPrincipal
	b = binary.LittleEndian.AppendUint16(b, uint16(len(c.Beats))) //nolint:gosec // at most MaxBeats
	for i := range c.Beats {
		beat := &c.Beats[i]
		b = append(number(b, uint64(beat.Session)), beat.Nonce[:]...)
		b = number(number(b, beat.Epoch), beat.Mark)
	}
	return append(b, c.Payload...), nil
}

// ParseCommand parses the encoding of AppendTo. The command's Payload is a part of b. The error wraps [ErrEncoding],
// and also [ErrNewer] if a newer version of this package wrote it.
func ParseCommand(b []byte) (Command, error) {
	p := parser{rest: b}
	head := p.take(3)
	if p.short {
		return Command{}, fmt.Errorf("%w: it is truncated", ErrEncoding)
	}
	if head[0] > commandVersion {
		return Command{}, fmt.Errorf("%w: %w: version %d; this version reads %d", ErrEncoding, ErrNewer, head[0], commandVersion)
	}
	if head[0] != commandVersion {
		return Command{}, fmt.Errorf("%w: version %d; this version reads %d", ErrEncoding, head[0], commandVersion)
	}
	if head[2] > 1 {
		return Command{}, fmt.Errorf("%w: a flag is neither 0 nor 1", ErrEncoding)
	}
	c := Command{Op: Op(head[1]), Ordered: head[2] == 1}
	c.Session, c.Epoch, c.Number, c.Mark = ID(p.number()), p.number(), p.number(), p.number()
	copy(c.Nonce[:], p.take(len(c.Nonce)))
	copy(c.Fingerprint[:], p.take(len(c.Fingerprint)))
	c.Principal = string(p.take(int(p.take(1)[0])))
	n := int(binary.LittleEndian.Uint16(p.take(2)))
	if n > MaxBeats {
		return Command{}, fmt.Errorf("%w: %d beats", ErrEncoding, n)
	}
	for range n {
		beat := Beat{Session: ID(p.number())}
		copy(beat.Nonce[:], p.take(len(beat.Nonce)))
		beat.Epoch, beat.Mark = p.number(), p.number()
		if p.short {
			break
		}
		c.Beats = append(c.Beats, beat)
	}
	if p.short {
		return Command{}, fmt.Errorf("%w: it is truncated", ErrEncoding)
	}
	if len(p.rest) > 0 {
		c.Payload = p.rest
	}
	return c, nil
}

// parser takes bytes from the front. If too few are left it returns zeros, and sets short.
type parser struct {
	rest  []byte
	short bool
}

func (p *parser) take(n int) []byte {
	if len(p.rest) < n {
		p.rest, p.short = nil, true
		return make([]byte, n)
	}
	b := p.rest[:n:n]
	p.rest = p.rest[n:]
	return b
}

func (p *parser) number() uint64 { return binary.LittleEndian.Uint64(p.take(8)) }
