package everonce

import "github.com/everonce/everonce/internal/probe"

func init() {
	probe.Receiver = func(r any) probe.Held {
		c := r.(AnyReceiver).receiver()
		c.hub.mu.Lock()
		defer c.hub.mu.Unlock()
		return probe.Held{Callers: int(c.hub.waiting.Load()), Keys: len(c.hub.crowds)}
	}
}
