package main

import (
	"encoding/json"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/driver"
	"github.com/everonce/everonce/httponce"
	"github.com/everonce/everonce/store/memstore"
)

// FuzzSettle settles a request whose outcome is unknown by any flags, and sends it again. A rejected settlement changes
// nothing. After an accepted one the request gets what the flags say: the answer, for that lifetime, or one more
// execution.
func FuzzSettle(f *testing.F) {
	const done, notDone, status, header, body, result, failure, message, lifetime = 1, 2, 4, 8, 16, 32, 64, 128, 256
	f.Add(uint16(done), "", "", "", "", "", "", "")
	f.Add(uint16(notDone), "", "", "", "", "", "", "")
	f.Add(uint16(0), "", "", "", "", "", "", "")
	f.Add(uint16(done|notDone|status), "201", "", "", "", "", "", "")
	f.Add(uint16(done|status|header|body), "201", "Location: /payments/7", "paid", "", "", "", "")
	f.Add(uint16(done|status|header), "204", "content-length: 4", "", "", "", "", "")
	f.Add(uint16(done|status|body), "304", "", "no body", "", "", "", "")
	f.Add(uint16(done|status|header), "404", "Set-Cookie: a=b", "", "", "", "", "")
	f.Add(uint16(done|status|header), "200", "a b: c", "", "", "", "", "")
	f.Add(uint16(done|status|header), "200", "A: b\r\nC: d", "", "", "", "", "")
	f.Add(uint16(done|status), "0", "", "", "", "", "", "")
	f.Add(uint16(done|status), "4294967497", "", "", "", "", "", "")
	f.Add(uint16(done|status), "0404", "", "", "", "", "", "")
	f.Add(uint16(done|status), "0x194", "", "", "", "", "", "")
	f.Add(uint16(done|result), "", "", "", `{"status":0,"body":"no"}`, "", "", "")
	f.Add(uint16(done|result), "", "", "", `{"body":"x","body":null}`, "", "", "")
	f.Add(uint16(done|status), "600", "", "", "", "", "", "")
	f.Add(uint16(done|result), "", "", "", `{"status":201,"headers":{"Location":["/1"]},"body":"paid"}`, "", "", "")
	f.Add(uint16(done|result), "", "", "", `{"status":402,"body":"no"}`, "", "", "")
	f.Add(uint16(done|result), "", "", "", `"text"`, "", "", "")
	f.Add(uint16(done|result|failure), "", "", "", `{}`, "declined", "", "")
	f.Add(uint16(done|failure|message), "", "", "", "", "card_declined", "no funds", "")
	f.Add(uint16(done|failure), "", "", "", "", "", "", "")
	for _, text := range []string{"web", "queue", "finance", "48h+24h", "90d+275d", "36500d+36500d", "36501d+1d", "0s+1h", "-1h+1h", "1h", "+", "9223372036854775807ns+0d", "1ns+0s"} {
		f.Add(uint16(done|status|lifetime), "200", "", "", "", "", "", text)
	}
	f.Fuzz(func(t *testing.T, given uint16, statusText, headerText, bodyText, resultText, code, text, life string) {
		var args []string
		for bit, flag := range map[uint16]string{
			done: "--done", notDone: "--not-done", status: "--status=" + statusText, header: "--header=" + headerText, body: "--body=" + bodyText,
			result: "--result=" + resultText, failure: "--failure=" + code, message: "--message=" + text, lifetime: "--lifetime=" + life,
		} {
			if given&bit != 0 {
				args = append(args, flag)
			}
		}
		store, runs := memstore.New(nil), 0
		recv, err := everonce.NewReceiver(store, everonce.Refuse, nil)
		if err != nil {
			t.Fatal(err)
		}
		protect, err := httponce.Middleware(recv, httponce.Unscoped(), &httponce.Options{Log: slog.New(slog.DiscardHandler)})
		if err != nil {
			t.Fatal(err)
		}
		service := protect(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			runs++
			w.WriteHeader(http.StatusInternalServerError)
		}))
		send := func() *httptest.ResponseRecorder {
			r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/payments", strings.NewReader("{}"))
			r.Header.Set("Idempotency-Key", "k")
			w := httptest.NewRecorder()
			service.ServeHTTP(w, r)
			return w
		}
		record := func() driver.Record {
			page, err := store.List(t.Context(), driver.ListRequest{})
			if err != nil || len(page.Records) != 1 {
				t.Fatalf("%d records, %v", len(page.Records), err)
			}
			return page.Records[0]
		}
		send()
		before := record()

		flags, cmd := &settleFlags{}, &cobra.Command{}
		flags.flags(cmd)
		if cmd.ParseFlags(args) != nil {
			return
		}
		settlement, err := flags.settlement(cmd)
		var answer *httponce.Answer
		if err == nil {
			answer, err = flags.answer.read(cmd)
		}
		if err == nil {
			err = asAnswer(&before, &settlement, answer)
		}
		refused := err != nil
		if !refused {
			err = everonce.Settle(t.Context(), store, before.ID, settlement)
		}
		if err != nil {
			if !refused && !errors.Is(err, everonce.ErrInvalidArgument) {
				t.Errorf("%q: %v", args, err)
			}
			if after := record(); after.State != driver.StateAbandoned {
				t.Errorf("%q: %v, and the operation is %v", args, err, after.State)
			}
			return
		}

		if settlement.Lifetime.Retention < time.Minute {
			return // it is over, or soon
		}
		after := record()
		if (given&done != 0) == (given&notDone != 0) || after.State != map[bool]driver.State{true: driver.StateCompleted, false: driver.StateReleased}[given&done != 0] {
			t.Errorf("%q: settled, and the operation is %v", args, after.State)
		}
		off := func(from, until time.Time, want time.Duration) bool {
			return (until.Sub(from) - want).Abs() > time.Microsecond
		}
		if want, ok := lifetimeOf(given&lifetime != 0, life); given&done != 0 && (off(after.CompletedAt, after.ResultUntil, settlement.Lifetime.Retention) ||
			off(after.CompletedAt, after.PurgeAt, settlement.Lifetime.Total()) || ok && settlement.Lifetime != want) {
			t.Errorf("%q: kept until %v, remembered until %v, from %v on", args, after.ResultUntil, after.PurgeAt, after.CompletedAt)
		}
		w := send()
		if again := runs == 2; again != (given&notDone != 0) {
			t.Fatalf("%q: the service has run %d times", args, runs)
		}
		want := struct {
			Status  int
			Body    string
			Headers http.Header
		}{Headers: http.Header{}}
		switch {
		case given&status != 0:
			if want.Status, err = strconv.Atoi(statusText); err != nil {
				t.Fatalf("%q was taken", args)
			}
			if given&body != 0 {
				want.Body = bodyText
			}
			if given&header != 0 {
				name, value, _ := strings.Cut(headerText, ":")
				want.Headers.Add(name, strings.Trim(value, " \t"))
			}
		case given&result != 0:
			want.Status = http.StatusOK
			var typed struct {
				Status int
				Body   *string
			}
			if json.Unmarshal([]byte(resultText), &typed) == nil && typed.Status != 0 { // 0 is no status
				want.Status = typed.Status
			}
			want.Body = w.Body.String()
			if typed.Body != nil {
				want.Body = *typed.Body
			}
		default:
			return
		}
		if w.Code != want.Status || w.Body.String() != want.Body || w.Header().Get("Idempotent-Replayed") == "" {
			t.Errorf("%q: a duplicate gets %d %q %v", args, w.Code, w.Body, w.Header())
		}
		for name, values := range want.Headers {
			switch name {
			case "Set-Cookie", "Content-Length", "Content-Type", "Date", "Trailer":
			default:
				if got := w.Header().Values(name); strings.HasPrefix(name, "X-") && (len(got) == 0 || got[0] != values[0]) {
					t.Errorf("%q: a duplicate gets %s: %q", args, name, got)
				}
			}
		}
		if again := send(); again.Code != w.Code || again.Body.String() != w.Body.String() || runs > 1 {
			t.Errorf("%q: the next one gets %d %q", args, again.Code, again.Body)
		}
	})
}

// lifetimeOf reads a lifetime of two numbers of days, and those by name.
func lifetimeOf(given bool, text string) (everonce.Lifetime, bool) {
	named := map[string]everonce.Lifetime{"web": everonce.ForWeb(), "queue": everonce.ForQueue(), "finance": everonce.ForFinance()}
	if !given {
		text = "finance"
	}
	if l, ok := named[text]; ok {
		return l, true
	}
	a, b, _ := strings.Cut(text, "+")
	first, err1 := strconv.ParseUint(strings.TrimSuffix(a, "d"), 10, 16)
	second, err2 := strconv.ParseUint(strings.TrimSuffix(b, "d"), 10, 16)
	ok := err1 == nil && err2 == nil && strings.HasSuffix(a, "d") && strings.HasSuffix(b, "d")
	return everonce.Lifetime{Retention: time.Duration(first) * 24 * time.Hour, Remember: time.Duration(second) * 24 * time.Hour}, ok
}
