package patterntest

import (
	"context"
	"encoding/binary"
	"hash/crc32"
	"io"
	"net"
	"slices"
	"sync"
	"testing"

	"github.com/twmb/franz-go/pkg/kbin"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// produced is a batch that a producer has sent, and what the broker answered; or a grant.
type produced struct {
	// Grant is the name that an ID and an epoch were granted to, empty for a batch.
	Grant    string `json:"grant,omitempty"`
	Producer int64  `json:"producer"` // counted from 1
	Epoch    int16  `json:"epoch"`

	Partition int32  `json:"partition"`
	First     int32  `json:"first"`
	Count     int32  `json:"count,omitempty"`
	Error     string `json:"error,omitempty"`
	Offset    int64  `json:"offset"`         // the broker's
	Lost      bool   `json:"lost,omitempty"` // the producer did not get the answer
}

// wire is between producers and the broker. It records what they say of producing, read by franz-go's own decoders, in
// the order of the broker's answers, and cuts answers off: the request has arrived, and the connection ends.
type wire struct {
	t  testing.TB
	mu sync.Mutex
	// cut is asked for each answer of a batch.
	cut    func(kmsg.Response) bool
	events []produced
	ids    map[int64]int64
	sent   []*kmsg.ProduceRequest // that were answered, with their versions
}

func (w *wire) dial(ctx context.Context, network, address string) (net.Conn, error) {
	c, err := (&net.Dialer{}).DialContext(ctx, network, address)
	if err != nil {
		return nil, err
	}
	return &wireConn{Conn: c, w: w}, nil
}

// wireConn is a connection of a producer. One goroutine writes, and one reads.
type wireConn struct {
	net.Conn
	w       *wire
	out, in []byte
	mu      sync.Mutex
	waiting []kmsg.Request // whose answers are to come, in order
}

func (c *wireConn) Write(b []byte) (int, error) {
	c.out = append(c.out, b...)
	for len(c.out) >= 4 {
		n := 4 + int(binary.BigEndian.Uint32(c.out))
		if len(c.out) < n {
			break
		}
		c.request(c.out[4:n])
		c.out = c.out[n:]
	}
	return c.Conn.Write(b)
}

// request reads a request's header and body.
func (c *wireConn) request(frame []byte) {
	r := kbin.Reader{Src: frame}
	req := kmsg.RequestForKey(r.Int16())
	req.SetVersion(r.Int16())
	_, _ = r.Int32(), r.NullableString() // correlation and client
	if req.IsFlexible() {
		kmsg.SkipTags(&r)
	}
	if err := req.ReadFrom(slices.Clone(r.Src)); err != nil {
		c.w.t.Errorf("a request that cannot be read: %v", err)
	}
	c.mu.Lock()
	c.waiting = append(c.waiting, req)
	c.mu.Unlock()
}

func (c *wireConn) Read(b []byte) (int, error) {
	if len(c.in) == 0 {
		if err := c.answer(false); err != nil {
			return 0, err
		}
	}
	n := copy(b, c.in)
	c.in = c.in[n:]
	return n, nil
}

// answer takes the next answer from the broker. If it is cut, so are all that are under way, once the broker has given
// them.
func (c *wireConn) answer(lost bool) error {
	head := make([]byte, 4)
	if _, err := io.ReadFull(c.Conn, head); err != nil {
		return err
	}
	frame := make([]byte, binary.BigEndian.Uint32(head))
	if _, err := io.ReadFull(c.Conn, frame); err != nil {
		return err
	}
	c.mu.Lock()
	req := c.waiting[0]
	c.waiting = c.waiting[1:]
	c.mu.Unlock()
	if c.w.record(req, frame, lost) && !lost {
		for {
			c.mu.Lock()
			more := len(c.waiting) > 0
			c.mu.Unlock()
			if !more {
				break
			}
			if err := c.answer(true); err != nil {
				return err
			}
		}
		c.Close()
		return net.ErrClosed
	}
	c.in = slices.Concat(head, frame)
	return nil
}

// record notes what a request and its answer say, and reports whether the answer is to be lost.
func (w *wire) record(req kmsg.Request, frame []byte, lost bool) bool {
	if !slices.Contains([]kmsg.Key{kmsg.Produce, kmsg.InitProducerID, kmsg.EndTxn}, kmsg.Key(req.Key())) {
		return false
	}
	r := kbin.Reader{Src: frame}
	r.Int32() // correlation
	if req.IsFlexible() {
		kmsg.SkipTags(&r)
	}
	resp := req.ResponseKind()
	if err := resp.ReadFrom(slices.Clone(r.Src)); err != nil {
		w.t.Errorf("an answer that cannot be read: %v", err)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	switch req := req.(type) {
	case *kmsg.InitProducerIDRequest:
		resp := resp.(*kmsg.InitProducerIDResponse)
		if req.TransactionalID != nil && resp.ErrorCode == 0 {
			w.events = append(w.events, produced{Grant: *req.TransactionalID, Producer: w.id(resp.ProducerID), Epoch: resp.ProducerEpoch})
		}
	case *kmsg.EndTxnRequest: // which grants an epoch since KIP-890
		resp := resp.(*kmsg.EndTxnResponse)
		if resp.ErrorCode == 0 && resp.Version >= 5 {
			w.events = append(w.events, produced{Grant: req.TransactionalID, Producer: w.id(resp.ProducerID), Epoch: resp.ProducerEpoch})
		}
	case *kmsg.ProduceRequest:
		if !lost && w.cut != nil {
			lost = w.cut(resp)
		}
		w.sent = append(w.sent, req)
		answers := map[int32]kmsg.ProduceResponseTopicPartition{}
		for _, topic := range resp.(*kmsg.ProduceResponse).Topics {
			for _, p := range topic.Partitions {
				answers[p.Partition] = p
			}
		}
		for _, topic := range req.Topics {
			for _, p := range topic.Partitions {
				refused := kerr.TypedErrorForCode(answers[p.Partition].ErrorCode)
				if refused != nil && refused.Retriable { // a new topic has no leader yet: the batch was not checked
					continue
				}
				b := batchIn(w.t, p.Records)
				e := produced{Producer: w.id(b.ProducerID), Epoch: b.ProducerEpoch, Partition: p.Partition, First: b.FirstSequence, Count: b.NumRecords, Offset: answers[p.Partition].BaseOffset, Lost: lost}
				if refused != nil {
					e.Error, e.Offset = refused.Message, 0
				}
				w.events = append(w.events, e)
			}
		}
		return lost
	}
	return false
}

func (w *wire) id(broker int64) int64 {
	if w.ids[broker] == 0 {
		w.ids[broker] = int64(len(w.ids)) + 1
	}
	return w.ids[broker]
}

func batchIn(t testing.TB, records []byte) (b kmsg.RecordBatch) {
	t.Helper()
	if err := b.ReadFrom(records); err != nil {
		t.Errorf("a batch that cannot be read: %v", err)
	}
	return b
}

// changed is a copy of a request with other sequence numbers.
func changed(t testing.TB, req *kmsg.ProduceRequest, by int32) *kmsg.ProduceRequest {
	t.Helper()
	var other kmsg.ProduceRequest
	other.SetVersion(req.GetVersion())
	if err := other.ReadFrom(req.AppendTo(nil)); err != nil {
		t.Fatal(err)
	}
	for i := range other.Topics {
		for j := range other.Topics[i].Partitions {
			p := &other.Topics[i].Partitions[j]
			b := batchIn(t, p.Records)
			b.FirstSequence += by
			const summed = 21                                                                          // the checksum covers the bytes from here
			b.CRC = int32(crc32.Checksum(b.AppendTo(nil)[summed:], crc32.MakeTable(crc32.Castagnoli))) //nolint:gosec // its bits
			p.Records = b.AppendTo(nil)
		}
	}
	return &other
}
