package redisstore

import (
	"errors"
	"testing"

	"github.com/everonce/everonce/driver"
)

// A server that is too old for the scripts, or for an option, is refused by its version.
func TestServersThatAreTooOld(t *testing.T) {
	t.Parallel()
	for version, c := range map[string]struct{ old, oldForSyncLog bool }{
		"6.2.14": {true, true}, "7.0.0": {false, true}, "7.2.4": {false, false}, "8.0": {false, false}, "10.1.2": {false, false}, "": {false, false},
	} {
		f := &facts{addr: "here", version: version, policy: "noeviction", log: "yes", fsync: "always"}
		for syncLog, old := range map[bool]bool{false: c.old, true: c.oldForSyncLog} {
			s := &Store{settings: settings{syncLog: syncLog, wait: defaultSyncTimeout}}
			if err := s.judge(f); errors.Is(err, driver.ErrInvalidArgument) != old || !old && err != nil {
				t.Errorf("Redis %q, SyncLog %v: %v; want it refused: %v", version, syncLog, err, old)
			}
		}
	}
}
