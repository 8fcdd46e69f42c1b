// Package monitoring checks docs/monitoring against the figures of a service that has really run. Its module requires
// Prometheus' parser, which no user's module does.
package monitoring
