package producer_test

import (
	"fmt"

	"github.com/everonce/everonce/session/producer"
)

// A batch arrives twice, and is appended once. A later run fences the earlier one.
func ExampleTable_Apply() {
	var log []string
	table := producer.NewTable(0)
	begin := func(name string) producer.Grant {
		grant := table.Next(name)
		if err := table.Admit(name, grant); err != nil { // once it is durable
			fmt.Println(err)
		}
		return grant
	}
	send := func(g producer.Grant, first int32, records ...string) {
		answer, err := table.Apply("orders", &producer.Batch{Producer: g.Producer, Epoch: g.Epoch, First: first, Count: len(records)}, func() (int64, error) {
			log = append(log, records...)
			return int64(len(log) - len(records)), nil
		})
		fmt.Println("position:", answer.Position, "duplicate:", answer.Duplicate, "refused:", answer.Err.Or(), err)
	}

	grant := begin("billing")
	send(grant, 0, "a", "b")
	send(grant, 0, "a", "b") // the answer was lost
	send(grant, 3, "d")
	later := begin("billing")
	send(grant, 2, "c")
	send(later, 0, "c")
	fmt.Println(log)
	// Output:
	// position: 0 duplicate: false refused: <nil> <nil>
	// position: 0 duplicate: true refused: <nil> <nil>
	// position: 0 duplicate: false refused: producer: records are missing before the batch <nil>
	// position: 0 duplicate: false refused: producer: a later run of the producer has taken over <nil>
	// position: 2 duplicate: false refused: <nil> <nil>
	// [a b c]
}

// A state is kept beside the log, in a column say.
func ExampleParseState() {
	var state producer.State
	batch := producer.Batch{Producer: 7, First: 0, Count: 3}
	if answer := state.Check(&batch); answer.Err == 0 && !answer.Duplicate {
		state.Append(&batch, 100, producer.DefaultWindow)
	}
	column := state.AppendTo(nil)

	again, err := producer.ParseState(column)
	answer := again.Check(&batch)
	fmt.Println(answer.Duplicate, answer.Position, err)
	// Output: true 100 <nil>
}
