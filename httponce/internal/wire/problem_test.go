package wire

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"
)

// everyProblem returns the problems that the package's source defines, by name.
func everyProblem(t *testing.T) map[string]Problem {
	t.Helper()
	files, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	literal := regexp.MustCompile(`Problem\{"([a-z-]+)", http\.Status(\w+), "([^"]+)"`)
	all := map[string]Problem{}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range literal.FindAllStringSubmatch(string(text), -1) {
			status := 0
			for code := 400; code < 600; code++ {
				if strings.NewReplacer(" ", "", "-", "").Replace(http.StatusText(code)) == m[2] {
					status = code
				}
			}
			all[m[1]] = Problem{Name: m[1], Status: status, Title: m[3]}
		}
	}
	if len(all) < 16 {
		t.Fatalf("found %d problems only: the test looks in the wrong place", len(all))
	}
	return all
}

const problemPages = "../../../docs/reference/problems"

// An outer protected handler takes none of these for its final answer: each may be another one a moment later.
func TestProblemsOfAMomentAreNoAnswerOfWhoIsAround(t *testing.T) {
	for name, p := range everyProblem(t) {
		w := &notHeard{ResponseRecorder: httptest.NewRecorder()}
		p.Send(w, Form{Base: DefaultProblemBase}, 0)
		if ofAMoment := p.Status == http.StatusConflict || p.Status > http.StatusInternalServerError; w.unknown != ofAMoment {
			t.Errorf("%s, a %d: an outer handler sees that it is temporary: %v", name, p.Status, w.unknown)
		}
	}
}

// notHeard is the writer of a protected handler around another one.
type notHeard struct {
	*httptest.ResponseRecorder
	unknown bool
}

func (w *notHeard) MarkUnknown() { w.unknown = true }
func (w *notHeard) MarkNotDone() {}

// A compressed problem is read up to a bound: a few bytes may stand for gigabytes.
func TestALongCompressedProblemIsNotRead(t *testing.T) {
	for length, want := range map[int]bool{MaxProblem - 100: true, MaxProblem: false} {
		var text bytes.Buffer
		z := gzip.NewWriter(&text)
		fmt.Fprintf(z, `{%s"title":"%s"}`, strings.Repeat(" ", length), InProgress.Title)
		if err := z.Close(); err != nil {
			t.Fatal(err)
		}
		d, err := ReadProblem(http.Header{"Content-Encoding": {"gzip"}}, text.Bytes())
		if got := err == nil && d.Says(InProgress); got != want {
			t.Errorf("with %d blanks in it, it is read: %v", length, got)
		}
	}
}

// The type of each problem is the URI of a page that says what happened and what to do, and each page has its problem.
func TestEveryProblemHasAPage(t *testing.T) {
	all := everyProblem(t)
	for name, p := range all {
		text, err := os.ReadFile(filepath.Join(problemPages, name+".md"))
		if err != nil {
			t.Errorf("%s has no page: %v", name, err)
			continue
		}
		begin := fmt.Sprintf("# %s\n\n`%s`, status %d\n", p.Title, name, p.Status)
		if !strings.HasPrefix(string(text), begin) {
			t.Errorf("%s.md does not begin with\n%s", name, begin)
		}
		for _, part := range []string{"**What happened.** ", "**What the client does.** ", "**What the operator does.** "} {
			if !strings.Contains(string(text), part) {
				t.Errorf("%s.md does not tell: %s", name, part)
			}
		}
	}
	pages, err := filepath.Glob(filepath.Join(problemPages, "*.md"))
	if err != nil {
		t.Fatal(err)
	}
	for _, page := range pages {
		if _, ok := all[strings.TrimSuffix(filepath.Base(page), ".md")]; !ok {
			t.Errorf("%s is the page of no problem", page)
		}
	}
}

// The draft names three titles.
func TestTheDraftsTitles(t *testing.T) {
	for p, want := range map[Problem]string{
		MissingKey: "Idempotency-Key is missing",
		KeyReused:  "Idempotency-Key is already used",
		InProgress: "A request is outstanding for this Idempotency-Key",
	} {
		if p.Title != want {
			t.Errorf("%s: %q, want %q", p.Name, p.Title, want)
		}
	}
}

// A problem is a document of RFC 9457, says where its page is in its type and in a Link, and is not cached.
func TestProblemDocument(t *testing.T) {
	for base, uri := range map[string]string{
		DefaultProblemBase:              DefaultProblemBase + "in-progress.md",
		"https://example.com/problems/": "https://example.com/problems/in-progress",
	} {
		w := httptest.NewRecorder()
		InProgress.Send(w, Form{Base: base}, 1500*time.Millisecond)
		h := w.Result().Header
		for name, want := range map[string]string{
			"Content-Type": "application/problem+json", "Link": "<" + uri + `>; rel="describedby"`,
			"Cache-Control": "no-store", "Retry-After": "2", "Content-Length": fmt.Sprint(w.Body.Len()),
		} {
			if h.Get(name) != want {
				t.Errorf("%s is %q, want %q", name, h.Get(name), want)
			}
		}
		var doc map[string]any
		if err := json.Unmarshal(w.Body.Bytes(), &doc); err != nil {
			t.Fatal(err)
		}
		want := map[string]any{"type": uri, "title": InProgress.Title, "status": 409.0, "detail": InProgress.Detail}
		if fmt.Sprint(doc) != fmt.Sprint(want) || w.Code != http.StatusConflict {
			t.Errorf("%d %v, want %v", w.Code, doc, want)
		}
	}
}

// The trap of powertools-java#1281, seconds where milliseconds were meant: options are durations, and a
// Retry-After is whole seconds, rounded up, and never 0, which would say "at once".
func TestRetryAfterIsInWholeSeconds(t *testing.T) {
	for d, want := range map[time.Duration]string{
		0: "1", time.Nanosecond: "1", time.Millisecond: "1", time.Second: "1", 1001 * time.Millisecond: "2",
		5 * time.Second: "5", 90 * time.Minute: "5400", 100 * 365 * 24 * time.Hour: "3153600000",
	} {
		if got := Seconds(d); got != want {
			t.Errorf("%v is %q, want %q", d, got, want)
		}
	}
}

// A HEAD gets the headers of a problem and no body, as net/http has it.
func TestProblemOfAHead(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		Unavailable.Send(w, Form{Base: DefaultProblemBase}, time.Second)
	}))
	defer server.Close()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodHead, server.URL, nil)
	if err != nil {
		t.Fatal(err)
	}
	res, err := server.Client().Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	if res.StatusCode != http.StatusServiceUnavailable || res.Header.Get("Content-Type") != "application/problem+json" || res.Header.Get("Retry-After") != "1" || res.ContentLength <= 0 {
		t.Errorf("it got %d %v", res.StatusCode, res.Header)
	}
}
