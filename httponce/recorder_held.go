package httponce

import "net/http"

// held is the body of an answer that waits for its record.
type held struct {
	buf  []byte   // the head of the saved answer, and the beginning of the body
	head int      // where the body begins
	rest [][]byte // the rest of the body, in pieces of room bytes
	room int      // how much buf, and each piece, may hold
	size int64    // of the body
}

// footRoom is for what follows the body in its first piece, where others follow.
const footRoom = 64

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

// send writes the body. An error is the client's end: its retry is a replay.
func (h *held) send(w http.ResponseWriter) {
	if h.size == 0 {
		return
	}
	_, err := w.Write(h.buf[h.head:])
	for i := 0; i < len(h.rest) && err == nil; i++ {
		_, err = w.Write(h.rest[i])
	}
}
