package main

import (
	"bytes"
	"fmt"
	"strconv"
	"strings"
	"sync"

	pubsub "github.com/libp2p/go-libp2p-pubsub"
	pb "github.com/libp2p/go-libp2p-pubsub/pb"
	"github.com/libp2p/go-libp2p/core/peer"
	"github.com/libp2p/go-libp2p/core/protocol"
)

const longestHead = 100 // bytes; tags are short

// Tally counts the messages of one tag that reached the application.
type Tally struct {
	Distinct int `json:"distinct"`
	Repeated int `json:"repeated"`
	Wrong    int `json:"wrong"`
	indices  map[int]bool
}

// Control counts what control messages said.
type Control struct {
	Graft     int `json:"graft"`
	Prune     int `json:"prune"`
	IHave     int `json:"ihave"`
	IWant     int `json:"iwant"`
	IDontWant int `json:"idontwant"`
}

func (c *Control) add(control *pb.ControlMessage) {
	c.Graft += len(control.GetGraft())
	c.Prune += len(control.GetPrune())
	for _, each := range control.GetIhave() {
		c.IHave += len(each.GetMessageIDs())
	}
	for _, each := range control.GetIwant() {
		c.IWant += len(each.GetMessageIDs())
	}
	for _, each := range control.GetIdontwant() {
		c.IDontWant += len(each.GetMessageIDs())
	}
}

// Record is what has been seen: it is the raw tracer of the pubsub.
type Record struct {
	lock       sync.Mutex
	topic      string
	tallies    map[string]*Tally
	sent, got  Control
	duplicates int
	rejected   int
	protocols  map[peer.ID]protocol.ID
	mesh       map[peer.ID]bool
	scores     map[peer.ID]float64
	lowest     map[peer.ID]float64
}

var _ pubsub.RawTracer = (*Record)(nil)

func newRecord(topic string) *Record {
	return &Record{
		topic:     topic,
		tallies:   map[string]*Tally{},
		protocols: map[peer.ID]protocol.ID{},
		mesh:      map[peer.ID]bool{},
		scores:    map[peer.ID]float64{},
		lowest:    map[peer.ID]float64{},
	}
}

func (r *Record) status(connected, subscribed []peer.ID) fields {
	r.lock.Lock()
	defer r.lock.Unlock()
	peers := fields{}
	for _, id := range connected {
		known := fields{
			"protocol":   nil,
			"subscribed": false,
			"mesh":       r.mesh[id],
			"score":      r.scores[id],
			"lowest":     r.lowest[id],
		}
		if name, ok := r.protocols[id]; ok {
			known["protocol"] = name
		}
		peers[id.String()] = known
	}
	for _, id := range subscribed {
		if known, ok := peers[id.String()]; ok {
			known.(fields)["subscribed"] = true
		}
	}
	tallies := map[string]Tally{}
	for tag, tally := range r.tallies {
		tallies[tag] = *tally
	}
	return fields{
		"received":   tallies,
		"peers":      peers,
		"sent":       r.sent,
		"got":        r.got,
		"duplicates": r.duplicates,
		"rejected":   r.rejected,
	}
}

// received takes note of a message that reached the application.
func (r *Record) received(data []byte) {
	r.lock.Lock()
	defer r.lock.Unlock()
	head := strings.SplitN(string(data[:min(len(data), longestHead)]), ":", 3)
	if r.tallies[head[0]] == nil {
		r.tallies[head[0]] = &Tally{indices: map[int]bool{}}
	}
	tally := r.tallies[head[0]]
	index := -1
	if len(head) == 3 {
		if number, err := strconv.Atoi(head[1]); err == nil {
			index = number
		}
	}
	switch {
	case index < 0 || !bytes.Equal(data, payload(head[0], index, len(data))):
		tally.Wrong++
	case tally.indices[index]:
		tally.Repeated++
	default:
		tally.indices[index] = true
		tally.Distinct++
	}
}

// payload is message number index of a tag.
func payload(tag string, index, size int) []byte {
	data := make([]byte, size)
	for position := copy(data, fmt.Sprintf("%s:%d:", tag, index)); position < size; position++ {
		data[position] = byte(7 * position)
	}
	return data
}

// scored takes the scores that the pubsub has of its peers.
func (r *Record) scored(scores map[peer.ID]float64) {
	r.lock.Lock()
	defer r.lock.Unlock()
	for id, score := range scores {
		if lowest, ok := r.lowest[id]; !ok || score < lowest {
			r.lowest[id] = score
		}
		r.scores[id] = score
	}
}

// frameReceived sees every frame before the pubsub does, and who sent it.
func (r *Record) frameReceived(from peer.ID, frame *pubsub.RPC) error {
	control := frame.GetControl()
	r.lock.Lock()
	r.got.add(control)
	r.lock.Unlock()
	for range control.GetGraft() {
		say(fields{"event": "graft", "peer": from.String()})
	}
	for _, prune := range control.GetPrune() {
		backoff := any(nil)
		if prune.Backoff != nil {
			backoff = *prune.Backoff
		}
		say(fields{"event": "prune", "peer": from.String(), "backoff": backoff})
	}
	return nil
}

func (r *Record) SendRPC(frame *pubsub.RPC, _ peer.ID) {
	r.lock.Lock()
	defer r.lock.Unlock()
	r.sent.add(frame.GetControl())
}

func (r *Record) AddPeer(id peer.ID, name protocol.ID) {
	r.lock.Lock()
	defer r.lock.Unlock()
	r.protocols[id] = name
}

func (r *Record) RemovePeer(id peer.ID) {
	r.lock.Lock()
	defer r.lock.Unlock()
	delete(r.protocols, id)
	delete(r.mesh, id) // it is not traced as pruned
}

func (r *Record) Graft(id peer.ID, _ string) {
	r.lock.Lock()
	defer r.lock.Unlock()
	r.mesh[id] = true
}

func (r *Record) Prune(id peer.ID, _ string) {
	r.lock.Lock()
	defer r.lock.Unlock()
	delete(r.mesh, id)
}

func (r *Record) DuplicateMessage(*pubsub.Message) {
	r.lock.Lock()
	defer r.lock.Unlock()
	r.duplicates++
}

func (r *Record) RejectMessage(_ *pubsub.Message, reason string) {
	r.lock.Lock()
	defer r.lock.Unlock()
	if reason != pubsub.RejectSelfOrigin { // an echo of an own message is a duplicate
		r.rejected++
	} else {
		r.duplicates++
	}
}

func (r *Record) Join(string)                          {}
func (r *Record) Leave(string)                         {}
func (r *Record) ValidateMessage(*pubsub.Message)      {}
func (r *Record) DeliverMessage(*pubsub.Message)       {}
func (r *Record) ThrottlePeer(peer.ID)                 {}
func (r *Record) RecvRPC(*pubsub.RPC)                  {}
func (r *Record) DropRPC(*pubsub.RPC, peer.ID)         {}
func (r *Record) UndeliverableMessage(*pubsub.Message) {}
