package redisstore_test

import (
	"context"
	"errors"
	"testing"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/driver"
	"github.com/everonce/everonce/store/redisstore"
)

// The result of a step that is too large for the store is elided, like the result of an operation: the attempt has it,
// and no other attempt runs the step again (rule 10).
func TestATooLargeStepIsElided(t *testing.T) {
	t.Parallel()
	client := newClient(t, serverURL(t))
	store := newStore(t, client, &redisstore.Options{KeyPrefix: newPrefix(t, client)})
	r, err := everonce.NewReceiver(store, everonce.Refuse, &everonce.Options{Codec: everonce.Raw(), MaxResult: redisstore.MaxResult + 1})
	noErr(t, err)
	ran := 0
	for _, want := range []error{nil, everonce.ErrResultElided} {
		_, err := everonce.Do(t.Context(), r, testKey, func(ctx context.Context, a *everonce.Attempt) ([]byte, error) {
			v, err := everonce.Step(ctx, a, "scan", func(context.Context) ([]byte, error) {
				ran++
				return make([]byte, redisstore.MaxResult+1), nil
			})
			if !errors.Is(err, want) || want == nil && len(v) != redisstore.MaxResult+1 {
				t.Errorf("the step: %d bytes, %v; want %v", len(v), err, want)
			}
			return nil, everonce.NotDone(errNotNow)
		})
		if !errors.Is(err, errNotNow) {
			t.Errorf("the operation: %v", err)
		}
	}
	if ran != 1 {
		t.Errorf("the step ran %d times", ran)
	}
}

var errNotNow = errors.New("not now")

// A store that is bound to what cannot be read is bound to no secret that anybody has.
func TestAnIdentityThatCanNotBeRead(t *testing.T) {
	t.Parallel()
	client := newClient(t, serverURL(t))
	prefix := newPrefix(t, client)
	store := newStore(t, client, &redisstore.Options{KeyPrefix: prefix})
	noErr(t, command(t, client, "SET", prefix+"identity", "cut off").Error())
	if kept, err := store.ReadIdentity(t.Context(), driver.ReadIdentityRequest{}); !errors.Is(err, driver.ErrCorruptRecord) || kept.Bound {
		t.Errorf("%v, %v, want a corrupt record", kept.Bound, err)
	}
	if _, err := store.KeepIdentity(t.Context(), driver.KeepIdentityRequest{Check: [32]byte{1}}); !errors.Is(err, driver.ErrIdentity) {
		t.Errorf("it is bound anew: %v", err)
	}
}
