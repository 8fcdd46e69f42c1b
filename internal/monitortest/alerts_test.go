package monitortest

import (
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/storage"
	"github.com/prometheus/prometheus/util/annotations"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/consume"
	"github.com/everonce/everonce/driver"
	"github.com/everonce/everonce/httponce"
	"github.com/everonce/everonce/janitor"
	"github.com/everonce/everonce/otelonce"
	"github.com/everonce/everonce/otelonce/scrape"
)

// shop is a service that is scraped once a minute, for half an hour before something happens and for an hour and more from then on.
type shop struct {
	*otelonce.Observer
	t      *testing.T
	mail   *otelonce.Consumer
	page   http.Handler
	health driver.HealthResult
	tables string // figures of an outbox
}

const (
	before, behind = 30, 75 // minutes
	quietTables    = "everonce_backlog_entries{state=\"blocked\",table=\"outbox\"} 0\neveronce_backlog_lag_seconds{table=\"outbox\"} 299\n"
)

func (s *shop) end(ev everonce.Observation) {
	ev.Kind = "do"
	s.End(s.Start(s.t.Context(), ev.Op), ev)
}

func (s *shop) decide(d consume.Disposition, o everonce.Outcome, why consume.Reason) {
	s.mail.Observe(s.t.Context(), &consume.Message{}, consume.Decision{Disposition: d, Outcome: o, Death: consume.Death{Reason: why}})
}

// scrape returns the page that Prometheus gets.
func (s *shop) scrape() string {
	if s.page == nil {
		return "up 0\n"
	}
	w := httptest.NewRecorder()
	s.page.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/metrics", http.NoBody))
	if w.Code != http.StatusOK {
		return "up 1\n"
	}
	return "up 1\n" + w.Body.String() + s.tables
}

// calm does each minute what causes no alert, and once what would cause one if it continued.
func (s *shop) calm(minute int) {
	s.end(everonce.Observation{Outcome: everonce.Executed})
	s.end(everonce.Observation{Outcome: everonce.Replayed, Since: 11 * time.Hour})
	s.end(everonce.Observation{Outcome: everonce.Mismatch})
	s.end(everonce.Observation{Outcome: everonce.InProgress})
	s.decide(consume.Ack, everonce.Executed, "")
	s.decide(consume.Retry, everonce.Failed, "")
	if minute == 0 {
		s.end(everonce.Observation{Outcome: everonce.StoreFailed, RenewFailures: 2})
		s.decide(consume.Hold, everonce.StoreFailed, "")
	}
}

// happens are the causes of the alerts. Each begins at minute 0.
var happens = map[string]func(s *shop, minute int){
	"EveronceUnknown":     func(s *shop, _ int) { s.health.Abandoned = 1 },
	"EveronceUnreadable":  func(s *shop, _ int) { s.health.Unreadable = 1 },
	"EveronceUncounted":   once(func(s *shop) { s.Counted(driver.HealthResult{}, everonce.ErrStore) }),
	"EveronceNotRecorded": once(func(s *shop) { s.end(everonce.Observation{Outcome: everonce.NotRecorded}) }),
	"EveronceUnprotected": once(func(s *shop) {
		s.HTTP("POST /charges")(s.t.Context(), httponce.Served{Route: "/charges", FailedOpen: true})
	}),
	"EveronceStoreFails":      func(s *shop, _ int) { s.end(everonce.Observation{Outcome: everonce.StoreFailed}) },
	"EveronceLeasesLost":      once(func(s *shop) { s.end(everonce.Observation{Outcome: everonce.Replayed, LeaseLost: true}) }),
	"EveronceRenewalsLate":    once(func(s *shop) { s.end(everonce.Observation{Outcome: everonce.Executed, RenewFailures: 4}) }),
	"EveronceRepetitionsLate": once(func(s *shop) { s.end(everonce.Observation{Outcome: everonce.Replayed, Since: 13 * time.Hour}) }),
	"EveronceJanitorFails":    once(func(s *shop) { s.Purged(janitor.Result{}, errors.New("no")) }),
	"EveronceDeadLetters":     once(func(s *shop) { s.decide(consume.SetAside, everonce.Rejected, consume.Rejected) }),
	"EveronceConsumerWaits":   func(s *shop, _ int) { s.decide(consume.Hold, everonce.StoreFailed, "") },
	"EveronceSetAside":        func(s *shop, _ int) { s.tables = strings.Replace(quietTables, "} 0", "} 1", 1) },
	"EveronceLag":             func(s *shop, _ int) { s.tables = strings.Replace(quietTables, "299", "301", 1) },
	"EveronceDown":            func(s *shop, _ int) { s.page = nil },
	"EveronceAbsent":          func(s *shop, _ int) { s.page = http.NotFoundHandler() },
}

func once(f func(*shop)) func(*shop, int) {
	return func(s *shop, minute int) {
		if minute == 0 {
			f(s)
		}
	}
}

// fires returns the alerts that fire for a cause.
func fires(t *testing.T, happens func(s *shop, minute int)) (fired []string) {
	t.Helper()
	provider, page, err := scrape.New()
	check(t, err)
	s := &shop{t: t, page: page, tables: quietTables, Observer: must(otelonce.NewObserver(provider, nil, nil))(t)}
	s.HTTP("POST /charges")
	s.mail = s.Consumer("rabbitmq", "mail")
	var exprs string
	for _, a := range alerts(t) {
		exprs += a.Expr
	}
	kept, scraped := map[string]*promql.Series{}, series(nil)
	began := time.Unix(1e9, 0)
	for minute := -before; minute < behind; minute++ {
		if minute == -before || 0 <= minute && minute < 20 { // then nothing changes
			s.Counted(s.health, nil)
			s.calm(minute)
			if minute >= 0 {
				happens(s, minute)
			}
			scraped = seriesOf(t, s.scrape())
		}
		for _, one := range scraped {
			if !strings.Contains(exprs, one.labels["__name__"]) { // most buckets
				continue
			}
			its := labels.FromMap(one.labels)
			at := kept[its.String()]
			if at == nil {
				at = &promql.Series{Metric: its}
				kept[its.String()] = at
			}
			at.Floats = append(at.Floats, promql.FPoint{T: began.Add(time.Duration(minute) * time.Minute).UnixMilli(), F: one.value})
		}
	}
	engine := promql.NewEngine(promql.EngineOpts{MaxSamples: 1e6, Timeout: time.Minute, EnableNegativeOffset: true})
	for _, a := range alerts(t) {
		q := must(engine.NewRangeQuery(t.Context(), asked(kept), nil, a.Expr, began.Add(-before*time.Minute), began.Add((behind-1)*time.Minute), time.Minute))(t)
		found := must(q.Exec(t.Context()).Matrix())(t)
		for _, one := range found {
			since := int64(-1)
			for i, p := range one.Floats {
				if i == 0 || p.T-one.Floats[i-1].T > time.Minute.Milliseconds() {
					since = p.T
				}
				if p.T-since >= a.For.Milliseconds() && !slices.Contains(fired, a.Alert) {
					fired = append(fired, a.Alert)
				}
			}
		}
		q.Close()
	}
	return fired
}

// asked lets Prometheus' engine look at series.
func asked(kept map[string]*promql.Series) storage.Queryable {
	return &storage.MockQueryable{MockQuerier: &storage.MockQuerier{
		SelectMockFunction: func(_ bool, _ *storage.SelectHints, matchers ...*labels.Matcher) storage.SeriesSet {
			var found selected
			for _, s := range kept {
				if !slices.ContainsFunc(matchers, func(m *labels.Matcher) bool { return !m.Matches(s.Metric.Get(m.Name)) }) {
					found.left = append(found.left, s)
				}
			}
			return &found
		},
	}}
}

// selected are the series that a selector has found.
type selected struct {
	at   *promql.Series
	left []*promql.Series
}

func (s *selected) Next() (more bool) {
	if more = len(s.left) > 0; more {
		s.at, s.left = s.left[0], s.left[1:]
	}
	return more
}
func (s *selected) At() storage.Series              { return promql.NewStorageSeries(*s.at) }
func (*selected) Err() error                        { return nil }
func (*selected) Warnings() annotations.Annotations { return nil }

// Each alert fires for its cause, and no other alert does, except those on missing figures. None fires in a calm
// service.
func TestAlertsFire(t *testing.T) {
	if got := fires(t, func(*shop, int) {}); len(got) > 0 {
		t.Errorf("in a calm service %v fire", got)
	}
	also := map[string][]string{
		"EveronceAbsent": {"EveronceUncounted"}, "EveronceDown": {"EveronceAbsent", "EveronceUncounted"},
	}
	for _, a := range alerts(t) {
		happens := happens[a.Alert]
		if happens == nil {
			t.Errorf("%s: nothing has it fire", a.Alert)
			continue
		}
		want := append([]string{a.Alert}, also[a.Alert]...)
		got := fires(t, happens)
		slices.Sort(want)
		slices.Sort(got)
		if !slices.Equal(got, want) {
			t.Errorf("%s: %v fire, want %v", a.Alert, got, want)
		}
	}
}

// EveronceUncounted fires if no process counts records. The page of DynamoDB, where a proxy counts none, says so, and
// what to take out.
func TestWithoutACountOfRecords(t *testing.T) {
	uncounted := once(func(s *shop) {
		counted := s.page
		s.page = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			all := httptest.NewRecorder()
			counted.ServeHTTP(all, r)
			for line := range strings.Lines(all.Body.String()) {
				if !strings.HasPrefix(line, "everonce_records{") {
					_, err := io.WriteString(w, line)
					check(t, err)
				}
			}
		})
	})
	if got := fires(t, uncounted); !slices.Equal(got, []string{"EveronceUncounted"}) {
		t.Errorf("without a count, %v fire", got)
	}
	if got := fires(t, func(s *shop, minute int) {
		uncounted(s, minute)
		s.tables = quietTables + `everonce_records{job="other",state="abandoned"} 0` + "\n"
	}); len(got) > 0 {
		t.Errorf("where another service counts %v fire", got)
	}
	page := must(os.ReadFile(filepath.Join(folder, "..", "how-to", "records-in-dynamodb.md")))(t)
	out := regexp.MustCompile("fires for good if no process counts any \\(take `([^`]+)` out of it\\), and does not fire\\s+where another service counts").FindSubmatch(page)
	if out == nil || !slices.ContainsFunc(alerts(t), func(a alert) bool {
		return a.Alert == "EveronceUncounted" && strings.HasSuffix(a.Expr, " "+string(out[1]))
	}) {
		t.Errorf("the page has %q taken out of EveronceUncounted", out)
	}
}

// parsed reads the value of a line of Prometheus' text format.
func parsed(t *testing.T, line string) float64 {
	t.Helper()
	return must(strconv.ParseFloat(strings.TrimSpace(line[strings.LastIndexByte(line, ' ')+1:]), 64))(t)
}
