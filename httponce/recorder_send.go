package httponce

import (
	"bytes"
	"io"
	"net/http"
	"strings"
	"sync"

	"github.com/everonce/everonce/httponce/internal/wire"
)

// send sends what was held. Of an answer that was a stream there is nothing left to send.
func (r *recorder) send() {
	if r.mode == modeHold {
		r.sendHeld()
	}
}

// sendHeld gives w what the handler gave the recorder: the header as it was when it was written, the body in the
// same writes, and then the header as the handler left it, with its trailers.
func (r *recorder) sendHeld() {
	var left http.Header
	if r.used && r.status != 0 {
		h := r.x.w.Header()
		switch {
		case r.separate:
			left = r.header
			r.sent.put(h)
		case !r.sent.are(h):
			left = h.Clone()
			r.sent.put(h)
		}
	}
	if r.x.echoed != "" { // else the header is not asked for
		r.x.echo(r.x.w.Header())
	}
	if r.chunked {
		wire.PutPrefixed(r.x.w.Header(), left)
	}
	if r.explicit {
		r.x.w.WriteHeader(r.status)
	}
	if r.held.size > 0 {
		r.sendBody()
	}
	if left != nil {
		replaceHeader(r.x.w.Header(), left)
	}
}

// sendBody writes the body. An error is the client's end: its retry is a replay.
func (r *recorder) sendBody() {
	body := r.held.body()
	for i := 0; i < len(r.held.ops); i++ {
		var err error
		switch op := r.held.ops[i]; op.kind {
		case wrote:
			_, err = r.x.w.Write(body.take(op.n))
		case wroteString:
			err = writeAsString(r.x.w, body.take(op.n))
		case copied:
			end := i + 1
			for end < len(r.held.ops) && r.held.ops[end].kind == read {
				end++
			}
			body, err = body.copyTo(r.x.w, r.held.ops[i+1:end])
			i = end - 1
		}
		if err != nil {
			return
		}
	}
}

// writeAsString writes a string where w tells strings from bytes: net/http cuts them into other chunks.
func writeAsString(w http.ResponseWriter, b []byte) (err error) {
	if sw, ok := w.(io.StringWriter); ok {
		_, err = sw.WriteString(string(b))
	} else {
		_, err = w.Write(b)
	}
	return err
}

// sniffLen is how much net/http's ReadFrom copies before it sends the header.
const sniffLen = 512

// copyBufs are what ReadFrom reads into, of the size that net/http has.
var copyBufs = sync.Pool{New: func() any { return new([32 << 10]byte) }}

// ReadFrom adds what src holds to the body.
func (r *recorder) ReadFrom(src io.Reader) (n int64, err error) {
	if rf, ok := r.x.w.(io.ReaderFrom); !ok {
		return io.Copy(onlyWriter{r}, src)
	} else if r.mode == modeStream && r.gate == nil && r.declared < 0 { // net/http copies past a length
		return rf.ReadFrom(src)
	}
	buf := copyBufs.Get().(*[32 << 10]byte) //nolint:forcetypeassert // it holds nothing else
	defer copyBufs.Put(buf)
	if r.mode == modeHold {
		r.held.note(0, copied)
	}
	if !r.held.begun {
		if n, err = r.copy(io.LimitReader(src, sniffLen), buf[:]); err != nil || n < sniffLen {
			return n, err
		}
	}
	r.held.noteFlush()
	m, err := r.copy(src, buf[:])
	return n + m, err
}

type onlyWriter struct{ io.Writer }

// copy is the loop of io.Copy, whose reads are told apart.
func (r *recorder) copy(src io.Reader, buf []byte) (n int64, err error) {
	for {
		nr, rerr := src.Read(buf)
		if nr > 0 {
			var nw int
			if r.mode >= modeStream {
				nw, err = r.writeThrough(buf[:nr])
			} else {
				nw, err = r.hold(buf[:nr], "", read)
			}
			n += int64(nw)
			if err != nil {
				return n, err
			}
		}
		switch {
		case rerr == io.EOF:
			return n, nil
		case rerr != nil:
			return n, rerr
		}
	}
}

// headSize returns how much room the saved head needs, and what may follow the body.
func headSize(fs fields) int {
	n := 16
	for i := range fs {
		n += len(fs[i].name) + 4
		for j := range fs[i].len() {
			n += len(fs[i].value(j)) + 2
		}
	}
	return n
}

// trailers returns what the handler left in the header to be sent after the body. What it did not declare is sent only
// where net/http had not counted the body before: then the first client did not get it either.
func (r *recorder) trailers() (fs fields) {
	if !r.used {
		return nil
	}
	var declared map[string]bool
	if f := r.sent.named("Trailer"); f != nil {
		declared = f.listed(nil)
	}
	late := r.chunked || r.held.begun || declared != nil || r.x.r.ProtoMajor != 1
	for i := range r.sent {
		late = late || wire.IsPrefixed(r.sent[i].name)
	}
	for name, values := range r.header {
		if late && wire.IsPrefixed(name) || declared != nil && declared[strings.ToLower(name)] {
			fs = fs.taken(http.Header{name: values})
		}
	}
	return r.x.route.headers.mark(fs, nil)
}

// keep makes what was held the saved answer. rest says where the pieces are that are not in it; elided, that
// there is no body in it.
func (r *recorder) keep(rest *pieces, elided bool) *savedAnswer {
	s := &r.saved
	s.raw, s.head = r.held.buf, r.held.head
	if elided {
		s.raw = bytes.Clone(s.raw[:s.head])
		s.raw[1] |= flagElided
		return s
	}
	s.raw = appendFoot(s.raw, r.trailers(), rest)
	return s
}
