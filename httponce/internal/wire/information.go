package wire

import "net/http"

// Inform sends a status below 200 with the current header. If the client resets its stream, net/http's HTTP/2 may read
// the header after this has returned, and race with the next change of it (golang/go#67940). It reads a copy if there
// is a Content-Length, so one is added: it is not sent with such a status.
func Inform(w http.ResponseWriter, status int) {
	h := w.Header()
	if _, there := h["Content-Length"]; !there {
		h["Content-Length"] = nil
		defer delete(h, "Content-Length")
	}
	w.WriteHeader(status)
}
