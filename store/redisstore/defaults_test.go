package redisstore

import (
	"testing"
	"time"
)

// Omitted options have the values that docs/reference/options.md states.
func TestDefaults(t *testing.T) {
	t.Parallel()
	for want, o := range map[settings]*Options{
		{prefix: "everonce:", wait: time.Second}:                    nil,
		{prefix: "everonce:", wait: time.Second, replicas: 2}:       {Replicas: 2},
		{prefix: "everonce:", wait: 3 * time.Second, syncLog: true}: {SyncLog: true},
	} {
		if got, err := o.settings(); err != nil || *got != want {
			t.Errorf("%+v: %+v, %v; want %+v", o, got, err, want)
		}
	}
}
