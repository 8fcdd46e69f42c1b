package saga

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/consume"
	"github.com/everonce/everonce/internal/sqlqueue"
)

// Step is an action and its compensation. In is the saga's input, Tx the handle of the application's transactions.
// Exactly one of Action and ActionTx is required, and one of Compensation, CompensationTx and Final.
type Step[In, Tx any] struct {
	// Name identifies the step in the saga: do not change it. At most 100 bytes. Required.
	Name string

	// Action does the work of the step, outside of the database. Its result is kept as JSON, for later steps
	// ([Call.Output]). An error of [everonce.Permanent] says that the step was refused, and has no effect: the saga is
	// compensated. An error of [everonce.NotDone] says that nothing happened; after any other error the outcome is
	// unknown. After both the step is tried again.
	Action func(ctx context.Context, c *Call[In]) (any, error)
	// ActionTx is an action in the store's database: its writes commit with the record that it was done.
	ActionTx func(ctx context.Context, tx Tx, c *Call[In]) (any, error)

	// Compensation reverts the action. It is called for every action that may have had its effect, and must succeed if the
	// action had none. After any error it is tried again; after the last retry the saga waits for an operator. Its context
	// does not end for the reason that failed the saga.
	Compensation func(ctx context.Context, c *Call[In]) error
	// CompensationTx is a compensation in the store's database.
	CompensationTx func(ctx context.Context, tx Tx, c *Call[In]) error
	// Final marks a step without a compensation: its effect cannot be reverted. Put it behind the steps that may fail.
	Final bool

	// Concurrent makes the step begin together with the step before it.
	Concurrent bool
	// Timeout bounds one try of the action or of the compensation. Default 30 s. In the database the receiver's TxTimeout
	// bounds it too.
	Timeout time.Duration
	// Retry is when a step that failed is tried again, and after how many retries the saga is compensated or, in a
	// compensation, waits for an operator: by default 10; negative is never.
	Retry consume.RetryPolicy
}

// Call is one try of an action or a compensation.
type Call[In any] struct {
	// Saga is the saga's ID, Step the step's name, and Input the saga's input.
	Saga, Step string
	Input      In
	// Compensating reports whether this is the compensation.
	Compensating bool
	// Key is the same at every try of this action; the compensation has a different one. Send it with requests.
	Key string
	// Try is the number of this try. Tries that ended with their process are not counted.
	Try int

	outputs func(step string) (json.RawMessage, bool)
}

// Branch returns the name of the call for a participant: see [Branch.Headers].
func (c *Call[In]) Branch() Branch {
	return Branch{Saga: c.Saga, Step: c.Step, Compensating: c.Compensating}
}

// Output decodes the result of an earlier step, or in a compensation the result of the action, into a pointer. It
// reports whether the result is known: an action that has not answered has no output.
func (c *Call[In]) Output(step string, into any) (bool, error) {
	raw, ok := c.outputs(step)
	if !ok {
		return false, nil
	}
	if err := json.Unmarshal(raw, into); err != nil {
		return false, fmt.Errorf("saga: the output of the step %q does not fit: %w", step, err)
	}
	return true, nil
}

// Definition is the steps of a kind of saga, in one version.
type Definition[In, Tx any] struct {
	name    string
	version int
	shape   string
	steps   []Step[In, Tx]
}

const (
	maxStep        = 100
	maxSteps       = 100
	defaultTimeout = 30 * time.Second
	defaultRetries = 10
)

// Define returns the definition of a kind of saga. A saga is run to its end by the version that it began with: raise
// the version when the steps change, and give runners both versions until no saga of the old one is left. The error
// wraps [everonce.ErrInvalidArgument].
func Define[In, Tx any](name string, version int, steps ...Step[In, Tx]) (*Definition[In, Tx], error) {
	bad := func(format string, args ...any) (*Definition[In, Tx], error) {
		return nil, fmt.Errorf("saga: %w: %s", everonce.ErrInvalidArgument, fmt.Sprintf(format, args...))
	}
	switch {
	case name == "" || len(name) > sqlqueue.MaxText || strings.ContainsAny(name, "@\x00") || !sqlqueue.Stores(name):
		return bad("the definition's name is empty, longer than %d bytes, has an @, or is not UTF-8 without NUL", sqlqueue.MaxText)
	case version < 1:
		return bad("the version of %q is %d; the first is 1", name, version)
	case len(steps) == 0 || len(steps) > maxSteps:
		return bad("%q has %d steps; 1 to %d are possible", name, len(steps), maxSteps)
	}
	d := &Definition[In, Tx]{name: name, version: version, steps: slices.Clone(steps)}
	names := make(map[string]bool)
	shape := sha256.New()
	for i := range d.steps {
		s := &d.steps[i]
		switch {
		case s.Name == "" || len(s.Name) > maxStep || !sqlqueue.Stores(s.Name) || names[s.Name]:
			return bad("the step name %q of %q is empty, used twice, or longer than %d bytes", s.Name, name, maxStep)
		case strings.HasPrefix(s.Name, undo("")):
			return bad("the step %q of %q has a name that is reserved for compensations", s.Name, name)
		case (s.Action == nil) == (s.ActionTx == nil):
			return bad("the step %q of %q needs one of Action and ActionTx", s.Name, name)
		case s.Compensation != nil && s.CompensationTx != nil:
			return bad("the step %q of %q has two compensations", s.Name, name)
		case s.Final != (s.Compensation == nil && s.CompensationTx == nil):
			return bad("the step %q of %q needs one of Compensation, CompensationTx and Final", s.Name, name)
		case s.Timeout < 0 || s.Retry.Min < 0 || s.Retry.Max < 0:
			return bad("the step %q of %q has a negative time", s.Name, name)
		case i == 0 && s.Concurrent:
			return bad("the first step of %q is concurrent, but has no step before it", name)
		}
		names[s.Name] = true
		if s.Timeout == 0 {
			s.Timeout = defaultTimeout
		}
		s.Retry = s.Retry.WithDefaults(defaultRetries)
		fmt.Fprintf(shape, "%q %v %v %v\n", s.Name, s.Concurrent, s.Final, s.ActionTx != nil)
	}
	d.shape = hex.EncodeToString(shape.Sum(nil)[:8])
	return d, nil
}

// lane returns the definition's name and version, by which runners claim sagas.
func (d *Definition[In, Tx]) lane() string { return laneOf(d.name, d.version) }

func laneOf(name string, version int) string { return name + "@" + strconv.Itoa(version) }

// versionOf returns the version in a lane, which Start wrote.
func versionOf(lane string) int {
	_, version, _ := strings.Cut(lane, "@")
	n, _ := strconv.Atoi(version) //nolint:errcheck // 0 for a lane that Start did not write
	return n
}
