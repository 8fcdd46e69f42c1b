package httponce

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"io"
	"math"
	"math/rand/v2"
	"net/http"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"testing/iotest"
	"time"
)

func filled(t testing.TB, src io.Reader, declared, limit int64) *body {
	t.Helper()
	b := &body{}
	if err := b.fill(src, declared, limit, time.Time{}); err != nil {
		t.Fatal(err)
	}
	return b
}

func random(n int) []byte {
	p := make([]byte, n)
	r := rand.NewChaCha8([32]byte{1})
	r.Read(p)
	return p
}

// A body that cannot be kept, or not be read again, is an error of the middleware, and never a shorter body.
func TestABodyThatTheDiskLosesIsAnError(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	lost := func() *os.File {
		f, err := os.CreateTemp(t.TempDir(), "body")
		if err != nil {
			t.Fatal(err)
		}
		return f
	}
	b, ours := &body{content: content{file: lost()}}, new(spoolError)
	b.file.Close()
	if err := b.fill(bytes.NewReader(random(3*smallBody)), -1, 1<<20, time.Time{}); !errors.As(err, &ours) {
		t.Errorf("a write that fails: %v", err)
	}
	b = &body{content: content{file: lost(), size: 10}}
	defer b.release()
	if _, err := b.file.WriteString("012345678"); err != nil {
		t.Fatal(err)
	}
	if got, err := io.ReadAll(b.open()); !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("a file that is too short is read as %q, %v", got, err)
	}
	if _, err := b.bytes(); !errors.As(err, &ours) {
		t.Errorf("its bytes: %v", err)
	}
	form, err := Compare{JSON: true}.compile("Idempotency-Key")
	if err != nil {
		t.Fatal(err)
	}
	if sum, err := form.of(jsonRequest("{}"), b); !errors.As(err, &ours) {
		t.Errorf("its fingerprint: %v, %v", sum, err)
	}
}

// A body of any size, declared or not, comes back unchanged, as often as it is opened.
func TestBodyIsWhatWasSent(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	for _, size := range []int{0, 1, 1023, 1024, 1025, firstBody - 1, firstBody, firstBody + 1, 3 * firstBody, smallBody - 1, smallBody, smallBody + 1, 3*smallBody + 17, memoryBody - 1, memoryBody, memoryBody + 1, 3*memoryBody + 17} {
		p := random(size)
		for name, src := range map[string]func() (io.Reader, int64){
			"declared":          func() (io.Reader, int64) { return bytes.NewReader(p), int64(size) },
			"chunked":           func() (io.Reader, int64) { return bytes.NewReader(p), -1 },
			"end with the data": func() (io.Reader, int64) { return iotest.DataErrReader(bytes.NewReader(p)), int64(size) },
			"halves":            func() (io.Reader, int64) { return iotest.HalfReader(bytes.NewReader(p)), -1 },
			"more than it says": func() (io.Reader, int64) { return bytes.NewReader(p), int64(size) / 2 },
			"less than it says": func() (io.Reader, int64) { return bytes.NewReader(p), 2 * int64(size) },
		} {
			r, declared := src()
			b := filled(t, r, declared, int64(size))
			large := size > memoryBody || declared > memoryBody && size >= smallBody
			if (b.file != nil) != large {
				t.Errorf("%s, %d bytes: in a file is %v", name, size, b.file != nil)
			}
			for range 2 {
				got, err := io.ReadAll(iotest.OneByteReader(io.LimitReader(b.open(), 10)))
				if err != nil || !bytes.Equal(got, p[:min(10, size)]) {
					t.Errorf("%s, %d bytes: it begins with %x, %v", name, size, got, err)
				}
				if got, err := io.ReadAll(b.open()); err != nil || !bytes.Equal(got, p) {
					t.Errorf("%s, %d bytes: it has %d, %v", name, size, len(got), err)
				}
			}
			if whole, err := b.bytes(); err != nil || !bytes.Equal(whole, p) || b.sum() != sha256.Sum256(p) || b.size != int64(size) {
				t.Errorf("%s, %d bytes: %v", name, size, err)
			}
			if size < 2*firstBody || size < memoryBody-1 && name == "chunked" {
				if err := iotest.TestReader(b.open(), p); err != nil {
					t.Errorf("%s, %d bytes: %v", name, size, err)
				}
			}
			b.release()
		}
	}
	checkNoFiles(t)
}

func checkNoFiles(t testing.TB) {
	t.Helper()
	left, err := os.ReadDir(os.TempDir())
	if err != nil || len(left) > 0 {
		t.Errorf("left in the folder for temporary files: %v, %v", left, err)
	}
}

// The memory for a body follows the bytes that were sent, and not the announced length.
func TestMemoryOfABody(t *testing.T) {
	for _, c := range []struct {
		sent     int
		declared int64
		most     int
	}{
		{200, 200, 201},
		{200, -1, 1 << 10},
		{200, 1 << 40, firstBody},
		{0, 1 << 40, firstBody},
		{20 << 10, 20 << 10, 20<<10 + 1},
		{20 << 10, -1, 32 << 10},
		{60 << 10, 1 << 40, smallBody},
		{200 << 10, 200 << 10, 200<<10 + 1},
		{200 << 10, -1, 256 << 10},
		{memoryBody, memoryBody, memoryBody + 1},
	} {
		b := filled(t, bytes.NewReader(make([]byte, c.sent)), c.declared, 1<<50)
		if cap(b.mem) > c.most {
			t.Errorf("%+v: %d bytes are held", c, cap(b.mem))
		}
	}
	b := filled(t, bytes.NewReader(make([]byte, 3*memoryBody)), -1, 1<<50)
	defer b.release()
	if b.mem != nil {
		t.Error("what is in a file is in memory too")
	}
}

// Whatever a client says of the length of its body, where nothing limits it: room for it is not made before it comes.
func TestABodyThatIsSaidToBeEndless(t *testing.T) {
	b := &body{}
	defer b.release()
	if err := b.fill(strings.NewReader("short"), math.MaxInt64, math.MaxInt64, time.Time{}); err != nil || string(b.mem) != "short" || cap(b.mem) > firstBody {
		t.Errorf("%q in %d bytes, %v", b.mem, cap(b.mem), err)
	}
}

// Bodies above 64 KiB are in memory as long as there is room for all of them together, and otherwise in files. A body's
// room is given back when it is released, and the memory that it used before its file as soon as it is read.
func TestMemoryOfAllBodies(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	used := new(atomic.Int64)
	fill := func(limit, size int64) (*body, error) {
		b := &body{memory: &space{limit, used}}
		return b, b.fill(bytes.NewReader(make([]byte, size)), -1, 2<<20, time.Time{})
	}
	const size = 3 * smallBody
	var held []*body
	for i, c := range []struct {
		limit, size int64
		file        bool
	}{
		{8 * smallBody, size, false},
		{8 * smallBody, size, false},
		{8 * smallBody, smallBody - 1, false}, // takes no room
		{8 * smallBody, size, true},
		{4 * smallBody, size, true}, // another middleware, whose limit is reached by the others' bodies
		{12 * smallBody, size, false},
		{64 * smallBody, 2 << 20, true},
	} {
		before := used.Load()
		b, err := fill(c.limit, c.size)
		if err != nil || (b.file != nil) != c.file {
			t.Errorf("%d: in a file is %v, %v", i, b.file != nil, err)
		}
		if taken := used.Load() - before; (taken != 0) != (!c.file && c.size > smallBody) || taken != 0 && taken < c.size {
			t.Errorf("%d: it takes %d bytes of the memory for all", i, taken)
		}
		held = append(held, b)
	}
	b, err := fill(64*smallBody, 3<<20)
	if !errors.Is(err, errBodyTooLarge) {
		t.Errorf("a body above its limit: %v", err)
	}
	for _, b := range append(held, b) {
		b.release()
	}
	if n := used.Load(); n != 0 {
		t.Errorf("%d bytes were not given back", n)
	}
	checkNoFiles(t)
}

// Over the limit there is an end, whatever is still to come.
func TestBodyOverItsLimit(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	for _, limit := range []int64{1, firstBody, smallBody, memoryBody, 2 * memoryBody} {
		for _, declared := range []int64{-1, limit, limit + 1} {
			endless := &counter{}
			b := &body{}
			if err := b.fill(endless, declared, limit, time.Time{}); !errors.Is(err, errBodyTooLarge) {
				t.Errorf("%d, %d: %v", limit, declared, err)
			}
			if endless.n > limit+memoryBody {
				t.Errorf("%d: %d bytes were read", limit, endless.n)
			}
			b.release()
		}
	}
	checkNoFiles(t)
}

// counter is a body without an end.
type counter struct{ n int64 }

func (c *counter) Read(p []byte) (int, error) {
	c.n += int64(len(p))
	return len(p), nil
}

type lazy struct{}

func (lazy) Read([]byte) (int, error) { return 0, nil }

func TestBodiesThatBreakOff(t *testing.T) {
	broken := errors.New("broken")
	for name, c := range map[string]struct {
		src   io.Reader
		until time.Time
		want  error
	}{
		"an error":               {src: iotest.ErrReader(broken), want: broken},
		"cut off":                {src: io.MultiReader(strings.NewReader("half"), iotest.ErrReader(io.ErrUnexpectedEOF)), want: io.ErrUnexpectedEOF},
		"cut off, in the file":   {src: io.MultiReader(bytes.NewReader(make([]byte, 2*memoryBody)), iotest.ErrReader(io.ErrUnexpectedEOF)), want: io.ErrUnexpectedEOF},
		"nothing, for ever":      {src: lazy{}, want: io.ErrNoProgress},
		"after the time is over": {src: &counter{}, until: time.Now().Add(-time.Second), want: os.ErrDeadlineExceeded},
	} {
		b := &body{}
		if err := b.fill(c.src, -1, 4<<20, c.until); !errors.Is(err, c.want) {
			t.Errorf("%s: %v, want %v", name, err, c.want)
		}
		b.release()
	}
}

// Without room for the file, the middleware reports its own failure.
func TestNoRoomForABody(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir()+"/is/not/there")
	b := &body{}
	var ours *spoolError
	if err := b.fill(bytes.NewReader(make([]byte, 2*memoryBody)), -1, 4<<20, time.Time{}); !errors.As(err, &ours) || !errors.Is(err, os.ErrNotExist) {
		t.Errorf("%v", err)
	}
	b.release()
}

// Readers end like net/http's own, and each has its own position.
func TestReadersOfABody(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	for _, size := range []int{10, 2 * memoryBody} {
		p := random(size)
		b := filled(t, bytes.NewReader(p), -1, 4<<20)
		one, two := b.open(), b.open()
		io.ReadFull(one, make([]byte, 5))
		if got, err := io.ReadAll(two); err != nil || !bytes.Equal(got, p) {
			t.Errorf("%d: the second reader has %d bytes, %v", size, len(got), err)
		}
		one.Close()
		if _, err := one.Read(make([]byte, 1)); !errors.Is(err, http.ErrBodyReadAfterClose) {
			t.Errorf("%d: after Close: %v", size, err)
		}
		three := b.open()
		b.hold()
		b.release()
		if _, err := three.Read(make([]byte, 1)); err != nil {
			t.Errorf("%d: a holder is left: %v", size, err)
		}
		b.release()
		if _, err := three.Read(make([]byte, 1)); b.file != nil && !errors.Is(err, http.ErrBodyReadAfterClose) {
			t.Errorf("%d: after the last holder: %v", size, err)
		}
	}
	if b := filled(t, strings.NewReader(""), -1, 1); b.open() != http.NoBody {
		t.Error("an absent body is not net/http's")
	}
	checkNoFiles(t)
}
