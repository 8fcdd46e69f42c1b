package redisstore

import (
	"fmt"
	"slices"
)

// notes are what operators should know of the durability of the nodes.
func (s *Store) notes(all []facts) (notes []string) {
	add := func(format string, args ...any) {
		if note := fmt.Sprintf(format, args...); !slices.Contains(notes, note) {
			notes = append(notes, note)
		}
	}
	for _, f := range all {
		switch {
		case f.log == "no":
			add("There is no append-only file: a restart forgets what came after the latest snapshot, and those operations are new.")
		case f.log == "":
			add("The server does not tell whether it writes an append-only file.")
		case f.fsync == "always":
			add("Every write is synced before it is acknowledged (appendfsync always): a loss of power loses nothing that the disk keeps.")
		case f.fsync == "everysec" && s.syncLog:
			add("Every write waits for the sync of the append-only file (WAITAOF): a loss of power loses nothing that the disk keeps.")
		case f.fsync == "everysec":
			add("A loss of power may lose the latest second or two (appendfsync everysec), and so may a crash of the server alone while its disk is slow.")
		case f.fsync == "no":
			add("A loss of power may lose what the system has not written yet, half a minute or so (appendfsync no).")
		default:
			add("The server does not tell when it syncs its append-only file.")
		}
		if f.policy != "" && f.policy != "noeviction" {
			add("The server removes records when memory is short (maxmemory-policy %s): their operations are new then.", f.policy)
		}
		if f.policy == "" {
			add("The server does not tell whether it removes records when memory is short.")
		}
		switch {
		case s.replicas > 0:
			add("Every write waits for %d replicas (WAIT): a failover to one of them loses nothing, one to another may.", s.replicas)
		case f.role == "master" && f.replicas > 0:
			add("Replication is asynchronous: a failover may lose what was acknowledged last, and those operations are new.")
		}
	}
	add("Money belongs in an SQL database, in one transaction with its record.")
	return notes
}
