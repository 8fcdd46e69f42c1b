package monitortest

import (
	_ "github.com/everonce/everonce"
	_ "github.com/everonce/everonce/otelonce/scrape"
	_ "github.com/everonce/everonce/store/sqlitestore"
	_ "github.com/prometheus/prometheus/promql/parser"
)
