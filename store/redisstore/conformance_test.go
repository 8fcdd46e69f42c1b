package redisstore_test

import (
	"fmt"
	"strconv"
	"sync/atomic"
	"testing"

	"github.com/redis/rueidis"

	"github.com/everonce/everonce/driver"
	"github.com/everonce/everonce/driver/drivertest"
	"github.com/everonce/everonce/store/redisstore"
)

func capabilities() drivertest.Capabilities {
	return drivertest.Capabilities{
		Lister: true, ScopeDeleter: true, HealthChecker: true, WriteChecker: true, IdentityKeeper: true, ChangeWaiter: true, RemovesByItself: true,
		MaxResult: redisstore.MaxResult, RefusesLarger: true,
	}
}

// variant is what the suite runs on beside the store of TestConformance.
func variant() drivertest.Capabilities {
	caps := capabilities()
	caps.Variant = true
	return caps
}

// factory makes stores beside each other on one server, with a peer that has a separate connection.
func factory(t *testing.T, client, peer rueidis.Client, opts redisstore.Options) drivertest.Factory {
	t.Helper()
	return stores(newPrefix(t, client), client, peer, opts)
}

// clusterFactory makes stores on a cluster that is thrown away.
func clusterFactory(client, peer rueidis.Client) drivertest.Factory {
	return stores("", client, peer, redisstore.Options{})
}

func stores(root string, client, peer rueidis.Client, opts redisstore.Options) drivertest.Factory {
	var n atomic.Int64
	return func(t testing.TB) drivertest.Harness {
		opts := opts
		opts.KeyPrefix = fmt.Sprintf("%s%d:", root, n.Add(1))
		store, err := redisstore.New(t.Context(), client, &opts)
		noErr(t, err)
		other, err := redisstore.New(t.Context(), peer, &opts)
		noErr(t, err)
		put := func(at int, b byte) func(id driver.RecordID) {
			return func(id driver.RecordID) {
				for _, part := range []string{"", ":v"} { // of the record and of its saved result, where there is one
					const set = "return redis.call('EXISTS', KEYS[1]) == 1 and redis.call('SETRANGE', KEYS[1], ARGV[1], ARGV[2])"
					command(t, client, "EVAL", set, "1", redisstore.KeyOf(store, id)+part, strconv.Itoa(at), string([]byte{b}))
				}
			}
		}
		const offToken, offFormat, offState, offLease, offAttempt, last = 8, 32, 33, 35, 63, 7 // of 8 bytes
		return drivertest.Harness{Store: store, Peer: other, Newer: put(offFormat, driver.FormatVersion+1), Damages: map[string]func(driver.RecordID){
			"its state": put(offState, 77), "its token": put(offToken+last, 0xff), "its attempts": put(offAttempt+3, 0xff),
		}, DamagedLease: put(offLease+last, 0x7f), UnreadStep: func(id driver.RecordID, name string) {
			command(t, client, "HSET", redisstore.KeyOf(store, id)+":s", name, "x")
		}, UnreadResult: func(id driver.RecordID, name string, kind int) {
			const offKind = 1 + 4 + 2 + 8 + 8 // behind the step's state, attempt, place and times
			const set = "local s = redis.call('HGET', KEYS[1], ARGV[1]) return redis.call('HSET', KEYS[1], ARGV[1], string.sub(s, 1, ARGV[2]) .. string.char(ARGV[3]) .. string.sub(s, ARGV[2] + 2))"
			command(t, client, "EVAL", set, "1", redisstore.KeyOf(store, id)+":s", name, strconv.Itoa(offKind), strconv.Itoa(kind))
		}}
	}
}

// TestConformance holds the store to the suite, on the server that the tests share.
func TestConformance(t *testing.T) {
	t.Parallel()
	drivertest.RunWithBugs(t, factory(t, newClient(t, serverURL(t)), newClient(t, serverURL(t)), redisstore.Options{}), capabilities())
}

// TestConformanceReadFirst does so for claims that look for a result before they claim.
func TestConformanceReadFirst(t *testing.T) {
	t.Parallel()
	drivertest.Run(t, factory(t, newClient(t, serverURL(t)), newClient(t, serverURL(t)), redisstore.Options{ReadFirst: true}), variant())
}
