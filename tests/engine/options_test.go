package engine

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"math"
	"os"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/driver"
	"github.com/everonce/everonce/store/memstore"
)

func TestOptionsAreValidated(t *testing.T) {
	for _, c := range []struct {
		name string
		opts everonce.Options
		says string
	}{
		{"lease negative", everonce.Options{Lease: -1}, "Options.Lease is negative"},
		{"lease too short", everonce.Options{Lease: time.Microsecond}, "the least is 1ms"},
		{"retention negative", everonce.Options{Lifetime: everonce.Lifetime{Retention: -1}}, "Lifetime"},
		{"remember negative", everonce.Options{Lifetime: everonce.Lifetime{Retention: 1, Remember: -1}}, "Lifetime"},
		{"remember without retention", everonce.Options{Lifetime: everonce.Lifetime{Remember: 1}}, "positive Retention"},
		{"wait negative", everonce.Options{Wait: -1}, "Options.Wait is negative"},
		{"retry-after negative", everonce.Options{RetryAfter: -1}, "Options.RetryAfter is negative"},
		{"largest result negative", everonce.Options{MaxResult: -1}, "Options.MaxResult is negative"},
		{"store timeout negative", everonce.Options{StoreTimeout: -1}, "Options.StoreTimeout is negative"},
		{"completion limit negative", everonce.Options{CompletionTimeout: -1}, "Options.CompletionTimeout is negative"},
		{"transaction timeout negative", everonce.Options{TxTimeout: -1}, "Options.TxTimeout is negative"},
		{"a lifetime without end", everonce.Options{Lifetime: everonce.Lifetime{Retention: 1 << 62, Remember: 1 << 62}}, "Lifetime"},
		{"a lifetime too long", everonce.Options{Lifetime: everonce.Lifetime{Retention: 80000 * 24 * time.Hour}}, "at most 36500 days each (1920000h0m0s, 0s)"},
		{"lease too long", everonce.Options{Lease: math.MaxInt64}, "the most 36500 days"},
		{"a nil pointer as codec", everonce.Options{Codec: (*ownCodec)(nil)}, "Options.Codec is a nil *engine.ownCodec"},
		{"a nil pointer as observer", everonce.Options{Observer: (*recorder)(nil)}, "Options.Observer is a nil *engine.recorder"},
		{"a codec's name too long", everonce.Options{Codec: longName{everonce.JSON()}}, "codec"},
		{"owner too long", everonce.Options{Owner: strings.Repeat("o", 129)}, "Options.Owner has 129 bytes"},
		{"secret too short", everonce.Options{IdentitySecret: []byte("fifteen bytes..")}, "Options.IdentitySecret has 15 bytes"},
		{"secret empty, as of a variable that is not set", everonce.Options{IdentitySecret: []byte("")}, "Options.IdentitySecret has 0 bytes"},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := everonce.NewReceiver(memstore.New(nil), everonce.Refuse, &c.opts)
			checkErr(t, err, everonce.ErrInvalidArgument)
			if !strings.Contains(err.Error(), c.says) {
				t.Errorf("%q, want that it says %q", err, c.says)
			}
			_, err = everonce.NewTxReceiver(newMapStore(), &c.opts)
			checkErr(t, err, everonce.ErrInvalidArgument)
		})
	}
	// Negative retries mean "never", and an empty struct means the defaults.
	for _, o := range []*everonce.Options{nil, {}, {TxRetries: -1}, {Lease: time.Millisecond}, {Owner: strings.Repeat("o", 128)}} {
		if _, err := everonce.NewReceiver(memstore.New(nil), everonce.Refuse, o); err != nil {
			t.Errorf("%+v: %v", o, err)
		}
	}
}

// ownCodec is a codec that a nil pointer may stand for.
type ownCodec struct{ name string }

func (c *ownCodec) Name() string                    { return c.name }
func (c *ownCodec) Marshal(any) ([]byte, error)     { return []byte(c.name), nil }
func (c *ownCodec) Unmarshal(_ []byte, _ any) error { return errWork }

// Durations longer than any wait, and sizes larger than any value, are accepted and mean no bound.
func TestTheLargestOptionsWork(t *testing.T) {
	const endless = time.Duration(math.MaxInt64)
	for name, o := range map[string]everonce.Options{
		"Wait": {Wait: endless}, "RetryAfter": {RetryAfter: endless}, "StoreTimeout": {StoreTimeout: endless}, "CompletionTimeout": {CompletionTimeout: endless},
		"TxTimeout": {TxTimeout: endless}, "MaxResult": {MaxResult: math.MaxInt}, "TxRetries": {TxRetries: math.MaxInt},
		"all": {
			Wait: endless, RetryAfter: endless, StoreTimeout: endless, CompletionTimeout: endless, TxTimeout: endless, MaxResult: math.MaxInt, TxRetries: math.MaxInt,
			Lease: longest, Lifetime: everonce.Lifetime{Retention: longest, Remember: longest},
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s, r, x := newStepTx(t, &o)
				s.on("Complete", 1, refuse(errNet)) // what is repeated stays within the bounds, too
				do(t, r, keyOf("x"), func(ctx context.Context, a *everonce.Attempt) (string, error) {
					if _, err := everonce.Step(ctx, a, "mail", stepReturns("", nil)); err != nil {
						return "", err
					}
					_, err := everonce.StepTx(ctx, a, x, "charge", adds)
					return "done", err
				}, everonce.Executed, nil)
				do(t, r, keyOf("x"), never(t), everonce.Replayed, nil)
				s.on("Begin", s.count("Begin")+1, refuse(errDeadlock))
				transact(t, x, s, keyOf("t"), adds, everonce.Executed, nil)
				checkEqual(t, "balance", s.row("balance"), 60)

				running, release, ended := make(chan struct{}), make(chan struct{}), make(chan struct{})
				go func() {
					defer close(ended)
					_, _ = everonce.Do(context.Background(), r, keyOf("y"), func(context.Context, *everonce.Attempt) (string, error) {
						close(running)
						<-release
						return "late", nil
					})
				}()
				<-running
				time.AfterFunc(time.Hour, func() { close(release) })
				if o.Wait == 0 {
					do(t, r, keyOf("y"), never(t), everonce.InProgress, everonce.ErrInProgress)
				} else {
					res, _ := do(t, r, keyOf("y"), never(t), everonce.Replayed, nil)
					checkEqual(t, "waited for", res.Value, "late")
				}
				<-ended
			})
		})
	}
}

func TestDefaults(t *testing.T) {
	s := newFaultStore()
	r := newReceiver(t, s, everonce.Reexecute, nil)
	do(t, r, keyOf("x"), returns("", nil), everonce.Executed, nil)
	claim := requests[driver.ClaimRequest](&s.faults, "Claim")[0]
	host, err := os.Hostname()
	checkErr(t, err, nil)
	checkEqual(t, "Owner", claim.Owner, host+":"+strconv.Itoa(os.Getpid()))
	checkEqual(t, "Lease", claim.Lease, 30*time.Second)
	checkEqual(t, "Lifetime", claim.Lifetime, everonce.ForWeb())
	checkEqual(t, "Codec", s.record(t, keyOf("x")).Result.Codec, "json")

	// Later changes by the application change nothing.
	secret := bytes.Repeat([]byte("s"), 16)
	opts := &everonce.Options{IdentitySecret: secret, Lease: time.Minute}
	r = newReceiver(t, memstore.New(nil), everonce.Refuse, opts)
	before := r.RecordID(keyOf("x"))
	secret[0]++
	opts.IdentitySecret = nil
	checkEqual(t, "RecordID after the caller's secret was overwritten", r.RecordID(keyOf("x")), before)
}

func TestPolicyIsRequired(t *testing.T) {
	for _, p := range []everonce.Policy{0, 4, 200} {
		r, err := everonce.NewReceiver(memstore.New(nil), p, nil)
		checkErr(t, err, everonce.ErrInvalidArgument)
		if r != nil || !strings.Contains(err.Error(), "Reexecute, Refuse or Reconcile") {
			t.Errorf("policy %d: %v, %v", p, r, err)
		}
	}
}

// longName is a codec whose name no store has room for.
type longName struct{ everonce.Codec }

func (longName) Name() string { return strings.Repeat("n", 200) }

// sliceTx is a transaction that cannot be compared.
type sliceTx []int

type sliceStore struct{ everonce.Store }

func (*sliceStore) Begin(context.Context, driver.BeginRequest) (driver.TxHandle[sliceTx], driver.ClaimResult, error) {
	return nil, driver.ClaimResult{}, errNet
}

func (*sliceStore) Join(context.Context, sliceTx) (driver.TxHandle[sliceTx], error) {
	return nil, errNet
}
func (*sliceStore) ClassifyTx(error) driver.TxErrorClass { return driver.TxErrorOther }

func TestTransactionMustBeComparable(t *testing.T) {
	x, err := everonce.NewTxReceiver[sliceTx](&sliceStore{memstore.New(nil)}, nil)
	checkErr(t, err, nil)
	res, err := everonce.DoTx(context.Background(), sliceTx{1}, x, keyOf("x"), withinNever(t))
	checkOutcome(t, res, err, everonce.Invalid, everonce.ErrInvalidArgument)
}

// uncomparableStore is a store that cannot be compared.
type uncomparableStore struct {
	everonce.Store
	_ []int
}

// keptNowhere is a store without any power.
type keptNowhere struct{ everonce.Store }

func TestStoreMustBeOne(t *testing.T) {
	for name, s := range map[string]everonce.Store{"nil": nil, "typed nil": (*memstore.Store)(nil), "not comparable": uncomparableStore{}} {
		_, err := everonce.NewReceiver(s, everonce.Refuse, nil)
		checkErr(t, err, everonce.ErrInvalidArgument)
		if err != nil && !strings.Contains(err.Error(), "store") {
			t.Errorf("%s: %v", name, err)
		}
	}
	_, err := everonce.NewTxReceiver[*mapTx](nil, nil)
	checkErr(t, err, everonce.ErrInvalidArgument)
	_, err = everonce.NewTxReceiver[*mapTx]((*mapStore)(nil), nil)
	checkErr(t, err, everonce.ErrInvalidArgument)
	_, err = everonce.NewReceiver(&keptNowhere{memstore.New(nil)}, everonce.Refuse, &everonce.Options{IdentitySecret: make([]byte, 16)})
	checkErr(t, err, everonce.ErrInvalidArgument)
	if !strings.Contains(err.Error(), "IdentityKeeper") {
		t.Errorf("a secret without a keeper: %v", err)
	}
}

func TestNilArguments(t *testing.T) {
	ctx := context.Background()
	r := newReceiver(t, memstore.New(nil), everonce.Refuse, nil)
	tx := newMapStore()
	x := newTxReceiver(t, tx, nil)
	var noFunc func(context.Context) (string, error)
	var noTxFunc func(context.Context, *mapTx) (string, error)
	txFunc := func(context.Context, *mapTx) (string, error) { return "", errors.New("must not run") }
	ctxFunc := func(context.Context) (string, error) { return "", errors.New("must not run") }

	for name, call := range map[string]func() (everonce.Result[string], error){
		"Do without receiver": func() (everonce.Result[string], error) {
			return everonce.Do(ctx, nil, keyOf("x"), never(t))
		},
		"Do without work": func() (everonce.Result[string], error) {
			return everonce.Do[string](ctx, r, keyOf("x"), nil)
		},
		"Do with a nil option": func() (everonce.Result[string], error) {
			return everonce.Do(ctx, r, keyOf("x"), never(t), nil)
		},
		"Do with a nil codec": func() (everonce.Result[string], error) {
			return everonce.Do(ctx, r, keyOf("x"), never(t), everonce.WithCodec(nil))
		},
		"Transact without receiver": func() (everonce.Result[string], error) {
			return everonce.Transact(ctx, nil, keyOf("x"), txFunc)
		},
		"Transact without work": func() (everonce.Result[string], error) {
			return everonce.Transact(ctx, x, keyOf("x"), noTxFunc)
		},
		"DoTx without receiver": func() (everonce.Result[string], error) {
			return everonce.DoTx(ctx, tx.begin(), nil, keyOf("x"), ctxFunc)
		},
		"DoTx without transaction": func() (everonce.Result[string], error) {
			return everonce.DoTx(ctx, nil, x, keyOf("x"), ctxFunc)
		},
		"DoTx without work": func() (everonce.Result[string], error) {
			return everonce.DoTx(ctx, tx.begin(), x, keyOf("x"), noFunc)
		},
		"Lookup without receiver": func() (everonce.Result[string], error) {
			return everonce.Lookup[string](ctx, (*everonce.Receiver)(nil), keyOf("x"))
		},
		"Lookup with nothing": func() (everonce.Result[string], error) {
			return everonce.Lookup[string](ctx, nil, keyOf("x"))
		},
	} {
		t.Run(name, func(t *testing.T) {
			res, err := call()
			checkOutcome(t, res, err, everonce.Invalid, everonce.ErrInvalidArgument)
		})
	}
	_, err := everonce.Step(ctx, nil, "s", noFunc)
	checkErr(t, err, everonce.ErrInvalidArgument)
	checkErr(t, x.InTx(ctx, nil), everonce.ErrInvalidArgument)
	checkErr(t, (*everonce.TxReceiver[*mapTx])(nil).InTx(ctx, func(context.Context, *mapTx) error { return nil }), everonce.ErrInvalidArgument)
	checkErr(t, everonce.Settle(ctx, nil, keyOf("x").RecordID(), everonce.Settlement{Verdict: everonce.SettleDone}), everonce.ErrInvalidArgument)
	do(t, r, keyOf("y"), func(ctx context.Context, a *everonce.Attempt) (string, error) {
		_, err := everonce.Step(ctx, a, "s", noFunc)
		checkErr(t, err, everonce.ErrInvalidArgument)
		_, err = everonce.StepTx(ctx, a, x, "s", noTxFunc)
		checkErr(t, err, everonce.ErrInvalidArgument)
		_, err = everonce.StepTx(ctx, a, nil, "s", txFunc)
		checkErr(t, err, everonce.ErrInvalidArgument)
		_, err = everonce.Step(ctx, a, "s", ctxFunc, nil)
		checkErr(t, err, everonce.ErrInvalidArgument)
		return "", nil
	}, everonce.Executed, nil)
}

func TestCallOptionsAreValidated(t *testing.T) {
	r := newReceiver(t, memstore.New(nil), everonce.Refuse, nil)
	for name, o := range map[string]everonce.CallOption{
		"policy":                              everonce.WithPolicy(0),
		"wait":                                everonce.WithWait(-1),
		"lease":                               everonce.WithLease(0),
		"negative lease":                      everonce.WithLease(-1),
		"lifetime":                            everonce.WithLifetime(everonce.Lifetime{}),
		"optimistic":                          everonce.Optimistic(),
		"nil codec":                           everonce.WithCodec(nil),
		"a nil pointer as codec":              everonce.WithCodec((*ownCodec)(nil)),
		"codec's name":                        everonce.WithCodec(longName{everonce.JSON()}),
		"summary's type":                      everonce.WithSummary(func(int) []byte { return nil }),
		"reconcile's type":                    everonce.WithReconcile(func(context.Context, everonce.Abandoned) (v everonce.Verdict[int], _ error) { return v, nil }),
		"policy reconcile without a question": everonce.WithPolicy(everonce.Reconcile),
	} {
		t.Run(name, func(t *testing.T) {
			do(t, r, keyOf(name), never(t), everonce.Invalid, everonce.ErrInvalidArgument, o)
		})
	}
	checkEqual(t, "a nil summary is empty", summaryOf(t, everonce.WithSummary[string](nil)), "")
}

func summaryOf(t *testing.T, o everonce.CallOption) string {
	t.Helper()
	s := memstore.New(nil)
	do(t, newReceiver(t, s, everonce.Refuse, nil), keyOf("x"), returns("v", nil), everonce.Executed, nil, o)
	return string(recordIn(t, s, keyOf("x")).Result.Summary)
}

// An option that a call has no use for is refused, and named.
func TestOptionsOfOtherCallsAreRefused(t *testing.T) {
	ctx := context.Background()
	options := map[string]everonce.CallOption{
		"a Fingerprint":  everonce.FingerprintOf(1),
		"WithPolicy":     everonce.WithPolicy(everonce.Refuse),
		"WithReconcile":  answer(everonce.StillUnknown[string](), nil),
		"WithWait":       everonce.WithWait(time.Second),
		"WithLease":      everonce.WithLease(time.Minute),
		"WithLifetime":   everonce.WithLifetime(everonce.ForQueue()),
		"EffectsInSteps": everonce.EffectsInSteps(),
		"WithSummary":    everonce.WithSummary(func(string) []byte { return nil }),
		"Optimistic":     everonce.Optimistic(),
		"WithCodec":      everonce.WithCodec(everonce.JSON()),
		"Unobserved":     everonce.Unobserved(),
	}
	s := newMapStore()
	r, x := newReceiver(t, s, everonce.Refuse, nil), newTxReceiver(t, s, nil)
	inAttempt := func(call func(context.Context, *everonce.Attempt) error) error {
		var err error
		do(t, r, keyOf(driver.NewNonce().String()), func(ctx context.Context, a *everonce.Attempt) (string, error) {
			err = call(ctx, a)
			return "", nil
		}, everonce.Executed, nil)
		return err
	}
	n := 0
	next := func() everonce.Key { n++; return keyOf(strconv.Itoa(n)) }
	ok := func(context.Context) (string, error) { return "", nil }
	okTx := func(context.Context, *mapTx) (string, error) { return "", nil }
	for _, c := range []struct {
		name  string
		takes string
		call  func(o everonce.CallOption) error
	}{
		{"Do", "a Fingerprint, WithPolicy, WithReconcile, WithWait, WithLease, WithLifetime, EffectsInSteps, WithSummary, WithCodec, Unobserved", func(o everonce.CallOption) error {
			_, err := everonce.Do(ctx, r, next(), returns("", nil), o)
			return err
		}},
		{"Transact", "a Fingerprint, WithWait, WithLifetime, WithSummary, Optimistic, WithCodec, Unobserved", func(o everonce.CallOption) error {
			_, err := everonce.Transact(ctx, x, next(), okTx, o)
			return err
		}},
		{"TransactBatch", "WithLifetime, WithSummary, WithCodec, Unobserved", func(o everonce.CallOption) error {
			_, err := everonce.TransactBatch(ctx, x, []everonce.BatchItem{{Key: next()}}, everonce.EachItem(func(context.Context, *mapTx, int) (string, error) { return "", nil }), o)
			return err
		}},
		{"DoTx", "a Fingerprint, WithLifetime, WithSummary, WithCodec, Unobserved", func(o everonce.CallOption) error {
			_, err := everonce.DoTx(ctx, s.begin(), x, next(), ok, o)
			return err
		}},
		{"Step", "WithPolicy, WithReconcile, WithCodec", func(o everonce.CallOption) error {
			return inAttempt(func(ctx context.Context, a *everonce.Attempt) error {
				_, err := everonce.Step(ctx, a, "s", ok, o)
				return err
			})
		}},
		{"StepTx", "WithCodec", func(o everonce.CallOption) error {
			return inAttempt(func(ctx context.Context, a *everonce.Attempt) error {
				_, err := everonce.StepTx(ctx, a, x, "s", okTx, o)
				return err
			})
		}},
		{"Lookup", "a Fingerprint, WithPolicy, EffectsInSteps, WithCodec", func(o everonce.CallOption) error {
			_, err := everonce.Lookup[string](ctx, r, next(), o)
			if errors.Is(err, everonce.ErrNotFound) {
				return nil
			}
			return err
		}},
	} {
		taken := map[string]bool{}
		for _, name := range strings.Split(c.takes, ", ") {
			if options[name] == nil {
				t.Fatalf("%s: no option %q", c.name, name)
			}
			taken[name] = true
		}
		for name, o := range options {
			err := c.call(o)
			if taken[name] {
				if err != nil {
					t.Errorf("%s(%s): %v", c.name, name, err)
				}
				continue
			}
			checkErr(t, err, everonce.ErrInvalidArgument)
			if err != nil && !strings.Contains(err.Error(), name) {
				t.Errorf("%s(%s): %q does not name it", c.name, name, err)
			}
		}
	}
}

func TestIdentitySecretIsBoundToTheStore(t *testing.T) {
	s := memstore.New(nil)
	secret := func(c string) *everonce.Options {
		return &everonce.Options{IdentitySecret: bytes.Repeat([]byte(c), 16)}
	}
	first := newReceiver(t, s, everonce.Refuse, secret("a"))
	checkErr(t, first.Ready(context.Background()), nil)
	do(t, first, keyOf("x"), returns("v", nil), everonce.Executed, nil)
	for _, o := range []*everonce.Options{secret("b"), nil} {
		r := newReceiver(t, s, everonce.Refuse, o)
		err := r.Ready(context.Background())
		checkErr(t, err, driver.ErrIdentity)
		checkErr(t, err, everonce.ErrStore)
		do(t, r, keyOf("x"), never(t), everonce.StoreFailed, driver.ErrIdentity)
		_, err = everonce.Lookup[string](context.Background(), r, keyOf("x"))
		checkErr(t, err, driver.ErrIdentity)
		err = r.Settle(context.Background(), keyOf("x"), everonce.Settlement{Verdict: everonce.SettleDone})
		checkErr(t, err, driver.ErrIdentity)
	}
	same := newReceiver(t, s, everonce.Refuse, secret("a"))
	do(t, same, keyOf("x"), never(t), everonce.Replayed, nil)
}

func TestLogObserverWithoutLoggerIsTheDefault(t *testing.T) {
	var buf bytes.Buffer
	old := slog.Default()
	slog.SetDefault(slog.New(slog.NewTextHandler(&buf, nil)))
	defer slog.SetDefault(old)
	everonce.LogObserver(nil).End(context.Background(), everonce.Observation{Outcome: everonce.NotRecorded})
	if !strings.Contains(buf.String(), "not_recorded") {
		t.Errorf("the default logger has %q", buf.String())
	}
}

func TestIdentityIsBoundInEveryMode(t *testing.T) {
	s := newMapStore()
	ctx := context.Background()
	checkErr(t, newTxReceiver(t, s, &everonce.Options{IdentitySecret: make([]byte, 16)}).Ready(ctx), nil)
	x := newTxReceiver(t, s, nil)
	res, err := everonce.Transact(ctx, x, keyOf("x"), adds)
	checkErr(t, err, driver.ErrIdentity)
	checkEqual(t, "outcome", res.Outcome, everonce.StoreFailed)
	err = x.InTx(ctx, func(context.Context, *mapTx) error { return errors.New("must not run") })
	checkErr(t, err, driver.ErrIdentity)
	if strings.Contains(err.Error(), "key") {
		t.Errorf("%q mentions a key although the call has none", err)
	}
}

func TestSummaryOfAnotherTypeInATransaction(t *testing.T) {
	s := newMapStore()
	x := newTxReceiver(t, s, nil)
	wrong := everonce.WithSummary(func(string) []byte { return nil })
	transact(t, x, s, keyOf("x"), txNever(t), everonce.Invalid, everonce.ErrInvalidArgument, wrong)
	tx := s.begin()
	doTx(t, x, tx, keyOf("x"), withinNever(t), everonce.Invalid, everonce.ErrInvalidArgument, wrong)
	tx.Rollback()
}
