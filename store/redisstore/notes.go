package redisstore

import (
	"fmt"
	"slices"
)

// notes returns what operators should know about the durability of the nodes.
func (s *Store) notes(all []facts) (notes []string) {
	add := func(format string, args ...any) {
		if note := fmt.Sprintf(format, args...); !slices.Contains(notes, note) {
			notes = append(notes, note)
		}
	}
	for _, f := range all {
		switch {
		case f.log == "no":
			add("There is no append-only file: a restart loses all writes since the latest snapshot, and their operations are new.")
		case f.log == "":
			add("The server does not report whether it writes an append-only file.")
		case f.fsync == "always":
			add("Every write is synced before it is acknowledged (appendfsync always): a power loss loses no write that the disk keeps.")
		case f.fsync == "everysec" && s.syncLog:
			add("Every write waits for the sync of the append-only file (WAITAOF): a power loss loses no write that the disk keeps.")
		case f.fsync == "everysec":
			add("A power loss may lose the latest one or two seconds (appendfsync everysec), and so may a crash of the server alone while its disk is slow.")
		case f.fsync == "no":
			add("A power loss may lose what the system has not written yet, about half a minute (appendfsync no).")
		default:
			add("The server does not report when it syncs its append-only file.")
		}
		if f.policy != "" && f.policy != "noeviction" {
			add("The server removes records when memory is short (maxmemory-policy %s): their operations are new then.", f.policy)
		}
		if f.policy == "" {
			add("The server does not report whether it removes records when memory is short.")
		}
		switch {
		case s.replicas > 0:
			add("Every write waits for %d replicas (WAIT): a failover to one of them loses nothing, one to another may.", s.replicas)
		case f.role == "master" && f.replicas > 0:
			add("Replication is asynchronous: a failover may lose the latest acknowledged writes, and their operations are new.")
		}
	}
	add("Keep money in an SQL database, in one transaction with its record.")
	return notes
}
