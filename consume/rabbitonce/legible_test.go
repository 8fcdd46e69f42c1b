package rabbitonce

import (
	"bytes"
	"encoding/binary"
	"io"
	"net"
	"strings"
	"testing"
	"testing/iotest"
)

// frameOf is a frame, as the broker sends it.
func frameOf(kind byte, payload []byte) []byte {
	b := binary.BigEndian.AppendUint32([]byte{kind, 0, 1}, uint32(len(payload))) //nolint:gosec // of a test
	return append(append(b, payload...), 0xCE)
}

// headOf is the head of a message with a content type, headers and a priority.
func headOf(headers []byte) []byte {
	b := append(make([]byte, 12), 0xA8, 0) // class, weight, size; flags
	b = append(b, 4, 't', 'y', 'p', 'e')
	b = append(binary.BigEndian.AppendUint32(b, uint32(len(headers))), headers...) //nolint:gosec // of a test
	return frameOf(frameHeader, append(b, 7))
}

// tableOf is a value: so many tables in each other.
func tableOf(depth int) []byte {
	b := []byte("\x01xt\x01")
	for range depth - 1 {
		b = append([]byte("\x01x"), valueOf('F', b)...)
	}
	return valueOf('F', b)
}

func valueOf(kind byte, content []byte) []byte {
	return append(binary.BigEndian.AppendUint32([]byte{kind}, uint32(len(content))), content...) //nolint:gosec // of a test
}

// Of headers that the library does not read there is what it reads, and all else is as it came.
func TestLegibleFrames(t *testing.T) {
	named := func(name string, value []byte) []byte {
		return append(append([]byte{byte(len(name))}, name...), value...)
	}
	before, behind := named("a", []byte("S\x00\x00\x00\x01b")), named("z", []byte("l\x00\x00\x00\x00\x00\x00\x00\x09"))
	none := []byte{'V'}
	many := func(kind byte, n int) []byte {
		one := "V"
		if kind == 'F' {
			one = "\x01xV"
		}
		return valueOf(kind, []byte(strings.Repeat(one, n)))
	}
	for name, c := range map[string]struct{ sent, read []byte }{
		"nothing":                {nil, nil},
		"32 tables":              {tableOf(32), tableOf(32)},
		"33 tables":              {tableOf(33), none},
		"an array of 32 tables":  {valueOf('A', tableOf(32)), none},
		"an array of 31 tables":  {valueOf('A', tableOf(31)), valueOf('A', tableOf(31))},
		"tables behind a value":  {valueOf('A', append([]byte{'t', 1}, tableOf(32)...)), none},
		"8192 values":            {many('A', 8192), many('A', 8192)},
		"8193 values":            {many('A', 8193), none},
		"8193 names":             {many('F', 8193), none},
		"an unknown type inside": {valueOf('A', []byte{'!'}), none},
		"a length that is wrong": {valueOf('A', []byte("S\x00\x00\x00\x09x")), none},
	} {
		sent, read := before, before
		if c.sent != nil {
			sent, read = append(bytes.Clone(before), named("m", c.sent)...), append(bytes.Clone(before), named("m", c.read)...)
		}
		if got, want := legibleFrame(headOf(append(sent, behind...))), headOf(append(read, behind...)); !bytes.Equal(got, want) {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
	}
	wide, whole := bytes.Repeat(before, 8193), bytes.Repeat(before, 8192)
	if got := legibleFrame(headOf(wide)); !bytes.Equal(got, headOf(whole)) {
		t.Errorf("of 8193 headers there are %d bytes, want %d", len(got), len(headOf(whole)))
	}
}

type streamConn struct {
	net.Conn
	io.Reader
}

func (c streamConn) Read(p []byte) (int, error) { return c.Reader.Read(p) }

// What comes is passed on as it came, in whatever pieces, but for headers that cannot be read: frames of all kinds, one that breaks off, and
// what is no frame.
func TestLegibleConnPassesTheRest(t *testing.T) {
	deep, none := headOf(append([]byte("\x01m"), tableOf(33)...)), headOf([]byte("\x01mV"))
	plain := bytes.Join([][]byte{frameOf(frameMethod, []byte("start")), headOf(nil), frameOf(frameBody, bytes.Repeat([]byte("b"), 70_000)), frameOf(frameHeartbeat, nil)}, nil)
	for name, end := range map[string]string{
		"":                          "",
		"a head that breaks off":    "\x02\x00",
		"a frame that breaks off":   "\x02\x00\x01\x00\x00\x00\x20half",
		"another version":           "AMQP\x00\x00\x09\x01",
		"a frame that is too large": "\x02\x00\x01\xff\xff\xff\xffxyz" + string(deep),
	} {
		sent := bytes.Join([][]byte{plain, deep, plain, []byte(end)}, nil)
		want := bytes.Join([][]byte{plain, none, plain, []byte(end)}, nil)
		for how, r := range map[string]io.Reader{
			"whole": bytes.NewReader(sent), "byte by byte": iotest.OneByteReader(bytes.NewReader(sent)), "with its end": iotest.DataErrReader(bytes.NewReader(sent)),
		} {
			got, err := io.ReadAll(newLegibleConn(streamConn{Reader: r}))
			if err != nil || !bytes.Equal(got, want) {
				t.Errorf("%q, %s: %d bytes, %v, want %d", name, how, len(got), err, len(want))
			}
		}
	}
}

// FuzzLegibleFrame: whatever is in a frame, there comes one of the same kind that is no larger, and to which nothing is left to be done.
func FuzzLegibleFrame(f *testing.F) {
	for _, frame := range [][]byte{headOf(nil), headOf(tableOf(40)), headOf(append([]byte("\x01m"), tableOf(33)...)), frameOf(frameHeader, nil)} {
		f.Add(frame[frameHeadLen : len(frame)-frameEndLen])
	}
	f.Fuzz(func(t *testing.T, payload []byte) {
		payload = payload[:min(len(payload), maxFrame)]
		frame := frameOf(frameHeader, payload)
		got := legibleFrame(bytes.Clone(frame))
		if size := binary.BigEndian.Uint32(got[3:]); len(got) > len(frame) || int(size) != len(got)-8 || got[0] != frameHeader || got[len(got)-1] != 0xCE {
			t.Fatalf("%q becomes %q", frame, got)
		}
		if again := legibleFrame(bytes.Clone(got)); !bytes.Equal(again, got) {
			t.Errorf("%q becomes %q, and then %q", frame, got, again)
		}
	})
}
