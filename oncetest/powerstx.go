package oncetest

import "github.com/everonce/everonce"

// withTxPowers is withPowers for a store that has transactions.
func withTxPowers[Tx any](s everonce.TxStore[Tx], p powers) everonce.TxStore[Tx] {
	switch l, d, h, k := p.lister, p.deleter, p.health, p.keeper; p.index() {
	case 0b0001:
		return &struct {
			everonce.TxStore[Tx]
			lister
		}{s, l}
	case 0b0010:
		return &struct {
			everonce.TxStore[Tx]
			deleter
		}{s, d}
	case 0b0011:
		return &struct {
			everonce.TxStore[Tx]
			lister
			deleter
		}{s, l, d}
	case 0b0100:
		return &struct {
			everonce.TxStore[Tx]
			health
		}{s, h}
	case 0b0101:
		return &struct {
			everonce.TxStore[Tx]
			lister
			health
		}{s, l, h}
	case 0b0110:
		return &struct {
			everonce.TxStore[Tx]
			deleter
			health
		}{s, d, h}
	case 0b0111:
		return &struct {
			everonce.TxStore[Tx]
			lister
			deleter
			health
		}{s, l, d, h}
	case 0b1000:
		return &struct {
			everonce.TxStore[Tx]
			keeper
		}{s, k}
	case 0b1001:
		return &struct {
			everonce.TxStore[Tx]
			lister
			keeper
		}{s, l, k}
	case 0b1010:
		return &struct {
			everonce.TxStore[Tx]
			deleter
			keeper
		}{s, d, k}
	case 0b1011:
		return &struct {
			everonce.TxStore[Tx]
			lister
			deleter
			keeper
		}{s, l, d, k}
	case 0b1100:
		return &struct {
			everonce.TxStore[Tx]
			health
			keeper
		}{s, h, k}
	case 0b1101:
		return &struct {
			everonce.TxStore[Tx]
			lister
			health
			keeper
		}{s, l, h, k}
	case 0b1110:
		return &struct {
			everonce.TxStore[Tx]
			deleter
			health
			keeper
		}{s, d, h, k}
	case 0b1111:
		return &struct {
			everonce.TxStore[Tx]
			lister
			deleter
			health
			keeper
		}{s, l, d, h, k}
	}
	return s
}
