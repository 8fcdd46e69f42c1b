package otelonce

import (
	"sync"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
)

// other is the label for values beyond the limit.
const other = "other"

// maxSets is how many sets of labels are cached. Others are made each time; OpenTelemetry limits what it keeps.
const maxSets = 2000

// labels caches sets of labels by their values, because making one costs more than a measurement.
type labels[K comparable] struct {
	of    func(K) []attribute.KeyValue
	mu    sync.RWMutex
	known map[K]*labelled
}

// labelled is a set of labels, in the two forms that instruments accept.
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

// bounded keeps the first max values, and replaces the others by "other".
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
