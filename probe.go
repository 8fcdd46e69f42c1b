package everonce

import "github.com/everonce/everonce/internal/probe"

func init() {
	probe.Receiver = func(r any) probe.Held {
		callers, keys := r.(AnyReceiver).receiver().hub.Held()
		return probe.Held{Callers: callers, Keys: keys}
	}
}
