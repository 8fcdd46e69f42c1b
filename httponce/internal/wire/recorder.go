package wire

import "net/http"

// Recorder is the ResponseWriter of a middleware around a proxy, as the proxy sees it. It is found by [Unwrapped].
type Recorder interface {
	http.ResponseWriter
	Marker
	// MarkUpstream says that the answer is the proxy's own problem of that name, and returns the hash that logs name the
	// key by.
	MarkUpstream(problem string) (keyHash string)
	// Sending reports whether a part of the answer has been sent, and what is written is sent as it comes.
	Sending() bool
	// Restart forgets what was written. It returns false if a part of that has been sent.
	Restart() bool
}

// Marker is the ResponseWriter of a middleware, to which a handler can say what its answer means.
type Marker interface {
	MarkNotDone()
	MarkUnknown()
}

// MarkNotDone tells a middleware around w that the request took no effect, whatever the status of its answer.
func MarkNotDone(w http.ResponseWriter) {
	if m, ok := Unwrapped[Marker](w); ok {
		m.MarkNotDone()
	}
}

// MarkUnknown tells a middleware around w that the outcome of the request is unknown, whatever the status of its
// answer.
func MarkUnknown(w http.ResponseWriter) {
	if m, ok := Unwrapped[Marker](w); ok {
		m.MarkUnknown()
	}
}

// Unwrapped returns the first of w, and what it wraps, that is a T.
func Unwrapped[T any](w http.ResponseWriter) (found T, ok bool) {
	for {
		if found, ok = w.(T); ok {
			return found, true
		}
		u, ok := w.(interface{ Unwrap() http.ResponseWriter })
		if !ok {
			return found, false
		}
		w = u.Unwrap()
	}
}
