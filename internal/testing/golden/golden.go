// Package golden proves that what durable stores keep can be read by every later version, and is written so by all who
// share a store.
//
// The folder testdata/1 holds records of version 1 ([driver.FormatVersion]) in every state, as each store keeps them,
// beside what they mean: records.txt. Nothing in it is ever changed. [Test] puts the stored form into an empty store,
// reads it, and goes on from it; and it writes the same records with the same calls, and compares what is stored.
//
// A version 2 gets its own folder beside it, and 1 remains: its records must still be read. Give the cases of the new
// folder to cases, and make its files with
//
//	go test ./internal/testing/golden -run TestRecords -formats.new
//	for s in sqlitestore pgxstore redisstore mongostore dynamostore; do (cd store/$s && go test -run 'TestFormat$' -formats.new .); done
//
// which write the missing files; sqlite.sql and postgres.sql are what Schema returns. Read them before you commit them:
// from then on they are the format.
package golden

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/everonce/everonce/driver"
)

// Harness is an empty store, and what is needed to see behind it.
type Harness struct {
	Store driver.Store
	// Load puts a record in place of what there is, in the store's own form.
	Load func(id driver.RecordID, stored string)
	// Dump returns the store's own form of a record. It shows each time as [Times] has it.
	Dump func(id driver.RecordID, times Times) string
	// Transact claims and completes in a transaction; claim is nil in an optimistic one. It is nil if the store has no
	// transactions.
	Transact func(ctx context.Context, claim *driver.ClaimRequest, commit driver.CommitRequest) error
}

// Times returns the time that the files contain in place of a time of the store, both in microseconds since 1970. The
// store's time may be earlier or later than the time of a write by as much as early and late.
type Times func(us int64, early, late time.Duration) int64

// Apart is how far the writes of a record are from each other, by the store's clock.
const Apart = 15 * time.Millisecond

// Factory makes a store for one test, as a version has left it behind: with its tables, for example.
type Factory func(t *testing.T, version int) Harness

// Test holds a store to the files that testdata has of it: name.txt.
func Test(t *testing.T, name string, factory Factory) {
	t.Helper()
	for version := 1; version <= driver.FormatVersion; version++ {
		records := records(t, version)
		stored := sections(t, version, name)
		t.Run(fmt.Sprint("read version ", version), func(t *testing.T) {
			h := factory(t, version)
			for _, c := range cases(t, version) {
				if c.inTx && h.Transact == nil {
					continue
				}
				t.Run(c.name, func(t *testing.T) {
					text, there := stored.text(c.name)
					if !there {
						t.Fatalf("testdata/%d/%s.txt has no such record", version, name)
					}
					(&reading{T: t, h: h, c: c, want: records[c.name], stored: text}).run()
				})
			}
		})
	}
	t.Run("write", func(t *testing.T) {
		var written file
		h := factory(t, driver.FormatVersion)
		for _, c := range cases(t, driver.FormatVersion) {
			if c.inTx && h.Transact == nil {
				continue
			}
			s := &script{T: t, h: h, c: c, lengths: map[time.Duration]bool{0: true}}
			c.write(s)
			written = append(written, section{c.name, h.Dump(s.id(), s.fixed)})
		}
		written.compare(t, driver.FormatVersion, name)
	})
}

// InTx is [Harness].Transact of a store with transactions.
func InTx[Tx any](s driver.TxStore[Tx]) func(ctx context.Context, claim *driver.ClaimRequest, commit driver.CommitRequest) error {
	return func(ctx context.Context, claim *driver.ClaimRequest, commit driver.CommitRequest) error {
		tx, res, err := s.Begin(ctx, driver.BeginRequest{Claim: claim})
		if err != nil {
			return err
		}
		commit.Complete.Token = res.Record.Token
		_, err = tx.Commit(ctx, commit)
		return err
	}
}

// known reports whether a fixture's case exists, so that none is left out unseen.
func known(all []testCase, name string) bool {
	return slices.ContainsFunc(all, func(c testCase) bool { return c.name == name })
}
