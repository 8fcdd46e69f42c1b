package httponce_test

import (
	"context"
	"errors"
	"net/http"
	"testing"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/httponce"
)

// An SDK that repeats a request whose outcome is unknown would get outcome-unknown, and its user would not see why it
// failed: the answer says not to. Under the other policies the repetition helps.
func TestProfileStripeKeepsTheHandlersAnswerInSight(t *testing.T) {
	unknown := httponce.Route{Save: httponce.Save{"5xx": httponce.Unknown}}
	asks := unknown
	asks.Policy, asks.Reconcile = everonce.Reconcile, func(context.Context, everonce.Abandoned) (everonce.Verdict[httponce.Answer], error) {
		return everonce.StillUnknown[httponce.Answer](), nil
	}
	again := unknown
	again.Policy = everonce.Reexecute
	for name, c := range map[string]struct {
		opts   httponce.Options
		core   everonce.Options
		header string // that the handler sets
		want   string
	}{
		"refuse":            {httponce.Options{Profile: httponce.ProfileStripe, Route: unknown}, everonce.Options{}, "", "false"},
		"steps":             {httponce.Options{Profile: httponce.ProfileStripe, Route: unknown}, everonce.Options{EffectsInSteps: true}, "", ""},
		"reconcile":         {httponce.Options{Profile: httponce.ProfileStripe, Route: asks}, everonce.Options{}, "", ""},
		"reexecute":         {httponce.Options{Profile: httponce.ProfileStripe, Route: again}, everonce.Options{}, "", ""},
		"saved":             {httponce.Options{Profile: httponce.ProfileStripe}, everonce.Options{}, "", ""},
		"the handler's own": {httponce.Options{Profile: httponce.ProfileStripe, Route: unknown}, everonce.Options{}, "true", "true"},
		"default profile":   {httponce.Options{}, everonce.Options{}, "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			svc := newService(t, setup{opts: c.opts, core: c.core, handle: func(w http.ResponseWriter, r *http.Request) {
				if c.core.EffectsInSteps {
					loseStep(t, r)
				}
				if c.header != "" {
					w.Header().Set("Stripe-Should-Retry", c.header)
				}
				w.WriteHeader(http.StatusInternalServerError)
			}})
			res := svc.post("k")
			if got := res.header.Get("Stripe-Should-Retry"); res.status != http.StatusInternalServerError || got != c.want {
				t.Errorf("%d, Stripe-Should-Retry %q, want %q", res.status, got, c.want)
			}
		})
	}
}

// loseStep makes a step whose outcome is unknown, and which the next attempt asks about.
func loseStep(t *testing.T, r *http.Request) {
	a, _ := everonce.AttemptFrom(r.Context())
	_, err := everonce.Step(r.Context(), a, "mail", func(context.Context) (string, error) { return "", errors.New("lost") },
		everonce.WithPolicy(everonce.Reconcile), everonce.WithReconcile(func(context.Context, everonce.Abandoned) (everonce.Verdict[string], error) {
			return everonce.Happened("sent"), nil
		}))
	if err == nil {
		t.Error("the step was not lost")
	}
}

func TestProfileIsChecked(t *testing.T) {
	svc := newService(t, setup{handle: func(http.ResponseWriter, *http.Request) {}})
	if _, err := httponce.Middleware(svc.recv, httponce.Unscoped(), &httponce.Options{Profile: 2}); !errors.Is(err, everonce.ErrInvalidArgument) {
		t.Errorf("%v", err)
	}
}
