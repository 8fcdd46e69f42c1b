package httponce

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/httponce/internal/wire"
)

// policyPage is where what [Policy] publishes is explained.
const policyPage = "https://github.com/everonce/everonce/blob/main/docs/reference/http-policy.md"

// Policy returns a handler that publishes, as a JSON document, how keys are treated: the header, the syntax of a key,
// and for each route its methods, its own rule for keys, how long answers are kept and keys remembered, what must be
// equal in a repetition, the answer while the first request runs, and the limits. The draft requires this
// (draft-ietf-httpapi-idempotency-key-header, section 2). The document contains no secrets.
//
// recv and opts are the same as for the middleware, or HandleTx. The document is fixed when the handler is made. The
// error wraps [everonce.ErrInvalidArgument].
func Policy(recv everonce.AnyReceiver, opts *Options) (http.Handler, error) {
	if missing(recv) {
		return nil, fmt.Errorf("%w: the receiver is nil", everonce.ErrInvalidArgument)
	}
	s, err := opts.settings()
	if err != nil {
		return nil, err
	}
	_, guarded := recv.(interface{ Policy() everonce.Policy }) // for the unknown: a TxReceiver has none
	text, err := json.MarshalIndent(s.published(recv.Options().Lifetime, guarded), "", "  ")
	if err != nil {
		return nil, fmt.Errorf("%w: %w", everonce.ErrInvalidArgument, err)
	}
	text = append(text, '\n')
	sum := sha256.Sum256(text)
	etag := `"` + hex.EncodeToString(sum[:16]) + `"`
	return readOnly(func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		h.Set("Content-Type", "application/json")
		h.Set("Link", "<"+policyPage+`>; rel="describedby"`)
		h.Set("Cache-Control", "max-age=300")
		h.Set("ETag", etag)
		http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(text))
	}), nil
}

// missing reports whether there is no receiver, a nil pointer in the interface included.
func missing(recv everonce.AnyReceiver) bool {
	v := reflect.ValueOf(recv)
	return !v.IsValid() || v.IsNil()
}

func readOnly(next http.HandlerFunc) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodGet && r.Method != http.MethodHead {
			w.Header().Set("Allow", "GET, HEAD")
			http.Error(w, http.StatusText(http.StatusMethodNotAllowed), http.StatusMethodNotAllowed)
			return
		}
		next(w, r)
	})
}

// publishedPolicy is the document.
type publishedPolicy struct {
	Header string `json:"header"`
	Marker string `json:"replay_marker"`
	// Profile is missing for the default.
	Profile string           `json:"profile,omitempty"`
	Key     publishedKey     `json:"key"`
	Routes  []publishedRoute `json:"routes"`
}

type publishedKey struct {
	MaxLength int      `json:"max_length"`
	Forms     []string `json:"forms"`
}

// publishedRoute is how one route is treated. The first one, without a pattern, holds for what no other matches.
type publishedRoute struct {
	Pattern          string               `json:"pattern,omitempty"`
	Methods          []string             `json:"methods"`
	Required         bool                 `json:"required"`
	KeyInBody        string               `json:"key_in_body,omitempty"`
	KeyRule          string               `json:"key_rule,omitempty"`
	Retention        string               `json:"retention"`
	RetentionSeconds json.Number          `json:"retention_seconds"`
	Remember         string               `json:"remember"`
	RememberSeconds  json.Number          `json:"remember_seconds"`
	Fingerprint      publishedFingerprint `json:"fingerprint"`
	InFlight         publishedInFlight    `json:"in_flight"`
	Answers          map[string]string    `json:"answers"`
	MaxBodyBytes     int64                `json:"max_body_bytes"`
	MaxAnswerBytes   int64                `json:"max_answer_bytes"`
}

// defaultKeyRule is published for a CheckKey or a KeyFrom without a KeyRule.
func (r *Route) defaultKeyRule() string {
	var rules []string
	if r.KeyFrom != nil {
		rules = append(rules, "it may be in the body")
	}
	if r.CheckKey != nil {
		rules = append(rules, "each key is checked, and a refusal says why")
	}
	return strings.Join(rules, "; ")
}

type publishedFingerprint struct {
	Alg     string         `json:"alg"`
	Parts   []string       `json:"parts"`
	Headers []string       `json:"headers,omitempty"`
	JSON    *publishedJSON `json:"json,omitempty"`
}

type publishedJSON struct {
	Only   []string `json:"only,omitempty"`
	Except []string `json:"except,omitempty"`
}

type publishedInFlight struct {
	Status      int         `json:"status"`
	Wait        string      `json:"wait"`
	WaitSeconds json.Number `json:"wait_seconds"`
}

func (s *settings) published(receivers everonce.Lifetime, guarded bool) publishedPolicy {
	p := publishedPolicy{Header: s.header, Marker: s.marker, Key: publishedKey{MaxKeyLen, []string{"sf-string", "raw"}}}
	if s.profile != ProfileDefault {
		p.Profile = s.profile.String()
	}
	for _, rt := range s.routes {
		p.Routes = append(p.Routes, rt.published(s.profile, receivers, guarded))
	}
	return p
}

func (rt *route) published(profile Profile, receivers everonce.Lifetime, guarded bool) publishedRoute {
	kept := rt.Lifetime
	if kept == (everonce.Lifetime{}) {
		kept = receivers
	}
	p := publishedRoute{
		Pattern: rt.pattern, Methods: rt.keyMethods(), Required: rt.Required, KeyInBody: rt.KeyJSON,
		Retention: isoDuration(kept.Retention), RetentionSeconds: seconds(kept.Retention),
		Remember: isoDuration(kept.Remember), RememberSeconds: seconds(kept.Remember),
		Fingerprint:  publishedFingerprint{Alg: rt.sum.alg, Parts: []string{"method"}, Headers: rt.sum.headers},
		InFlight:     publishedInFlight{wire.InProgress.Status, isoDuration(rt.wait), seconds(rt.wait)},
		Answers:      map[string]string{},
		MaxBodyBytes: rt.MaxBody, MaxAnswerBytes: rt.MaxAnswer,
	}
	if p.KeyRule = rt.KeyRule; p.KeyRule == "" {
		p.KeyRule = rt.defaultKeyRule()
	}
	if !rt.sum.ignoreHost {
		p.Fingerprint.Parts = append(p.Fingerprint.Parts, "host")
	}
	p.Fingerprint.Parts = append(p.Fingerprint.Parts, "path", "query", "body")
	if f := rt.Route.Compare; rt.sum.json != nil {
		p.Fingerprint.JSON = &publishedJSON{f.JSONOnly, f.JSONExcept}
	}
	save := profile.save()
	maps.Copy(save, rt.Save)
	for status, ending := range save {
		if ending == Unknown && !guarded {
			ending = Released // with the rollback of the transaction
		}
		p.Answers[status] = ending.String()
	}
	return p
}

// keyMethods returns the methods of a route that take a key, without those that its pattern excludes.
func (rt *route) keyMethods() []string {
	methods := slices.Sorted(maps.Keys(rt.methods))
	if method, _ := cutMethod(rt.pattern); method != "" {
		methods = slices.DeleteFunc(methods, func(m string) bool {
			return m != method && (method != http.MethodGet || m != http.MethodHead)
		})
	}
	if methods == nil {
		methods = []string{} // none, and not unknown
	}
	return methods
}

func seconds(d time.Duration) json.Number {
	return json.Number(strconv.FormatFloat(d.Seconds(), 'f', -1, 64))
}

// isoDuration writes a duration as ISO 8601 does. A day is one of 24 hours.
func isoDuration(d time.Duration) string {
	const day = 24 * time.Hour
	b := []byte("P")
	if days := d / day; days > 0 {
		b = append(strconv.AppendInt(b, int64(days), 10), 'D')
		d %= day
	}
	if d > 0 || len(b) == 1 {
		b = append(b, 'T')
	}
	if h := d / time.Hour; h > 0 {
		b = append(strconv.AppendInt(b, int64(h), 10), 'H')
		d %= time.Hour
	}
	if m := d / time.Minute; m > 0 {
		b = append(strconv.AppendInt(b, int64(m), 10), 'M')
		d %= time.Minute
	}
	if d > 0 || b[len(b)-1] == 'T' {
		b = append(strconv.AppendFloat(b, d.Seconds(), 'f', -1, 64), 'S')
	}
	return string(b)
}
