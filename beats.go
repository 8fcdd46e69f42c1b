package everonce

import "time"

// beats is a heap of the next beats of attempts, the earliest first. An attempt knows its index in it, so
// that its beat can be taken back. The times are here and not in the attempt, which lives for as long as
// the work's context is held by anybody.
type beats []beat

type beat struct {
	at      time.Time
	attempt *Attempt
}

// notDue is the index of an attempt that is not in the heap.
const notDue = -1

func (b *beats) add(x beat) {
	*b = append(*b, beat{})
	b.put(len(*b)-1, x)
	b.up(len(*b) - 1)
}

// remove takes out the beat at i.
func (b *beats) remove(i int) {
	all := *b
	all[i].attempt.beat.index = notDue
	last := len(all) - 1
	moved := all[last]
	all[last] = beat{}
	*b = all[:last]
	if i < last {
		b.put(i, moved)
		b.up(b.down(i))
	}
}

func (b beats) put(i int, x beat) {
	b[i] = x
	x.attempt.beat.index = int32(i) //nolint:gosec // as many as run at once
}

// up moves the beat at i towards the front until it is not before the one above it.
func (b beats) up(i int) {
	for i > 0 && b[i].at.Before(b[(i-1)/2].at) {
		i = b.swap(i, (i-1)/2)
	}
}

// down moves the beat at i towards the end until none below it is before it, and returns where it is then.
func (b beats) down(i int) int {
	for {
		child := 2*i + 1
		if child+1 < len(b) && b[child+1].at.Before(b[child].at) {
			child++
		}
		if child >= len(b) || !b[child].at.Before(b[i].at) {
			return i
		}
		i = b.swap(i, child)
	}
}

func (b beats) swap(i, j int) int {
	x, y := b[i], b[j]
	b.put(i, y)
	b.put(j, x)
	return j
}
