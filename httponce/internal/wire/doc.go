// Package wire is what the server, the client and the proxy share: the syntax of keys, problem documents, rules for
// headers and trailers, and what a proxy tells the middleware around it.
package wire
