package dynamostore_test

import (
	"encoding/json"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/everonce/everonce/driver"
	"github.com/everonce/everonce/internal/testing/golden"
	"github.com/everonce/everonce/store/dynamostore"
)

// This version reads what earlier ones have left in a table, and writes what they read in other processes.
func TestFormat(t *testing.T) {
	t.Parallel()
	golden.Test(t, "dynamo", func(t *testing.T, _ int) golden.Harness {
		i := items{t, newTable(t)}
		store := newTxStore(t, i.table)
		return golden.Harness{Store: store, Load: i.load, Dump: i.dump, Transact: golden.InTx(store)}
	})
}

// items are what a store keeps. A record is an item: its attributes in the order of their names, each as DynamoDB's
// JSON has it.
type items struct {
	testing.TB
	table string
}

func (i items) load(_ driver.RecordID, stored string) {
	i.Helper()
	var parsed map[string]any
	noErr(i, json.Unmarshal([]byte(stored), &parsed))
	_, err := client(i).PutItem(i.Context(), &dynamodb.PutItemInput{TableName: &i.table, Item: i.attributes(parsed)})
	noErr(i, err)
}

func (i items) dump(id driver.RecordID, times golden.Times) string {
	i.Helper()
	got, err := client(i).GetItem(i.Context(), &dynamodb.GetItemInput{TableName: &i.table, Key: dynamostore.Key(id), ConsistentRead: aws.Bool(true)})
	noErr(i, err)
	if v, has := got.Item["ttl"]; has { // it follows from the purge's time
		purge := time.UnixMicro(int64(atoi(got.Item["pu"])))
		if want := purge.Add(time.Hour).Unix(); int64(atoi(v)) != want {
			i.Errorf("the TTL is %d, want %d", atoi(v), want)
		}
	}
	text, err := json.MarshalIndent(i.tree(got.Item, times), "", " ")
	noErr(i, err)
	return string(text) + "\n"
}

// stamps are the attributes that are times, or, as a token, begin as one.
var stamps = []string{"c", "cl", "u", "lu", "cp", "ru", "pu", "pc", "tk", "b", "e"}

// tree writes attributes as JSON, with the times that the files have.
func (i items) tree(attributes map[string]types.AttributeValue, times golden.Times) map[string]any {
	i.Helper()
	all := make(map[string]any)
	for name, v := range attributes {
		switch v := v.(type) {
		case *types.AttributeValueMemberS:
			all[name] = map[string]any{"S": v.Value}
		case *types.AttributeValueMemberB:
			all[name] = map[string]any{"B": v.Value}
		case *types.AttributeValueMemberBOOL:
			all[name] = map[string]any{"BOOL": v.Value}
		case *types.AttributeValueMemberN:
			n := int64(atoi(v))
			if slices.Contains(stamps, name) {
				n = times(n, 0, 0)
			}
			if name == "ttl" {
				n = time.UnixMicro(times(int64(atoi(attributes["pu"])), 0, 0)).Add(time.Hour).Unix()
			}
			all[name] = map[string]any{"N": strconv.FormatInt(n, 10)}
		case *types.AttributeValueMemberL:
			var list []any
			for _, step := range v.Value {
				list = append(list, map[string]any{"M": i.tree(step.(*types.AttributeValueMemberM).Value, times)})
			}
			all[name] = map[string]any{"L": list}
		default:
			i.Fatalf("%s is a %T", name, v)
		}
	}
	return all
}

// attributes reads what tree wrote.
func (i items) attributes(tree map[string]any) map[string]types.AttributeValue {
	i.Helper()
	all := make(map[string]types.AttributeValue)
	for name, typed := range tree {
		for kind, v := range typed.(map[string]any) {
			switch kind {
			case "S":
				all[name] = &types.AttributeValueMemberS{Value: v.(string)}
			case "N":
				all[name] = &types.AttributeValueMemberN{Value: v.(string)}
			case "BOOL":
				all[name] = &types.AttributeValueMemberBOOL{Value: v.(bool)}
			case "B":
				var b []byte
				noErr(i, json.Unmarshal([]byte(strconv.Quote(v.(string))), &b))
				all[name] = &types.AttributeValueMemberB{Value: b}
			case "L":
				list := new(types.AttributeValueMemberL)
				for _, step := range v.([]any) {
					list.Value = append(list.Value, &types.AttributeValueMemberM{Value: i.attributes(step.(map[string]any)["M"].(map[string]any))})
				}
				all[name] = list
			}
		}
	}
	return all
}

// So it is with what the store keeps once.
func TestFormatOfTheSettings(t *testing.T) {
	t.Parallel()
	table := newTable(t)
	golden.Identity(t, newStore(t, table))
	got, err := client(t).GetItem(t.Context(), &dynamodb.GetItemInput{TableName: &table, Key: dynamostore.Once(), ConsistentRead: aws.Bool(true)})
	noErr(t, err)
	check, _ := got.Item["identity"].(*types.AttributeValueMemberB)
	if check == nil || string(check.Value) != string(golden.Check[:]) || atoi(got.Item["layout"]) != 1 || len(got.Item) != 4 {
		t.Errorf("the settings are %v", got.Item)
	}
}
