// Command chart draws the table that bench prints: the rate of each way as a share of the bare one.
//
//	go run ./bench/chart docs/reference/figures.md docs/reference/figures
//
// It reads the first table of the file, and writes NAME-light.svg and NAME-dark.svg.
package main

import (
	"errors"
	"fmt"
	"log"
	"os"
	"regexp"
	"strconv"
	"strings"

	"github.com/go-analyze/charts"
)

// contests are those that are drawn: how they begin in the table, and their label in the chart.
var contests = []struct{ begins, label string }{
	{"memory HTTP, new keys", "HTTP first"},
	{"memory HTTP, replay", "HTTP replay"},
	{"SQLite guarded, new keys", "SQLite guarded"},
	{"SQLite transactional, new keys", "SQLite tx"},
	{"Redis guarded, new keys", "Redis guarded"},
	{"PostgreSQL transactional, new keys", "PostgreSQL tx"},
	{"RabbitMQ to PostgreSQL a consumer, new keys", "RabbitMQ"},
}

// kinds are the series. A way belongs to the kind whose prefix it has; the first way of a kind in the table is drawn.
var kinds = []struct{ name, prefix string }{
	{"bare", "bare"}, {"naive", "naive"}, {"everonce", "ours"}, {"peer", "fiber, its"},
}

func main() {
	log.SetFlags(0)
	log.SetPrefix("chart: ")
	if len(os.Args) != 3 {
		log.Fatal("usage: chart TABLE NAME")
	}
	if err := run(os.Args[1], os.Args[2]); err != nil {
		log.Fatal(err)
	}
}

func run(table, name string) error {
	labels, shares, err := read(table)
	if err != nil {
		return err
	}
	return errors.Join(
		draw(charts.ThemeLight, name+"-light.svg", labels, shares),
		draw(charts.ThemeDark, name+"-dark.svg", labels, shares))
}

// line is a line of the table: a contest, if it is its first; a way; and its share of the bare one.
var line = regexp.MustCompile(`^(?:(\S.*?)\s+|\s+)((?:bare|naive|ours|fiber).*?)\s+[\d.]+(?: [kM])?\s+([\d.]+)\s+[\d.]+\s+\S+\s+[\d.]+$`)

// read returns the labels of the contests that the first table of a file has, and for each series their shares.
func read(file string) (labels []string, shares [][]float64, err error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, nil, err
	}
	_, table, _ := strings.Cut(string(text), "\nstore ")
	table, _, whole := strings.Cut(table, "\npromised ")
	if !whole {
		return nil, nil, fmt.Errorf("%s has no whole table of bench", file)
	}
	shares = make([][]float64, len(kinds))
	drawn := false
	for row := range strings.Lines(table) {
		cells := line.FindStringSubmatch(strings.TrimRight(row, "\n"))
		if cells == nil {
			continue
		}
		if contest := strings.Join(strings.Fields(cells[1]), " "); contest != "" {
			label := labelOf(contest)
			if drawn = label != ""; drawn {
				labels = append(labels, label)
				for i := range shares {
					shares[i] = append(shares[i], charts.GetNullValue())
				}
			}
		}
		if kind := kindOf(cells[2]); drawn && kind >= 0 && shares[kind][len(labels)-1] == charts.GetNullValue() {
			if shares[kind][len(labels)-1], err = strconv.ParseFloat(cells[3], 64); err != nil {
				return nil, nil, fmt.Errorf("%s: %q: %w", file, row, err)
			}
		}
	}
	if len(labels) != len(contests) {
		return nil, nil, fmt.Errorf("%s has only the contests %q", file, labels)
	}
	return labels, shares, nil
}

func labelOf(contest string) string {
	for _, c := range contests {
		if strings.HasPrefix(contest, c.begins) {
			return c.label
		}
	}
	return ""
}

func kindOf(way string) int {
	if strings.HasPrefix(way, "ours, ungrouped") { // not the default
		return -1
	}
	for i, k := range kinds {
		if strings.HasPrefix(way, k.prefix) {
			return i
		}
	}
	return -1
}

func draw(theme, file string, labels []string, shares [][]float64) error {
	opt := charts.NewBarChartOptionWithData(shares)
	opt.Theme = charts.GetTheme(theme)
	opt.Title = charts.TitleOption{Text: "Rate as a share of the bare work, in one run"}
	opt.CategoryAxis.Labels = labels
	opt.CategoryAxis.LabelCount = len(labels)
	opt.CategoryAxis.LabelFontStyle.FontSize = 11
	opt.Legend = charts.LegendOption{Offset: charts.OffsetRight, SeriesNames: names()}
	for i := range opt.SeriesList {
		opt.SeriesList[i].Label.Show = charts.Ptr(true)
		opt.SeriesList[i].Label.ValueFormatter = func(f float64) string { return strconv.FormatFloat(f, 'f', 2, 64) }
	}
	p := charts.NewPainter(charts.PainterOptions{OutputFormat: charts.ChartOutputSVG, Width: 1000, Height: 400})
	if err := p.BarChart(opt); err != nil {
		return err
	}
	svg, err := p.Bytes()
	if err != nil {
		return err
	}
	return os.WriteFile(file, svg, 0o644)
}

func names() (all []string) {
	for _, k := range kinds {
		all = append(all, k.name)
	}
	return all
}
