package httponce

import "net/http"

// markUnknown tells the middleware, where there is one around w, that nobody knows what became of the request,
// whatever a Save says of its status.
func markUnknown(w http.ResponseWriter) {
	if r, ok := unwrapped[interface{ markUnknown() }](w); ok {
		r.markUnknown()
	}
}

// markUpstream tells it what the answer of a [Proxy]'s own is, and what that means for the key, and returns how logs name the
// key. It returns false where there is no middleware around w, or it is hidden.
func markUpstream(w http.ResponseWriter, f upstreamFailure) (keyHash string, told bool) {
	r, told := unwrapped[*recorder](w)
	if !told {
		return "", false
	}
	if r.upstream = f; f.unsent() {
		r.markNotDone()
	} else {
		r.markUnknown()
	}
	return r.x.keyHash(), true
}

// markChunked tells it that the answer came in chunks, so that trailers may follow it.
func markChunked(w http.ResponseWriter) {
	if r, ok := unwrapped[*recorder](w); ok {
		r.chunked = true
	}
}

// streams reports whether the middleware around w passes on what it is given, as it comes.
func streams(w http.ResponseWriter) bool {
	r, ok := unwrapped[interface{ sending() bool }](w)
	return ok && r.sending()
}

// restarted makes the middleware around w forget what was written, and returns its own ResponseWriter: what is in between may
// have seen a status, and pass on no other. It returns false where that is too late, and where there is no middleware.
func restarted(w http.ResponseWriter) (own *recorder, ok bool) {
	own, ok = unwrapped[*recorder](w)
	return own, ok && own.restart()
}

// unwrapped returns the first of w, and what it wraps, that is a T.
func unwrapped[T any](w http.ResponseWriter) (found T, ok bool) {
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
