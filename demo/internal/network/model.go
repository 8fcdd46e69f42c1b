package network

import (
	"encoding/binary"
	"hash/fnv"
	"math/rand/v2"
	"time"
)

// Model says how bad a network is. Shares are between 0 and 1.
type Model struct {
	// Seed makes the network's faults the same again.
	Seed uint64
	// LoseRequests is the share of requests that never arrive.
	LoseRequests float64
	// LoseAnswers is the share of those that arrive whose answer does not.
	LoseAnswers float64
	// Duplicate is the share of requests that arrive twice, the second copy up to MaxDelay later.
	Duplicate float64
	// Delay is the share of requests that arrive up to MaxDelay late.
	Delay    float64
	MaxDelay time.Duration
}

// Bad is the network of the demo.
func Bad(seed uint64) Model {
	return Model{Seed: seed, LoseRequests: 0.25, LoseAnswers: 0.25, Duplicate: 0.1, Delay: 0.1, MaxDelay: 300 * time.Millisecond}
}

// Fate is what the network does to one request.
type Fate struct {
	LoseRequest bool
	LoseAnswer  bool
	Delay       time.Duration
	// Duplicate says that a second copy arrives, Gap later.
	Duplicate bool
	Gap       time.Duration
}

// Fate returns what happens to the nth request with that key. It depends on the seed, the key and n
// alone, and not on what else goes on: so the faults of an operation are the same again, whatever the
// scheduler does.
func (m Model) Fate(key string, n int) Fate {
	h := fnv.New64a()
	_, _ = h.Write([]byte(key))
	_, _ = h.Write(binary.BigEndian.AppendUint64(nil, uint64(n))) //nolint:gosec // n counts from 1
	r := rand.New(rand.NewPCG(m.Seed, h.Sum64()))                 //nolint:gosec // a network's faults, not a secret
	// Every number is drawn, used or not, so that a changed share changes nothing else.
	request, answer, delay, duplicate := r.Float64(), r.Float64(), r.Float64(), r.Float64()
	late, gap := m.upToMaxDelay(r), m.upToMaxDelay(r)
	f := Fate{LoseRequest: request < m.LoseRequests}
	if f.LoseRequest {
		return f
	}
	f.LoseAnswer = answer < m.LoseAnswers
	if delay < m.Delay {
		f.Delay = late
	}
	if f.Duplicate = duplicate < m.Duplicate; f.Duplicate {
		f.Gap = gap
	}
	return f
}

func (m Model) upToMaxDelay(r *rand.Rand) time.Duration {
	return time.Duration(r.Float64() * float64(m.MaxDelay))
}
