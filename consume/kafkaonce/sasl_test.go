package kafkaonce_test

import (
	"crypto/x509"
	"errors"
	"log/slog"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/sasl/scram"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/consume/kafkaonce"
)

// users returns the address of the broker's listener for users.
func (b *bench) users() string {
	b.t.Helper()
	configs, err := b.admin.DescribeBrokerConfigs(b.ctx, 1)
	if err != nil {
		b.t.Fatal(err)
	}
	for _, c := range configs[0].Configs {
		_, users, ok := strings.Cut(c.MaybeValue(), "USERS://")
		if c.Key == "advertised.listeners" && ok {
			return users
		}
	}
	b.t.Fatal("the broker has no listener USERS: start the Kafka of scripts/services")
	return ""
}

// password sets the password of the bench's user, whose name is the group's.
func (b *bench) password(password string) {
	b.t.Helper()
	for _, m := range []kadm.ScramMechanism{kadm.ScramSha256, kadm.ScramSha512} { // both at once are refused as duplicates
		got, err := b.admin.AlterUserSCRAMs(b.ctx, nil, []kadm.UpsertSCRAM{{User: b.group, Mechanism: m, Iterations: 4096, Password: password}})
		if err := errors.Join(err, got.Error()); err != nil {
			b.t.Fatal(err)
		}
	}
	user, err := kgo.NewClient(kgo.SeedBrokers(b.users()), kgo.SASL(scram.Auth{User: b.group, Pass: password}.AsSha512Mechanism()))
	if err != nil {
		b.t.Fatal(err)
	}
	defer user.Close()
	for user.Ping(b.ctx) != nil { // the broker answers before it knows the password
		if b.ctx.Err() != nil {
			b.t.Fatal("the broker does not take the new password")
		}
	}
}

// Each mechanism of a URL works with a broker that asks for a user, and refuses a wrong password without quoting it.
func TestUsers(t *testing.T) {
	t.Parallel()
	b := newBench(t, 1)
	at := b.users()
	b.password("right")
	for _, c := range []struct{ user, right, mechanism string }{
		{"plain", "plain-secret", ""},
		{"plain", "plain-secret", "?mechanism=plain"},
		{b.group, "right", "?mechanism=scram-sha-256"},
		{b.group, "right", "?mechanism=scram-sha-512"},
	} {
		t.Run(c.mechanism, func(t *testing.T) {
			t.Parallel()
			consumer, err := kafkaonce.Dial(b.ctx, "kafka://"+c.user+":"+c.right+"@"+at+c.mechanism, b.topic, newHandler(t), nil)
			if err != nil {
				t.Fatal(err)
			}
			consumer.Close()
			_, err = kafkaonce.Dial(b.ctx, "kafka://"+c.user+":wrong-secret@"+at+c.mechanism, b.topic, newHandler(t), nil)
			if !errors.Is(err, kafkaonce.ErrUnreachable) || strings.Contains(err.Error(), "secret") {
				t.Errorf("with a wrong password: %v", err)
			}
		})
	}
}

// A consumer whose password ends goes on when it is right again, and loses nothing.
func TestCredentialsThatEnd(t *testing.T) {
	t.Parallel()
	b := newBench(t, 1)
	b.password("right")
	opts := short()
	log := make(logged, 10_000)
	opts.Workers.Log = slog.New(slog.NewTextHandler(log, nil))
	plain := b.url
	b.url = "kafka://" + b.group + ":right@" + b.users() + "?mechanism=scram-sha-512"
	r := b.run(specOf(nothing), opts)
	b.url = plain
	b.send(record("m-1", "a"))
	r.wants(everonce.Executed)
	b.password("another")
	for !strings.Contains(await(t, log, "a complaint"), "SASL_AUTHENTICATION_FAILED") {
	}
	b.send(record("m-2", "a"))
	b.password("right")
	for await(t, r.decisions, "a decision").Outcome != everonce.Executed { // m-1 may come again before m-2: its offset was not committed
	}
}

// kafkas:// speaks TLS, and only with a server whose certificate it can verify.
func TestTLSIsVerified(t *testing.T) {
	t.Parallel()
	server := httptest.NewUnstartedServer(nil)
	server.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, 0)
	server.StartTLS()
	defer server.Close()
	_, err := kafkaonce.Dial(t.Context(), "kafkas://"+server.Listener.Addr().String(), kafkaonce.Topic{Name: "orders"}, newHandler(t), nil)
	var unknown x509.UnknownAuthorityError
	if !errors.Is(err, kafkaonce.ErrUnreachable) || !errors.As(err, &unknown) {
		t.Errorf("an unknown certificate: %v", err)
	}
}
