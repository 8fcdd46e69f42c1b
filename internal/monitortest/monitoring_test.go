package monitortest

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql/parser"
	"go.yaml.in/yaml/v3"

	"github.com/everonce/everonce/otelonce"
	"github.com/everonce/everonce/otelonce/scrape"
)

var folder = filepath.Join("..", "..", "docs", "monitoring")

// series are the series of a service, with those that Prometheus adds.
type series []sample

// sample is a series' labels, its name among them, and its value.
type sample struct {
	labels map[string]string
	value  float64
}

var label = regexp.MustCompile(`([a-z_]+)="((?:[^"\\]|\\.)*)"`)

// seriesOf reads a page in Prometheus' text format.
func seriesOf(t *testing.T, page string) (all series) {
	t.Helper()
	for line := range strings.Lines(page) {
		if !strings.HasPrefix(line, "everonce_") && !strings.HasPrefix(line, "up ") {
			continue
		}
		one := map[string]string{"__name__": line[:strings.IndexAny(line, "{ ")], "job": "shop", "instance": "shop:8080"}
		for _, m := range label.FindAllStringSubmatch(line, -1) {
			one[m[1]] = m[2]
		}
		all = append(all, sample{one, parsed(t, line)})
	}
	return all
}

// shown reports whether there is a series that all matchers match.
func (all series) shown(matchers []*labels.Matcher) bool {
	for _, one := range all {
		fits := true
		for _, m := range matchers {
			fits = fits && m.Matches(one.labels[m.Name])
		}
		if fits {
			return true
		}
	}
	return false
}

// lacks returns what an expression uses and all does not have: a series, or a label that it adds up by.
func (all series) lacks(t *testing.T, expr string) (missing []string) {
	t.Helper()
	parsed, err := parser.NewParser(parser.Options{}).ParseExpr(strings.NewReplacer("$__rate_interval", "5m", "$job", ".*").Replace(expr))
	if err != nil {
		return []string{err.Error()}
	}
	parser.Inspect(parsed, func(n parser.Node, _ []parser.Node) error {
		switch n := n.(type) {
		case *parser.VectorSelector:
			if !all.shown(n.LabelMatchers) {
				missing = append(missing, n.String())
			}
		case *parser.AggregateExpr:
			for _, by := range n.Grouping {
				parser.Inspect(n.Expr, func(inner parser.Node, _ []parser.Node) error {
					if v, ok := inner.(*parser.VectorSelector); ok && !n.Without {
						has := append([]*labels.Matcher{labels.MustNewMatcher(labels.MatchNotEqual, by, "")}, v.LabelMatchers...)
						if !all.shown(has) {
							missing = append(missing, v.String()+" by "+by)
						}
					}
					return nil
				})
			}
		}
		return nil
	})
	return missing
}

// expressions returns the expressions of the dashboard and of the alerts, by position.
func expressions(t *testing.T) map[string]string {
	t.Helper()
	exprs := map[string]string{}
	var board struct {
		Panels []struct {
			Title   string
			Targets []struct{ Expr, RefID string }
		}
	}
	text, err := os.ReadFile(filepath.Join(folder, "dashboard.json"))
	check(t, err)
	check(t, json.Unmarshal(text, &board))
	for _, p := range board.Panels {
		for _, target := range p.Targets {
			exprs["panel "+p.Title+" "+target.RefID] = target.Expr
		}
	}
	for _, r := range alerts(t) {
		exprs["alert "+r.Alert] = r.Expr
	}
	return exprs
}

// alert is a rule: it fires when the expression has been true for so long.
type alert struct {
	Alert, Expr string
	For         time.Duration
}

// alerts returns the rules.
func alerts(t *testing.T) (all []alert) {
	t.Helper()
	var rules struct{ Groups []struct{ Rules []alert } }
	text, err := os.ReadFile(filepath.Join(folder, "alerts.yaml"))
	check(t, err)
	check(t, yaml.Unmarshal(text, &rules))
	for _, g := range rules.Groups {
		all = append(all, g.Rules...)
	}
	return all
}

// Each expression of the dashboard and of the alerts is about series that a service shows, with the labels that it asks for.
func TestMonitoringUsesExistingSeries(t *testing.T) {
	all, exprs := seriesOf(t, "up 1\n"+service(t)), expressions(t)
	for at, expr := range exprs {
		for _, missing := range all.lacks(t, expr) {
			t.Errorf("%s: there is no %s", at, missing)
		}
	}
	if len(exprs) < 42 {
		t.Errorf("found %d expressions only", len(exprs))
	}
	for _, wrong := range []string{ // or the test is blind
		`everonce_operation_total`, `sum by (outcom) (everonce_operations_total)`, `everonce_records{state="lost"} > 0`, `rate(everonce_operations_total[`,
	} {
		if len(all.lacks(t, wrong)) == 0 {
			t.Errorf("nothing is missing in %s", wrong)
		}
	}
}

// Series that an alert passes to increase() start at zero before anything has happened: otherwise it would miss the
// first event.
func TestCountersBeginAtZero(t *testing.T) {
	provider, page, err := scrape.New()
	check(t, err)
	o := must(otelonce.NewObserver(provider, nil, nil))(t)
	o.HTTP("POST /charges")
	o.Consumer("rabbitmq", "mail")
	w := httptest.NewRecorder()
	page.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/metrics", http.NoBody))
	fresh, seen := seriesOf(t, "up 1\n"+w.Body.String()), 0
	for at, expr := range expressions(t) {
		if !strings.HasPrefix(at, "alert ") {
			continue
		}
		parsed, err := parser.NewParser(parser.Options{}).ParseExpr(expr)
		check(t, err)
		parser.Inspect(parsed, func(n parser.Node, path []parser.Node) error {
			v, ok := n.(*parser.VectorSelector)
			if !ok || !slices.ContainsFunc(path, func(n parser.Node) bool { c, ok := n.(*parser.Call); return ok && c.Func.Name == "increase" }) {
				return nil
			}
			if seen++; !fresh.shown(v.LabelMatchers) {
				t.Errorf("%s: %s does not exist from the start", at, v)
			}
			return nil
		})
	}
	if seen < 8 {
		t.Errorf("found %d only", seen)
	}
}

// The how-to and the proxy's reference name every figure, and no others, except the proxy's own.
func TestFiguresAreDocumented(t *testing.T) {
	told, shown := map[string]bool{}, map[string]bool{"everonce_proxy_unkeyed_requests_total": true}
	for _, page := range []string{"how-to/monitor.md", "reference/proxy.md"} {
		text, err := os.ReadFile(filepath.Join("..", "..", "docs", filepath.FromSlash(page)))
		check(t, err)
		for _, m := range regexp.MustCompile("(?m)^\\| `(everonce_[a-z_]+)`").FindAllStringSubmatch(string(text), -1) {
			told[m[1]] = true
		}
	}
	for _, m := range regexp.MustCompile(`(?m)^# TYPE (everonce_[a-z_]+) `).FindAllStringSubmatch(service(t), -1) {
		shown[m[1]] = true
	}
	for name := range shown {
		if !told[name] {
			t.Errorf("no page has %s", name)
		}
	}
	for name := range told {
		if !shown[name] {
			t.Errorf("there is no %s", name)
		}
	}
}
