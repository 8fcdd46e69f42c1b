// Package config reads the configuration of `everonce proxy`: flags over EVERONCE_… over a file over
// defaults. All that may be set is in one table, from which the flags, the file's keys and the reference are made.
package config

import (
	"errors"
	"time"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/httponce"
)

// ErrInvalid is wrapped by every error of a configuration: it says where a setting comes from, and never
// what is secret in it.
var ErrInvalid = errors.New("configuration")

// Config is the configuration of a proxy.
type Config struct {
	Listen, Upstream, Store     string
	TablePrefix, Schema, Secret string
	Admin                       string
	AdminAnywhere               bool
	TLSCert, TLSKey             string
	UpstreamCA                  string
	UpstreamTLSCert             string
	UpstreamTLSKey              string
	UpstreamKey                 string
	UpstreamHost                bool
	TrustForwarded              bool
	UpstreamConnect             time.Duration
	UpstreamIdle                time.Duration
	UpstreamMaxIdle             int
	KeyHeader, Marker           string
	EchoKey                     bool
	ProblemBase                 string
	Profile                     httponce.Profile
	RetryAfter                  time.Duration
	MaxWaiting                  int
	MaxStillRunning             int
	MaxBodyMemory, MaxSpool     int64
	HeaderTimeout               time.Duration
	ClientIdle                  time.Duration
	Stall                       time.Duration
	DrainTimeout                time.Duration
	AccessLog                   bool
	LogLevel                    string
	Route                       Route
	Routes                      map[string]Route
}

// Route is the configuration of a route.
type Route struct {
	Methods    []string
	Required   bool
	KeyJSON    string
	KeyPattern string
	Principal  string
	// PrincipalRequired: who cannot be told from others is refused.
	PrincipalRequired bool
	Unknown           everonce.Policy
	Save              httponce.Save
	Retention         time.Duration
	Remember          time.Duration
	Lease             time.Duration
	Wait              time.Duration
	Deadline          time.Duration
	AnswerWithin      time.Duration
	EndWithClient     bool
	FailOpen          bool
	MaxBody           int64
	BodyTimeout       time.Duration
	MaxAnswer         int64
	Compare           httponce.Compare
	AllowHeaders      []string
	DenyHeaders       []string
}

// NoAdmin in place of an address: there is no second listener. An empty one says the same.
const NoAdmin = "none"

// The values of upstream-key.
const (
	KeySame       = "same"
	KeyDownstream = "downstream"
)

// Options returns the route as the middleware takes it.
func (r Route) Options() httponce.Route {
	wait := r.Wait
	if wait == 0 { // not at all, and not the library's default
		wait = -1
	}
	methods := r.Methods
	if methods == nil { // none, and not the library's default
		methods = []string{}
	}
	return httponce.Route{
		Methods: methods, Required: r.Required, KeyJSON: r.KeyJSON, CheckKey: keyCheck(r.KeyPattern),
		Compare: r.Compare, Save: r.Save, Header: httponce.HeaderPolicy{Allow: r.AllowHeaders, Deny: r.DenyHeaders},
		Lifetime: everonce.Lifetime{Retention: r.Retention, Remember: r.Remember}, Lease: r.Lease, Wait: wait, Policy: r.Unknown,
		Deadline: r.Deadline, AnswerWithin: r.AnswerWithin, EndWithClient: r.EndWithClient, FailOpen: r.FailOpen,
		MaxBody: r.MaxBody, BodyTimeout: r.BodyTimeout, MaxAnswer: r.MaxAnswer,
	}
}
