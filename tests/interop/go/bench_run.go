package main

import (
	"encoding/binary"
	"fmt"
	"sync"
	"time"
)

// Layout of a message: see bench/PROTOCOL.md.
const (
	indexAt     = 4
	stampAt     = 8
	fillAt      = 16
	tailLength  = 4
	smallest    = 24
	largestRun  = 1 << 26               // messages; a guess: an index beyond it is a broken one
	lookBetween = 10 * time.Millisecond // between looks at what a wait is for
)

// benchPayloads builds the messages of a run, except for the time of publication.
func benchPayloads(run uint32, count, size int) ([][]byte, error) {
	if size < smallest {
		return nil, fmt.Errorf("size is %d, at least %d is needed", size, smallest)
	}
	if count < 0 || count > largestRun {
		return nil, fmt.Errorf("count is %d, at most %d is possible", count, largestRun)
	}
	pattern := make([]byte, size)
	for position := range pattern {
		pattern[position] = byte(7 * position)
	}
	payloads := make([][]byte, count)
	for index := range payloads {
		data := make([]byte, size)
		copy(data[fillAt:], pattern[fillAt:])
		binary.BigEndian.PutUint32(data, run)
		binary.BigEndian.PutUint32(data[indexAt:], uint32(index))
		binary.BigEndian.PutUint32(data[size-tailLength:], uint32(index))
		payloads[index] = data
	}
	return payloads, nil
}

func stamp(payload []byte, now int64) {
	binary.BigEndian.PutUint64(payload[stampAt:], uint64(now))
}

// RunTally is what one node's application got of a run.
type RunTally struct {
	size      int      // of every message
	marked    []uint64 // a bit for each index
	count     int
	repeated  int
	wrong     int
	last      int64   // ns of the clock, when the last different message came; 0 before any
	latencies []int64 // ns, of each different message
}

// tallies are those of one node. All its subscriptions write to them.
type tallies struct {
	lock sync.Mutex
	runs map[uint32]*RunTally
}

// take notes a message that came at a time (ns of the clock).
func (t *tallies) take(data []byte, now int64) {
	run := uint32(0) // where a message is too short to name one
	if len(data) >= indexAt {
		run = binary.BigEndian.Uint32(data)
	}
	t.lock.Lock()
	defer t.lock.Unlock()
	tally := t.runs[run]
	if tally == nil {
		tally = &RunTally{size: len(data)}
		t.runs[run] = tally
	}
	tally.take(data, now)
}

func (t *RunTally) take(data []byte, now int64) {
	if len(data) < smallest || len(data) != t.size {
		t.wrong++
		return
	}
	index := binary.BigEndian.Uint32(data[indexAt:])
	if index >= largestRun || binary.BigEndian.Uint32(data[len(data)-tailLength:]) != index {
		t.wrong++
		return
	}
	word, bit := int(index/64), uint64(1)<<(index%64)
	if word >= len(t.marked) {
		t.marked = append(t.marked, make([]uint64, max(word+1-len(t.marked), len(t.marked)))...)
	}
	if t.marked[word]&bit != 0 {
		t.repeated++
		return
	}
	t.marked[word] |= bit
	t.count++
	t.last = now
	t.latencies = append(t.latencies, now-int64(binary.BigEndian.Uint64(data[stampAt:])))
}

func (t *tallies) forget(run uint32) {
	t.lock.Lock()
	defer t.lock.Unlock()
	delete(t.runs, run)
}

// counted returns the numbers of a run, without its latencies.
func (t *tallies) counted(run uint32) RunTally {
	t.lock.Lock()
	defer t.lock.Unlock()
	tally, ok := t.runs[run]
	if !ok {
		return RunTally{}
	}
	return RunTally{
		count: tally.count, repeated: tally.repeated, wrong: tally.wrong, last: tally.last,
	}
}

// received counts a run at all nodes.
func (h *Hall) received(run uint32) fields {
	counts := make([]int, len(h.nodes))
	var all RunTally
	for index, node := range h.nodes {
		tally := node.tallies.counted(run)
		counts[index] = tally.count
		all.repeated += tally.repeated
		all.wrong += tally.wrong
		all.last = max(all.last, tally.last)
	}
	return fields{
		"counts": counts, "repeated": all.repeated, "wrong": all.wrong, "last": all.last,
	}
}

// latencies gathers those of a run at all nodes.
func (h *Hall) latencies(run uint32) []int64 {
	gathered := []int64{}
	for _, node := range h.nodes {
		node.tallies.lock.Lock()
		if tally, ok := node.tallies.runs[run]; ok {
			gathered = append(gathered, tally.latencies...)
		}
		node.tallies.lock.Unlock()
	}
	return gathered
}

// wait returns when every subscribed node has the messages, or none came for a while.
func (h *Hall) wait(command BenchCommand) {
	came, quiet := 0, time.Now()
	for {
		complete, sum := true, 0
		for _, node := range h.nodes {
			count := node.tallies.counted(command.Run).count
			sum += count
			if count < command.Count && node.subscribed() {
				complete = false
			}
		}
		if sum != came {
			came, quiet = sum, time.Now()
		}
		if complete || time.Since(quiet) >= duration(command.Silence) {
			return
		}
		time.Sleep(lookBetween)
	}
}
