package wire

import "net/http"

// Inform sends a status below 200, with the header as it stands. Where a client resets its stream meanwhile, net/http's HTTP/2 returns before it
// has read that header, and reads it beside whoever changes it next, which may end the whole process (golang/go#67940). Of a header that has a
// Content-Length it reads a copy, without that field, which HTTP/1.1 does not send here either.
func Inform(w http.ResponseWriter, status int) {
	h := w.Header()
	if _, there := h["Content-Length"]; !there {
		h["Content-Length"] = nil
		defer delete(h, "Content-Length")
	}
	w.WriteHeader(status)
}
