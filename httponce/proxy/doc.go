// Package proxy is a reverse proxy for services that know nothing of idempotency keys. It belongs inside a
// middleware of package httponce, and tells it which requests never reached the service.
package proxy
