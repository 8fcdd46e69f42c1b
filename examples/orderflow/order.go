package main

import (
	"fmt"
	"math/rand/v2"
)

// Order is what a customer orders: the input of its saga.
type Order struct {
	ID       string `json:"id"`
	Item     string `json:"item"`
	Quantity int64  `json:"quantity"`
	Cents    int64  `json:"cents"`
	Card     string `json:"card"`
	Country  string `json:"country"`
}

// The faults of some orders.
const (
	declinedCard = "declined" // payment refuses it
	slowCard     = "slow"     // payment takes it, but so late that no caller waits for the answer
	nowhere      = "nowhere"  // shipping refuses it
)

var items = []string{"book", "lamp", "chair"}

// ordersOf makes so many orders. About one of eight has each of the faults.
func ordersOf(n int, seed uint64) []Order {
	random := rand.New(rand.NewPCG(seed, 1)) //nolint:gosec // orders
	orders := make([]Order, n)
	for i := range orders {
		o := &orders[i]
		*o = Order{
			ID: fmt.Sprintf("order-%d", i+1), Item: items[random.IntN(len(items))], Quantity: 1 + random.Int64N(3),
			Cents: 100 + random.Int64N(10_000), Card: "good", Country: "here",
		}
		switch random.IntN(8) {
		case 0:
			o.Card = declinedCard
		case 1:
			o.Card = slowCard
		case 2:
			o.Country = nowhere
		}
	}
	return orders
}
