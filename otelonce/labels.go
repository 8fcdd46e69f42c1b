package otelonce

import (
	"sync"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
)

// other is the label of what there is no room for.
const other = "other"

// maxSets is how many sets of labels are kept ready. More are made each time; OpenTelemetry has a limit of its own for what
// it keeps.
const maxSets = 2000

// labels keeps the sets of labels that have been used, by what they are made of: making one costs more than a measurement.
type labels[K comparable] struct {
	of    func(K) []attribute.KeyValue
	mu    sync.RWMutex
	known map[K]*labelled
}

// labelled is a set of labels, in the two forms that instruments take.
type labelled struct {
	add    []metric.AddOption
	record []metric.RecordOption
}

func (l *labels[K]) get(k K) *labelled {
	l.mu.RLock()
	with := l.known[k]
	l.mu.RUnlock()
	if with != nil {
		return with
	}
	set := metric.WithAttributeSet(attribute.NewSet(l.of(k)...))
	with = &labelled{[]metric.AddOption{set}, []metric.RecordOption{set}}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.known == nil {
		l.known = map[K]*labelled{}
	}
	if len(l.known) < maxSets {
		l.known[k] = with
	}
	return with
}

// bounded tells the first max values apart; the others are "other".
type bounded struct {
	max   int
	mu    sync.RWMutex
	known map[string]bool
}

func (b *bounded) label(value string) string {
	b.mu.RLock()
	known, full := b.known[value], len(b.known) >= b.max
	b.mu.RUnlock()
	switch {
	case known:
		return value
	case full:
		return other
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.known) >= b.max && !b.known[value] {
		return other
	}
	if b.known == nil {
		b.known = map[string]bool{}
	}
	b.known[value] = true
	return value
}
