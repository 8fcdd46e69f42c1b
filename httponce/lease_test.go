package httponce_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"testing"
	"testing/synctest"
	"time"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/httponce"
	"github.com/everonce/everonce/oncetest"
)

// The trap of those whose lock lives as long as the answer: one crash wedges the key for a day. Here it is free, or
// known as unknown, when a lease has passed.
func TestTheLockDoesNotLiveAsLongAsTheAnswer(t *testing.T) {
	for policy, want := range map[everonce.Policy]got{
		everonce.Reexecute: {status: 201}, everonce.Refuse: {status: 409, problem: "outcome-unknown"},
	} {
		synctest.Test(t, func(t *testing.T) {
			p := newPayments(policy, true)
			dead := &process{at: 2, how: dieBefore} // identity, claim, effect
			h, _ := p.serve(t, dead.plan)
			go h.ServeHTTP(httptest.NewRecorder(), request(context.Background(), crashedOperation)) // its answer is not read
			synctest.Wait()
			if n := len(dead.seen); n != 3 || dead.seen[2] != oncetest.OpEffect {
				t.Fatalf("it died after %v", dead.seen)
			}
			next, _ := p.serve(t, (&process{at: -1}).plan)
			again := func() got {
				w := httptest.NewRecorder()
				next.ServeHTTP(w, request(context.Background(), crashedOperation))
				return read(t, w.Result())
			}
			if g := again(); g.status != 409 || g.problem != "in-progress" {
				t.Errorf("%v: at once it got %+v", policy, g)
			}
			time.Sleep(31 * time.Second)
			if g := again(); g.status != want.status || g.problem != want.problem {
				t.Errorf("%v: after a lease it got %+v", policy, g)
			}
		})
	}
}

// The trap of powertools-python#8386, a retry that takes a live record for an orphan: however long a request runs, it
// is not run a second time.
func TestALiveRequestIsNotTakenForAnOrphan(t *testing.T) {
	for _, policy := range []everonce.Policy{everonce.Reexecute, everonce.Refuse} {
		synctest.Test(t, func(t *testing.T) {
			h := newHeld(201)
			svc := newService(t, setup{handle: h.HandlerFunc, policy: policy, opts: httponce.Options{Route: httponce.Route{Deadline: -1}}})
			first := svc.sendAll(context.Background(), 1, "k")
			for range 48 {
				time.Sleep(time.Hour)
				if g := svc.post("k"); g.status != 409 || g.problem != "in-progress" || g.retryAfter != "1" {
					t.Fatalf("%v: the retry got %+v", policy, g)
				}
			}
			close(h.free)
			if g := first()[0]; g.status != 201 || g.mark != "" {
				t.Errorf("%v: the first got %+v", policy, g)
			}
			if g := svc.post("k"); g.status != 201 || g.mark != "true" || svc.ran() != 1 {
				t.Errorf("%v: a retry got %+v, after %d calls", policy, g, svc.ran())
			}
		})
	}
}

// The trap of those that complete without a token: the owner of a lapsed lease comes back late, and writes over what
// the next one has answered. Here both clients get the one answer that is recorded (rule 11).
func TestALateOwnerDoesNotOverwrite(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		calls := 0
		late := newHeld(201)
		svc := newService(t, setup{policy: everonce.Reexecute, handle: func(w http.ResponseWriter, r *http.Request) {
			if calls++; calls == 1 {
				w.Header().Set("X-Owner", "late")
				late.ServeHTTP(w, r)
				return
			}
			answers(202, "by the next one")(w, r)
		}})
		first := svc.sendAll(context.Background(), 1, "k")
		svc.fail(always(oncetest.FailBefore, oncetest.OpRenew))
		time.Sleep(31 * time.Second)
		svc.fail(nil)
		if g := svc.post("k"); g.status != 202 || g.mark != "" {
			t.Errorf("the next one got %+v", g)
		}
		close(late.free)
		if g := first()[0]; g.status != 202 || g.body != "by the next one" || g.mark != "true" || g.header.Get("X-Owner") != "" {
			t.Errorf("the late one got %+v", g)
		}
		if g := svc.post("k"); g.status != 202 || g.mark != "true" || svc.ran() != 2 {
			t.Errorf("a retry got %+v, after %d calls", g, svc.ran())
		}
	})
}
