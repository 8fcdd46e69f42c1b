package wire

import (
	"math"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"
)

// The reference page has each header, its name for gRPC, and each problem with its status.
func TestPageOfSessions(t *testing.T) {
	text, err := os.ReadFile("../../../docs/reference/http-sessions.md")
	if err != nil {
		t.Fatal(err)
	}
	page := string(text)
	for _, name := range append([]string{SessionLease, SessionWindow, SessionOutcome, SessionNext}, SessionHeaders...) {
		if !strings.Contains(page, "| `"+name+"` |") || !strings.Contains(page, "`"+strings.ToLower(name)+"`") {
			t.Errorf("the page does not have %s", name)
		}
		if http.CanonicalHeaderKey(name) != name {
			t.Errorf("%s is not how net/http writes it", name)
		}
	}
	for _, p := range []Problem{
		MissingSession, InvalidSession, SessionExpired, SessionUnknown, SessionFenced, InvalidMark, RequestStale, NumberReused,
		SessionBusy, WindowFull, NumberGap, SessionsFull, SessionQuota, Unavailable, CommitLost, Unreadable, NoPrincipal,
	} {
		_, row, found := strings.Cut(page, "["+p.Name+"]("+"problems/"+p.Name+".md)")
		row, _, _ = strings.Cut(row, "\n")
		if !found || !strings.Contains(row, "| "+itoa(p.Status)+" |") {
			t.Errorf("the page does not say that %s is %d", p.Name, p.Status)
		}
	}
}

func itoa(n int) string { return FormatInteger(uint64(n)) } //nolint:gosec // a status

// A lease is written and read, rounded down to milliseconds: a client must not believe in more than there is.
func TestLease(t *testing.T) {
	for d, want := range map[time.Duration]string{
		10 * time.Minute: "600", 1500 * time.Millisecond: "1.5", 1999999 * time.Microsecond: "1.999", time.Millisecond: "0.001",
	} {
		h := http.Header{SessionLease: {FormatLease(d)}}
		if got := Lease(h); h.Get(SessionLease) != want || got > d || d-got > time.Millisecond {
			t.Errorf("%v is written %q, and read %v", d, h.Get(SessionLease), got)
		}
	}
	for _, bad := range []string{"", "0", "-1", "x", "1;", "?1", "999999999999999", strings.Repeat("1", 300)} {
		if got := Lease(http.Header{SessionLease: {bad}}); got != 0 {
			t.Errorf("%q is read as %v", bad, got)
		}
	}
}

// Fields are read as they were sent, and nothing else is accepted.
func TestSessionFields(t *testing.T) {
	for _, n := range []uint64{0, 1, maxSessionInteger, math.MaxUint64} {
		got, found, problem := SessionInteger(http.Header{SessionMark: {FormatInteger(n)}}, SessionMark)
		if got != min(n, maxSessionInteger) || !found || problem != "" {
			t.Errorf("%d is read as %d: %s", n, got, problem)
		}
	}
	secret := []byte("0123456789abcdef")
	for _, value := range []string{FormatSecret(secret), strings.Trim(FormatSecret(secret), `"`)} {
		if got, found, problem := Secret(http.Header{SessionSecret: {value}}); string(got) != string(secret) || !found || problem != "" {
			t.Errorf("%s is read as %q: %s", value, got, problem)
		}
	}
}

// A nonce belongs to one principal and one secret: the border between the two matters.
func TestSessionNonce(t *testing.T) {
	seen := map[[16]byte]bool{}
	for _, of := range [][2]string{{"a", "bc"}, {"ab", "c"}, {"", "abc"}, {"a", "bd"}} {
		seen[SessionNonce(of[0], []byte(of[1]))] = true
	}
	if len(seen) != 4 {
		t.Errorf("4 senders and secrets have %d nonces", len(seen))
	}
}

// FuzzSession: whatever the headers are, they are read or refused, and a refusal does not quote them.
func FuzzSession(f *testing.F) {
	for _, seed := range []string{"1", "-1", `"YWFhYWFhYWFhYWFhYWFhYQ"`, "?1", "1.5", "1;a=b", "(1 2)", "\x00", "1,2"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, value string) {
		h := http.Header{SessionMark: {value}, SessionSecret: {value}, SessionOrdered: {value}, SessionLease: {value}}
		if n, _, problem := SessionInteger(h, SessionMark); n > maxSessionInteger || problem != "" && n != 0 {
			t.Errorf("%q is %d", value, n)
		}
		secret, _, problem := Secret(h)
		if problem == "" && (len(secret) < minSecret || len(secret) > maxSecret) {
			t.Errorf("%q is a secret of %d bytes", value, len(secret))
		}
		if len(value) > 20 && strings.Contains(problem, value) {
			t.Errorf("the problem quotes %q", value)
		}
		if on, problem := SessionFlag(h, SessionOrdered); on && problem != "" {
			t.Errorf("%q is on: %s", value, problem)
		}
		if Lease(h) < 0 {
			t.Errorf("%q is a lease of %v", value, Lease(h))
		}
	})
}
