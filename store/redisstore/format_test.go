package redisstore_test

import (
	"context"
	"encoding/base64"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/rueidis"

	"github.com/everonce/everonce/driver"
	"github.com/everonce/everonce/internal/testing/golden"
	"github.com/everonce/everonce/store/redisstore"
)

// This version reads what earlier ones have left on a server, and writes what they read in other processes.
func TestFormat(t *testing.T) {
	t.Parallel()
	for _, readFirst := range []bool{false, true} {
		t.Run(fmt.Sprintf("read first %v", readFirst), func(t *testing.T) {
			golden.Test(t, "redis", func(t *testing.T, _ int) golden.Harness {
				client := newClient(t, serverURL(t))
				opts := redisstore.Options{KeyPrefix: newPrefix(t, client), ReadFirst: readFirst}
				k := keyspace{TB: t, client: client, prefix: opts.KeyPrefix}
				return golden.Harness{Store: newStore(t, client, &opts), Load: k.load, Dump: k.dump}
			})
		})
	}
}

// keyspace is what a store keeps. A record is its keys behind the prefix, each with its end, and what is in it.
type keyspace struct {
	testing.TB
	client rueidis.Client
	prefix string
}

const noEnd = "never"

// load puts keys where the store has them. One whose end has passed is gone, as on a server that was away.
func (k keyspace) load(id driver.RecordID, stored string) {
	k.Helper()
	for _, key := range k.keys(id) {
		command(k, k.client, "DEL", key)
	}
	for line := range strings.Lines(stored) {
		f := strings.Fields(line)
		if len(f) != 4 {
			k.Fatalf("%q", line)
		}
		key, value := k.prefix+f[0], string(k.bytes(f[3]))
		if f[2] == "=" {
			command(k, k.client, "SET", key, value)
		} else {
			command(k, k.client, "HSET", key, string(k.bytes(f[2])), value)
		}
		if f[1] != noEnd {
			end, err := time.Parse(time.RFC3339Nano, f[1])
			noErr(k, err)
			command(k, k.client, "PEXPIREAT", key, strconv.FormatInt(end.UnixMilli(), 10))
		}
	}
}

func (k keyspace) dump(id driver.RecordID, times golden.Times) string {
	k.Helper()
	var b strings.Builder
	for _, key := range k.keys(id) {
		end := noEnd
		ms, err := command(k, k.client, "PEXPIRETIME", key).AsInt64()
		noErr(k, err)
		if ms > 0 {
			end = time.UnixMicro(times(ms*1000, 0, 2*time.Millisecond)).UTC().Format(time.RFC3339Nano)
		}
		name := strings.TrimPrefix(key, k.prefix)
		if typeOf, err := command(k, k.client, "TYPE", key).ToString(); err != nil || typeOf != "hash" {
			value, err := command(k, k.client, "GET", key).ToString()
			noErr(k, err)
			fmt.Fprintf(&b, "%s %s = %s\n", name, end, k.record([]byte(value), times))
			continue
		}
		steps, err := command(k, k.client, "HGETALL", key).AsStrMap()
		noErr(k, err)
		for _, step := range slices.Sorted(maps.Keys(steps)) {
			value := []byte(steps[step])
			fix(value, 7, times)  // its beginning
			fix(value, 15, times) // its end
			fmt.Fprintf(&b, "%s %s %x %x\n", name, end, step, value)
		}
	}
	return b.String()
}

// record shows the bytes of a record in pieces that can be told apart.
func (k keyspace) record(b []byte, times golden.Times) string {
	updated := int64(binary.LittleEndian.Uint64(b)) //nolint:gosec // a time
	for _, at := range []int{0, 8, 67, 75, 83} {    // the write, token, insert, claim and the claim before
		fix(b, at, times)
	}
	for _, at := range []int{35, 43, 51} { // what ends, counted from the write
		if d := binary.LittleEndian.Uint64(b[at:]); d > 0 {
			end := times(updated+int64(d), 0, 0)                                             //nolint:gosec // as above
			binary.LittleEndian.PutUint64(b[at:], uint64(end)-binary.LittleEndian.Uint64(b)) //nolint:gosec // as above
		}
	}
	return hex.EncodeToString(b)
}

func fix(b []byte, at int, times golden.Times) {
	us := int64(binary.LittleEndian.Uint64(b[at:]))                //nolint:gosec // a time
	binary.LittleEndian.PutUint64(b[at:], uint64(times(us, 0, 0))) //nolint:gosec // as above
}

// keys are all keys that are a record's: they have its ID in them.
func (k keyspace) keys(id driver.RecordID) []string {
	k.Helper()
	all, err := command(k, k.client, "KEYS", k.prefix+"*"+base64.RawURLEncoding.EncodeToString(id[:])+"*").AsStrSlice()
	noErr(k, err)
	slices.Sort(all)
	return all
}

func (k keyspace) bytes(text string) []byte {
	k.Helper()
	b, err := hex.DecodeString(text)
	noErr(k, err)
	return b
}

// So it is with what the store keeps once, and with the word that processes send each other of an attempt's end: in the
// channel that is named as the record's key, of a record whose byte 60 says that somebody waits.
func TestFormatOfTheSettingsAndTheWord(t *testing.T) {
	t.Parallel()
	client := newClient(t, serverURL(t))
	prefix := newPrefix(t, client)
	store := newStore(t, client, &redisstore.Options{KeyPrefix: prefix})
	golden.Identity(t, store)
	if kept, err := command(t, client, "GET", prefix+"identity").ToString(); kept != string(golden.Check[:]) {
		t.Errorf("the identity is %q, %v", kept, err)
	}

	rec := claimed(t, store, testKey)
	key := prefix + "{" + base64.RawURLEncoding.EncodeToString(rec.ID[:]) + "}"
	waits, err := store.Watch(t.Context(), driver.WatchRequest{ID: rec.ID})
	noErr(t, err)
	t.Cleanup(waits.Stop)
	if marked, err := command(t, client, "GETRANGE", key, "60", "60").ToString(); marked != "\x01" {
		t.Errorf("byte 60 is %q, %v", marked, err)
	}
	command(t, client, "PUBLISH", key, "") // as another version does
	<-waits.Ended

	word := make(chan struct{})
	ctx, heard := context.WithCancel(t.Context())
	listen := rueidis.WithOnSubscriptionHook(ctx, func(rueidis.PubSubSubscription) { // as another version waits
		command(t, client, "SETRANGE", key, "60", "\x01")
		_, err := store.Complete(t.Context(), completionOf(&rec, "v"))
		if err != nil {
			t.Error(err)
		}
	})
	listener, ended := newClient(t, serverURL(t)), make(chan error, 1)
	go func() {
		ended <- listener.Receive(listen, client.B().Subscribe().Channel(key).Build(), func(rueidis.PubSubMessage) { close(word) })
	}()
	select {
	case <-word:
		heard()
		<-ended
	case err := <-ended:
		heard()
		t.Fatal(err)
	}
}
