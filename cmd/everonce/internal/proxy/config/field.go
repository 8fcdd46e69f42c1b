package config

import (
	"strings"

	"github.com/spf13/pflag"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/cmd/everonce/internal/duration"
	"github.com/everonce/everonce/httponce"
)

// Field is one setting.
type Field struct {
	// Key is its name in the file, and, behind two dashes, on the command line.
	Key string
	// Default is the value of an unset setting, as it would be written.
	Default string
	// Usage says what it does.
	Usage string
	// Route: it may stand below a route in the file, and holds there only.
	Route bool

	bind func(*Config, *Route) pflag.Value
}

// EnvPrefix begins the names of environment variables.
const EnvPrefix = "EVERONCE_"

// Env is the name of its environment variable.
func (f Field) Env() string {
	return EnvPrefix + strings.ToUpper(strings.ReplaceAll(f.Key, "-", "_"))
}

// Words are the values of a setting that has a choice of a few words; nil for every other.
func (f Field) Words() []string {
	var c Config
	if v, ok := f.bind(&c, &c.Route).(interface{ Words() []string }); ok {
		return v.Words()
	}
	return nil
}

// kind is the type of its values.
func (f Field) kind() string {
	var c Config
	return f.bind(&c, &c.Route).Type()
}

// Fields returns all settings, in the order in which they are documented.
func Fields() []Field { return append([]Field(nil), fields...) }

// set is a setting of the whole proxy.
func set(key, def, usage string, at func(*Config) pflag.Value) Field {
	return Field{Key: key, Default: def, Usage: usage, bind: func(c *Config, _ *Route) pflag.Value { return at(c) }}
}

// per is a setting of a route.
func per(key, def, usage string, at func(*Route) pflag.Value) Field {
	return Field{Key: key, Default: def, Usage: usage, Route: true, bind: func(_ *Config, r *Route) pflag.Value { return at(r) }}
}

var fields = []Field{
	set("listen", "", "address that clients connect to, like :8080, or a Unix domain socket, like unix:/run/everonce.sock", func(c *Config) pflag.Value { return (*text)(&c.Listen) }),
	set("upstream", "", "URL of the service behind the proxy, like http://127.0.0.1:9000, or its Unix domain socket, like unix:/run/service.sock", func(c *Config) pflag.Value { return (*text)(&c.Upstream) }),
	set("store", "", "where answers are kept: sqlite:FILE, postgres://…, redis://…, mongodb://…, dynamodb://…, or memory: (which forgets them when the proxy ends)", func(c *Config) pflag.Value { return (*text)(&c.Store) }),
	set("table-prefix", "", `prefix of the table names (if empty: everonce_) or of the Redis keys (everonce:); for MongoDB, the collection (everonce)`, func(c *Config) pflag.Value { return (*text)(&c.TablePrefix) }),
	set("schema", "", "PostgreSQL schema of the tables (if empty: by the search_path)", func(c *Config) pflag.Value { return (*text)(&c.Schema) }),
	set("identity-secret-file", "", "file with a secret of at least 16 bytes, which protects record IDs and hashed credentials from guessing; never change it", func(c *Config) pflag.Value { return (*text)(&c.Secret) }),

	set("admin", "127.0.0.1:9464", "address of /healthz, /readyz and /metrics, or none", func(c *Config) pflag.Value { return (*text)(&c.Admin) }),
	set("admin-anywhere", "false", "allow an admin address that is not loopback; anybody who can connect can read the metrics", func(c *Config) pflag.Value { return (*truth)(&c.AdminAnywhere) }),
	set("tls-cert", "", "file with the certificate and its chain (PEM); read again when it changes", func(c *Config) pflag.Value { return (*text)(&c.TLSCert) }),
	set("tls-key", "", "file with the certificate's key (PEM)", func(c *Config) pflag.Value { return (*text)(&c.TLSKey) }),

	set("upstream-ca", "", "file with the CA certificates for an https upstream (PEM; if empty: the system's)", func(c *Config) pflag.Value { return (*text)(&c.UpstreamCA) }),
	set("upstream-tls-cert", "", "file with the client certificate, and its chain, for an https upstream (PEM); read again when it changes", func(c *Config) pflag.Value { return (*text)(&c.UpstreamTLSCert) }),
	set("upstream-tls-key", "", "file with that certificate's key (PEM)", func(c *Config) pflag.Value { return (*text)(&c.UpstreamTLSKey) }),
	set("upstream-key", KeySame, "key to send to the upstream: same, or downstream (derived from scope and key, for an upstream that supports keys itself)", func(c *Config) pflag.Value { return &choice[string]{&c.UpstreamKey, []string{KeySame, KeyDownstream}} }),
	set("upstream-host", "false", "send the upstream's own name as Host, not the client's", func(c *Config) pflag.Value { return (*truth)(&c.UpstreamHost) }),
	set("trust-forwarded", "false", "keep the X-Forwarded-… headers of requests; only if a proxy in front sets them on all requests", func(c *Config) pflag.Value { return (*truth)(&c.TrustForwarded) }),
	set("upstream-connect", "5s", "timeout for a connection to the upstream, and for its TLS handshake", func(c *Config) pflag.Value { return (*term)(&c.UpstreamConnect) }),
	set("upstream-idle", "1s", "how long an unused connection to the upstream is kept; set less than the upstream's own limit", func(c *Config) pflag.Value { return (*duration.Value)(&c.UpstreamIdle) }),
	set("upstream-max-idle", "256", "how many unused connections to the upstream to keep", func(c *Config) pflag.Value { return (*count)(&c.UpstreamMaxIdle) }),

	set("key-header", "Idempotency-Key", "request header that carries the key", func(c *Config) pflag.Value { return (*text)(&c.KeyHeader) }),
	set("marker", "Idempotent-Replayed", "response header that marks a replayed answer", func(c *Config) pflag.Value { return (*text)(&c.Marker) }),
	set("echo-key", "false", "repeat the key in the answer", func(c *Config) pflag.Value { return (*truth)(&c.EchoKey) }),
	set("problem-base", "", "URI that the type of each problem begins with, like https://example.com/problems/ (if empty: this project's pages)", func(c *Config) pflag.Value { return (*text)(&c.ProblemBase) }),
	set("profile", "default", "clients to serve: default, or stripe (SDKs of Stripe and Stainless: server errors are kept, and problems have Stripe's form too)", func(c *Config) pflag.Value {
		return &choice[httponce.Profile]{&c.Profile, []httponce.Profile{httponce.ProfileDefault, httponce.ProfileStripe}}
	}),
	set("retry-after", "5s", "Retry-After while the store is down or max-spool is reached", func(c *Config) pflag.Value { return (*term)(&c.RetryAfter) }),
	set("max-waiting", "256", "how many requests may wait for another attempt at the same time", func(c *Config) pflag.Value { return (*count)(&c.MaxWaiting) }),
	set("max-still-running", "1024", "how many requests may continue upstream after answer-within at the same time", func(c *Config) pflag.Value { return (*count)(&c.MaxStillRunning) }),
	set("max-body-memory", "64MiB", "memory for request bodies above 64 KiB; more of them go to temporary files", func(c *Config) pflag.Value { return (*size)(&c.MaxBodyMemory) }),
	set("max-spool", "1GiB", "disk space for request bodies in temporary files; at least the largest max-body", func(c *Config) pflag.Value { return (*size)(&c.MaxSpool) }),
	set("header-timeout", "10s", "timeout for the head of a request, and for the TLS handshake of a client", func(c *Config) pflag.Value { return (*term)(&c.HeaderTimeout) }),
	set("client-idle", "2m", "how long an unused connection of a client is kept", func(c *Config) pflag.Value { return (*term)(&c.ClientIdle) }),
	set("stall", "30s", "how long a client may pause while it sends a request or receives an answer", func(c *Config) pflag.Value { return (*term)(&c.Stall) }),
	set("drain-timeout", "30s", "how long running requests may take to end after SIGTERM", func(c *Config) pflag.Value { return (*duration.Value)(&c.DrainTimeout) }),
	set("access-log", "true", "write a line of JSON for every request", func(c *Config) pflag.Value { return (*truth)(&c.AccessLog) }),
	set("log-level", "info", "debug, info, warn or error", func(c *Config) pflag.Value {
		return &choice[string]{&c.LogLevel, []string{"debug", "info", "warn", "error"}}
	}),

	per("methods", "POST,PATCH", "methods that take a key", func(r *Route) pflag.Value { return (*list)(&r.Methods) }),
	per("required", "false", "refuse a request without a key", func(r *Route) pflag.Value { return (*truth)(&r.Required) }),
	per("key-json", "", "where JSON bodies may have the key instead of the header: a JSON pointer like /idempotency_key; such bodies are read into memory, up to max-body", func(r *Route) pflag.Value { return (*text)(&r.KeyJSON) }),
	per("key-pattern", "", "regular expression (RE2) that the whole key must match, like [0-9a-f-]{36}; if empty: any key", func(r *Route) pflag.Value { return (*pattern)(&r.KeyPattern) }),
	per("principal", "header:Authorization", "who owns a key: header:NAME, jwt:CLAIM (of a token that a proxy in front has verified), cookie:NAME or none", func(r *Route) pflag.Value { return (*principalText)(&r.Principal) }),
	per("principal-required", "false", "refuse a request with a key but without the header, cookie or claim of principal; otherwise all such requests have one principal", func(r *Route) pflag.Value { return (*truth)(&r.PrincipalRequired) }),
	per("unknown", "refuse", "what to do about a request whose outcome is unknown: refuse or reexecute", func(r *Route) pflag.Value {
		return &choice[everonce.Policy]{&r.Unknown, []everonce.Policy{everonce.Refuse, everonce.Reexecute}}
	}),
	per("save", "", "exceptions to the profile, by status: saved, released or unknown, like 409=released,5xx=unknown", func(r *Route) pflag.Value { return (*endings)(&r.Save) }),
	per("retention", "24h", "how long an answer is kept", func(r *Route) pflag.Value { return (*term)(&r.Retention) }),
	per("remember", "24h", "how long an answer is remembered after that", func(r *Route) pflag.Value { return (*duration.Value)(&r.Remember) }),
	per("lease", "30s", "how long a claim holds after its proxy has died", func(r *Route) pflag.Value { return (*term)(&r.Lease) }),
	per("wait", "5s", "how long a repetition waits for the first request before it is answered 409, at most answer-within; 0s: not at all", func(r *Route) pflag.Value { return (*duration.Value)(&r.Wait) }),
	per("deadline", "5m", "timeout of the upstream for a request with a key", func(r *Route) pflag.Value { return (*term)(&r.Deadline) }),
	per("answer-within", "0s", "how long a client waits before it is told to ask again later, while the upstream continues; 0s: no limit", func(r *Route) pflag.Value { return (*duration.Value)(&r.AnswerWithin) }),
	per("end-with-client", "false", "cancel the request to the upstream when the client disconnects", func(r *Route) pflag.Value { return (*truth)(&r.EndWithClient) }),
	per("fail-open", "false", "let requests through unprotected while the store is down", func(r *Route) pflag.Value { return (*truth)(&r.FailOpen) }),
	per("max-body", "8MiB", "largest body of a request with a key", func(r *Route) pflag.Value { return (*size)(&r.MaxBody) }),
	per("body-timeout", "30s", "timeout for the body of a request with a key", func(r *Route) pflag.Value { return (*term)(&r.BodyTimeout) }),
	per("max-answer", "1MiB", "largest answer whose body is kept; of a larger one, only status and headers are kept", func(r *Route) pflag.Value { return (*size)(&r.MaxAnswer) }),
	per("compare-headers", "", "request headers that must be equal when a key is used again", func(r *Route) pflag.Value { return (*list)(&r.Compare.Headers) }),
	per("compare-ignore-host", "false", "do not compare the host when a key is used again", func(r *Route) pflag.Value { return (*truth)(&r.Compare.IgnoreHost) }),
	per("compare-json", "false", "compare JSON bodies by their meaning, not byte for byte; needs memory, mostly up to four times max-body, but up to 25 times for an object of very many small fields", func(r *Route) pflag.Value { return (*truth)(&r.Compare.JSON) }),
	per("compare-json-only", "", "fields of a JSON body that must be equal: JSON pointers like /order/id", func(r *Route) pflag.Value { return (*list)(&r.Compare.JSONOnly) }),
	per("compare-json-except", "", "fields of a JSON body that are not compared: JSON pointers like /sentAt", func(r *Route) pflag.Value { return (*list)(&r.Compare.JSONExcept) }),
	per("allow-headers", "", "the only headers of an answer that are kept; if empty: all but those that are never kept", func(r *Route) pflag.Value { return (*list)(&r.AllowHeaders) }),
	per("deny-headers", "", "headers of an answer that are not kept", func(r *Route) pflag.Value { return (*list)(&r.DenyHeaders) }),
}
