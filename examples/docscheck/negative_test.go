package docscheck

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net/http"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/sqs"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/consume"
	"github.com/everonce/everonce/consume/natsonce"
	"github.com/everonce/everonce/consume/rabbitonce"
	"github.com/everonce/everonce/consume/sqsonce"
	"github.com/everonce/everonce/examples/internal/docs"
	"github.com/everonce/everonce/httponce"
	"github.com/everonce/everonce/httponce/client"
	"github.com/everonce/everonce/janitor"
	"github.com/everonce/everonce/outbox/webhook"
	"github.com/everonce/everonce/session"
	"github.com/everonce/everonce/session/memsession"
	"github.com/everonce/everonce/session/producer/sqlproducer"
	"github.com/everonce/everonce/session/sqlsession"
	"github.com/everonce/everonce/store/dynamostore"
	"github.com/everonce/everonce/store/memstore"
	"github.com/everonce/everonce/store/redisstore"
	"github.com/everonce/everonce/store/sqlitestore"
)

// taking makes what takes one kind of options take any.
func taking[O any](take func(O) error) func(any) error {
	return func(options any) error {
		given, ok := options.(O)
		if !ok {
			return fmt.Errorf("a %T instead", options)
		}
		return take(given)
	}
}

// TestNegativeValues gives each number of the tables of docs/reference/options.md a negative value, to whatever takes
// the options: it is refused, unless the number's row says what it means.
func TestNegativeValues(t *testing.T) {
	store, err := sqlitestore.Open(t.Context(), t.TempDir()+"/test.db", nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = store.Close() }) //nolint:errcheck // nothing is in it
	recv, err := everonce.NewReceiver(memstore.New(nil), everonce.Refuse, nil)
	if err != nil {
		t.Fatal(err)
	}
	tx, err := everonce.NewTxReceiver[*sql.Tx](store, nil)
	if err != nil {
		t.Fatal(err)
	}
	over, end := context.WithCancel(t.Context())
	end()
	var consumer *consume.Consumer
	natural := func(s *consume.NaturalSpec[T]) (err error) {
		s.Consumer, s.Key = "billing", consume.ProducerID()
		s.Handle = func(context.Context, *consume.Message, T) (bool, error) { return true, nil }
		consumer, err = consume.NewNatural(*s)
		return err
	}
	dial := func(q rabbitonce.Queue, o rabbitonce.Options) error {
		q.Name = "orders"
		if err := natural(&consume.NaturalSpec[T]{}); err != nil {
			return err
		}
		_, err := rabbitonce.Dial(t.Context(), "amqp://localhost:1/", q, consumer, &o)
		return err
	}
	dialNATS := func(q natsonce.Queue, o natsonce.Options) error {
		q.Stream = "ORDERS"
		if err := natural(&consume.NaturalSpec[T]{}); err != nil {
			return err
		}
		_, err := natsonce.Dial(t.Context(), "nats://127.0.0.1:1", q, consumer, &o)
		return err
	}
	middleware := func(o httponce.Options) error {
		_, err := httponce.Middleware(recv, func(*http.Request) (string, error) { return "a", nil }, &o)
		return err
	}
	takers := map[string]func(options any) error{
		"everonce.Options": taking(func(o everonce.Options) error {
			_, err := everonce.NewReceiver(memstore.New(nil), everonce.Refuse, &o)
			return err
		}),
		"janitor.Options": taking(func(o janitor.Options) error {
			_, err := janitor.New(store, &o)
			return err
		}),
		"sqlitestore.Options": taking(func(o sqlitestore.Options) error { return o.Validate("payments.db") }),
		"dynamostore.Options": taking(func(o dynamostore.Options) error { return o.Validate() }),
		"redisstore.Options":  taking(func(o redisstore.Options) error { return o.Validate() }),
		"httponce.Options":    taking(middleware),
		"httponce.Route":      taking(func(r httponce.Route) error { return middleware(httponce.Options{Route: r}) }),
		"client.Options": taking(func(o client.Options) error {
			if _, err := client.NewTransport(nil, &o); err != nil { // a plain error: the client does not import the engine
				return everonce.ErrInvalidArgument
			}
			return nil
		}),
		"consume.Spec": taking(func(s consume.Spec[T]) error {
			s.Consumer, s.Key, s.Handle = "billing", consume.ProducerID(), func(context.Context, *consume.Message, T) error { return nil }
			_, err := consume.New(recv, s)
			return err
		}),
		"consume.TxSpec": taking(func(given consume.TxSpec[T, Tx]) error {
			s := consume.TxSpec[T, *sql.Tx]{Consumer: "billing", Key: consume.ProducerID(), MaxBody: given.MaxBody, Window: given.Window}
			s.Handle = func(context.Context, *sql.Tx, *consume.Message, T) error { return nil }
			_, err := consume.NewTx(tx, s)
			return err
		}),
		"consume.NaturalSpec": taking(func(s consume.NaturalSpec[T]) error { return natural(&s) }),
		"consume.RetryPolicy": taking(func(b consume.RetryPolicy) error { return natural(&consume.NaturalSpec[T]{Retry: b}) }),
		"consume.Workers": taking(func(w consume.Workers) error {
			dialed := dial(rabbitonce.Queue{}, rabbitonce.Options{Workers: w})
			served := consumer.Serve(over, nil, &w)
			if errors.Is(served, everonce.ErrInvalidArgument) != errors.Is(dialed, everonce.ErrInvalidArgument) {
				t.Errorf("Serve and Dial judge otherwise: %v, %v", served, dialed)
			}
			return served
		}),
		"natsonce.Queue":     taking(func(q natsonce.Queue) error { return dialNATS(q, natsonce.Options{}) }),
		"natsonce.Options":   taking(func(o natsonce.Options) error { return dialNATS(natsonce.Queue{}, o) }),
		"rabbitonce.Queue":   taking(func(q rabbitonce.Queue) error { return dial(q, rabbitonce.Options{}) }),
		"rabbitonce.Options": taking(func(o rabbitonce.Options) error { return dial(rabbitonce.Queue{}, o) }),
		"rabbitonce.PublisherOptions": taking(func(o rabbitonce.PublisherOptions) error {
			_, err := rabbitonce.NewPublisher("amqp://localhost:1/", &o)
			return err
		}),
		"sqsonce.Options": taking(func(o sqsonce.Options) error {
			if err := natural(&consume.NaturalSpec[T]{}); err != nil {
				return err
			}
			_, err := sqsonce.Dial(t.Context(), queuesOfNobody{}, sqsonce.Queue{Name: "https://sqs/1/orders", DeadLetters: "https://sqs/1/dead"}, consumer, &o)
			return err
		}),
		"memsession.Options": taking(func(o memsession.Options) error {
			_, err := memsession.New(T{}, session.Config{Lease: time.Minute}, &o)
			return err
		}),
		"sqlsession.Options": taking(func(o sqlsession.Options) error {
			_, err := sqlsession.New(tx, session.Config{Lease: time.Minute}, &o)
			return err
		}),
		"sqlproducer.Options": taking(func(o sqlproducer.Options) error {
			_, err := sqlproducer.New(tx, &o)
			return err
		}),
		"webhook.Options": taking(func(o webhook.Options) error {
			_, err := webhook.New(webhook.Endpoint{URL: "https://example.com/"}, &o)
			return err
		}),
	}
	numbers := 0
	for _, table := range optionTables {
		take := takers[table.heading]
		for _, row := range docs.Table(t, "docs/reference/options.md", table.heading) {
			options := reflect.New(reflect.TypeOf(table.options)).Elem()
			field := options.FieldByName(code(row.Cells[0]))
			if field.IsValid() && field.Type() == reflect.TypeFor[consume.Backoff]() {
				field = field.FieldByName("Max")
			}
			if table.heading == "memstore.Options" || !field.IsValid() || !field.CanInt() || field.Type().PkgPath() != "" && field.Type() != reflect.TypeFor[time.Duration]() {
				continue // memstore.New returns no error
			}
			if take == nil {
				t.Errorf("options.md:%d: nothing here takes a %s", row.Line, table.heading)
				break
			}
			numbers++
			field.SetInt(-int64(time.Hour))
			meant := strings.Contains(strings.ToLower(row.Cells[2]+row.Cells[3]), "negative")
			if err := take(options.Interface()); errors.Is(err, everonce.ErrInvalidArgument) == meant {
				t.Errorf("options.md:%d: a negative %s: %v; its row says what that means: %v", row.Line, row.Cells[0], err, meant)
			}
		}
	}
	if numbers < 40 {
		t.Errorf("only %d numbers were found", numbers)
	}
}

// queuesOfNobody has every queue.
type queuesOfNobody struct{ sqsonce.Client }

func (queuesOfNobody) GetQueueAttributes(context.Context, *sqs.GetQueueAttributesInput, ...func(*sqs.Options)) (*sqs.GetQueueAttributesOutput, error) {
	return &sqs.GetQueueAttributesOutput{}, nil
}
