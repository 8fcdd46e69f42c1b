package httponce

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/store/memstore"
)

func ask(context.Context, everonce.Abandoned) (everonce.Verdict[Answer], error) {
	return everonce.StillUnknown[Answer](), nil
}

// Every option that cannot work is refused where it is given, by name; and in a route by its pattern too.
func TestBadOptions(t *testing.T) {
	const century = 100 * 365 * 24 * time.Hour
	for want, r := range map[string]Route{
		`Methods: "" is not a method`:       {Methods: []string{""}},
		`Methods: "post" is not a method`:   {Methods: []string{"POST", "post"}},
		`Methods: "A B" is not a method`:    {Methods: []string{"A B"}},
		`AAA" is not a method`:              {Methods: []string{strings.Repeat("A", maxMethodPart+1)}},
		`Save["201"] is not an Ending`:      {Save: Save{"201": 0}},
		`Save["4xx"] is not an Ending`:      {Save: Save{"4xx": 4}},
		`Save has "6xx"`:                    {Save: Save{"6xx": Saved}},
		`Compare.Headers`:                   {Compare: Compare{Headers: []string{"a b"}}},
		`Compare.JSONOnly`:                  {Compare: Compare{JSONOnly: []string{"a"}}},
		`"a b"`:                             {Header: HeaderPolicy{Allow: []string{"a b"}}},
		`"c d"`:                             {Header: HeaderPolicy{Deny: []string{"c d"}}},
		`Remember (-1ns, 0s)`:               {Lifetime: everonce.Lifetime{Retention: -1}},
		`Remember (1ns, -1ns)`:              {Lifetime: everonce.Lifetime{Retention: 1, Remember: -1}},
		`a positive Retention`:              {Lifetime: everonce.Lifetime{Remember: time.Hour}},
		`Lifetime: Retention and Remember`:  {Lifetime: everonce.Lifetime{Retention: century + 1}},
		`AnswerWithin is negative`:          {AnswerWithin: -1},
		`MaxBody is negative (-1)`:          {MaxBody: -1},
		`MaxAnswer is negative (-1)`:        {MaxAnswer: -1},
		`KeyRule is set without CheckKey`:   {KeyRule: "a UUID"},
		`KeyJSON: "key" is no JSON pointer`: {KeyJSON: "key"},
		`KeyJSON and KeyFrom exclude`:       {KeyJSON: "/key", KeyFrom: func(*http.Request, []byte) (string, error) { return "", nil }},
	} {
		for in, opts := range map[string]*Options{
			"":                            {Route: r},
			`httponce: route "POST /a": `: {Routes: map[string]Route{"/b": {}, "POST /a": r}},
		} {
			_, err := opts.settings()
			if !errors.Is(err, everonce.ErrInvalidArgument) || !strings.Contains(err.Error(), want) || !strings.HasPrefix(err.Error(), in) {
				t.Errorf("%s: %v", want, err)
			}
		}
	}
	for want, opts := range map[string]*Options{
		`KeyHeader: "a b" is not the name`:                          {KeyHeader: "a b"},
		`KeyHeader: Set-Cookie has a meaning`:                       {KeyHeader: "Set-Cookie", EchoKey: true},
		`Marker: "é" is not the name`:                               {Marker: "é"},
		`Marker: Set-Cookie has a meaning`:                          {Marker: "set-cookie"},
		`Marker: Content-Type has a mean`:                           {Marker: "Content-Type"},
		`Marker: Location has a meaning`:                            {Marker: "location"},
		`KeyHeader and Marker are both X-Once`:                      {KeyHeader: "x-once", Marker: "X-Once"},
		`MaxWaiting is negative (-1)`:                               {MaxWaiting: -1},
		`MaxStillRunning is negative (-1)`:                          {MaxStillRunning: -1},
		`MaxBodyMemory is negative (-1)`:                            {MaxBodyMemory: -1},
		`MaxSpool is negative (-1)`:                                 {MaxSpool: -1},
		`MaxBody (8388608) is above MaxSpool (1048576)`:             {MaxSpool: 1 << 20},
		`route "/a": everonce: invalid argument: MaxBody (2097152)`: {MaxSpool: 1 << 20, Route: Route{MaxBody: 1}, Routes: map[string]Route{"/a": {MaxBody: 2 << 20}}},
		`RetryAfter is negative (-1s)`:                              {RetryAfter: -time.Second},
		`ProblemBase: "problems"`:                                   {ProblemBase: "problems"},
		`ProblemBase: "https://a.com/<x>"`:                          {ProblemBase: "https://a.com/<x>"},
		`ProblemBase: "https://a.com/\r\n`:                          {ProblemBase: "https://a.com/\r\n"},
		`ProblemBase: "urn:a"`:                                      {ProblemBase: "urn:a"},
		`ProblemBase: "://a/"`:                                      {ProblemBase: "://a/"},
	} {
		_, err := opts.settings()
		if !errors.Is(err, everonce.ErrInvalidArgument) || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", want, err)
		}
	}
}

// The same goes for the options that are the core's, and for a policy and a question that do not go together.
func TestBadOptionsOfTheCore(t *testing.T) {
	const century = 100 * 365 * 24 * time.Hour
	recv, err := everonce.NewReceiver(memstore.New(nil), everonce.Refuse, nil)
	if err != nil {
		t.Fatal(err)
	}
	for want, r := range map[string]Route{
		`the lease is -1ns, the least is 1ms`: {Lease: -1},
		`the lease is 1µs`:                    {Lease: time.Microsecond},
		`the most 36500 days`:                 {Lease: century + 1},
		`choose a policy`:                     {Policy: 4},
		`reconcile needs Reconcile`:           {Policy: everonce.Reconcile},
		`called under the policy refuse`:      {Policy: everonce.Refuse, Reconcile: ask},
		`called under the policy reexec`:      {Policy: everonce.Reexecute, Reconcile: ask},
	} {
		for in, opts := range map[string]*Options{
			"":                            {Route: r},
			`httponce: route "POST /a": `: {Routes: map[string]Route{"/b": {Policy: everonce.Refuse}, "POST /a": r}},
		} {
			_, err := Middleware(recv, Unscoped(), opts)
			if !errors.Is(err, everonce.ErrInvalidArgument) || !strings.Contains(err.Error(), want) || !strings.HasPrefix(err.Error(), in) {
				t.Errorf("%s: %v", want, err)
			}
		}
	}
}

func TestBadArguments(t *testing.T) {
	recv, err := everonce.NewReceiver(memstore.New(nil), everonce.Refuse, nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		recv      *everonce.Receiver
		principal Principal
	}{{nil, Unscoped()}, {recv, nil}} {
		if _, err := Middleware(c.recv, c.principal, nil); !errors.Is(err, everonce.ErrInvalidArgument) {
			t.Errorf("%+v: %v", c, err)
		}
	}
}

// Reconcile needs its function, and no other policy allows one, wherever the policy is set.
func TestReconcileNeedsItsQuestion(t *testing.T) {
	for _, c := range []struct {
		receivers, routes everonce.Policy
		asks, ok          bool
	}{
		{everonce.Reconcile, 0, true, true},
		{everonce.Reconcile, 0, false, false},
		{everonce.Reconcile, everonce.Refuse, false, true},
		{everonce.Reconcile, everonce.Reconcile, true, true},
		{everonce.Refuse, 0, false, true},
		{everonce.Refuse, 0, true, false},
		{everonce.Reexecute, everonce.Reconcile, true, true},
	} {
		recv, err := everonce.NewReceiver(memstore.New(nil), c.receivers, nil)
		if err != nil {
			t.Fatal(err)
		}
		r := Route{Policy: c.routes}
		if c.asks {
			r.Reconcile = ask
		}
		settled := Route{Policy: everonce.Refuse}
		for in, opts := range map[string]*Options{"": {Route: r}, "POST /a": {Route: settled, Routes: map[string]Route{"POST /a": r}}} {
			_, err := Middleware(recv, Unscoped(), opts)
			if c.ok && err != nil || !c.ok && (!errors.Is(err, everonce.ErrInvalidArgument) || !strings.Contains(err.Error(), in)) {
				t.Errorf("%+v: %v", c, err)
			}
		}
	}
}

// The zero value of each option is what its comment says.
func TestDefaults(t *testing.T) {
	if _, err := (&Options{MaxSpool: 1, Route: Route{MaxBody: smallBody - 1}}).settings(); err != nil { // which is never in a file
		t.Error(err)
	}
	for _, opts := range []*Options{nil, {}, {Routes: map[string]Route{"/a": {}}}} {
		s, err := opts.settings()
		if err != nil {
			t.Fatal(err)
		}
		if s.header != "Idempotency-Key" || s.marker != "Idempotent-Replayed" || s.echoKey || s.retryAfter != 5*time.Second || s.waiting.limit != 256 || cap(s.goingOn) != 1024 || s.memory.limit != 64<<20 || s.files.limit != 1<<30 || s.log == nil {
			t.Errorf("%+v", s)
		}
		for _, rt := range s.routes {
			if rt.Deadline != 5*time.Minute || rt.BodyTimeout != 30*time.Second || rt.MaxBody != 8<<20 || rt.MaxAnswer != 1<<20 ||
				len(rt.methods) != 2 || !rt.methods[http.MethodPost] || !rt.methods[http.MethodPatch] || rt.sum.alg != "http/2" || rt.wait != 5*time.Second || rt.Required {
				t.Errorf("%+v", rt)
			}
		}
	}
	for _, c := range []struct {
		route Route
		want  int64
	}{
		{Route{Compare: Compare{JSON: true}}, 1 << 20},
		{Route{KeyJSON: "/key"}, 1 << 20},
		{Route{Compare: Compare{JSONOnly: []string{"/a"}}, MaxBody: 5 << 20}, 5 << 20},
	} {
		if rt, err := c.route.compile("", &settings{header: "Idempotency-Key"}); err != nil || rt.MaxBody != c.want {
			t.Errorf("%+v: %v, %v", c.route, rt.MaxBody, err)
		}
	}
}

// The caller may change its options afterwards.
func TestOptionsAreCopied(t *testing.T) {
	methods, headers, fields := []string{"PUT"}, []string{"A", "B"}, []string{"/a"}
	save := DefaultSave()
	opts := &Options{Route: Route{Methods: methods, Save: save, Compare: Compare{Headers: headers, JSONOnly: fields}}, Routes: map[string]Route{"/a": {}}}
	s, err := opts.settings()
	if err != nil {
		t.Fatal(err)
	}
	alg := s.base.sum.alg
	methods[0], headers[0], fields[0] = "GET", "Z", "/z"
	save["201"] = Unknown
	opts.Routes["/b"] = Route{}
	only, _ := s.base.sum.json.Pointers()
	if !s.base.methods["PUT"] || s.base.sum.headers[0] != "A" || only[0] != "/a" || s.base.save.of(201) != Saved || s.base.sum.alg != alg || len(s.routes) != 2 {
		t.Error("a change reaches the middleware")
	}
}
