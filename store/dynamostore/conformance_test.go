package dynamostore_test

import (
	"strconv"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/everonce/everonce/driver"
	"github.com/everonce/everonce/driver/drivertest"
	"github.com/everonce/everonce/store/dynamostore"
)

func capabilities() drivertest.Capabilities {
	return drivertest.Capabilities{
		Lister: true, ScopeDeleter: true, HealthChecker: true, WriteChecker: true, IdentityKeeper: true,
		MaxResult: dynamostore.MaxResult, RefusesLarger: true,
	}
}

func num(n int) types.AttributeValue { return &types.AttributeValueMemberN{Value: strconv.Itoa(n)} }

func atoi(v types.AttributeValue) int {
	n, _ := strconv.Atoi(v.(*types.AttributeValueMemberN).Value) //nolint:errcheck // a test's own number
	return n
}

// TestConformance holds a store to the suite. Store and peer are two stores on the same table. The suite moves no
// clock: it is the processes' own.
func TestConformance(t *testing.T) {
	drivertest.RunWithBugs(t, func(t testing.TB) drivertest.Harness { return harness(t) }, capabilities())
}

func harness(t testing.TB) drivertest.Harness {
	t.Helper()
	table := newTable(t)
	set := func(name string, value types.AttributeValue) func(driver.RecordID) {
		return func(id driver.RecordID) { t.Helper(); alter(t, table, id, name, value) }
	}
	setStep := func(id driver.RecordID, step, name string, value types.AttributeValue) {
		t.Helper()
		got, err := client(t).GetItem(t.Context(), &dynamodb.GetItemInput{TableName: &table, Key: dynamostore.Key(id), ConsistentRead: aws.Bool(true)})
		noErr(t, err)
		steps, _ := got.Item["s"].(*types.AttributeValueMemberL)
		for _, s := range steps.Value {
			if m := s.(*types.AttributeValueMemberM).Value; m["nm"].(*types.AttributeValueMemberS).Value == step {
				m[name] = value
				alter(t, table, id, "s", steps)
				return
			}
		}
		t.Fatalf("there is no step %q", step)
	}
	return drivertest.Harness{
		Store: newStore(t, table), Peer: newStore(t, table), Newer: set("v", num(driver.FormatVersion+1)),
		Damages: map[string]func(driver.RecordID){
			"its state": set("st", num(77)), "its nonce": set("n", &types.AttributeValueMemberB{Value: []byte{1}}),
			"the type of its owner": set("o", num(7)), "an earlier time": set("cl", num(-1)),
		},
		DamagedLease: set("lu", num(-1)),
		UnreadStep: func(id driver.RecordID, step string) {
			setStep(id, step, "st", &types.AttributeValueMemberS{Value: "done"}) // of another type
		},
		UnreadResult: func(id driver.RecordID, step string, kind int) { setStep(id, step, "rk", num(kind)) },
	}
}
