package main

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"os"
	"sync"
	"time"
)

// Expected is a message that is known beforehand.
type Expected struct {
	size int
	came int64 // ns of the clock, when it had been checked; 0 before
}

// expectations are those of one node, by SHA-256 in hexadecimal.
type expectations struct {
	lock    sync.Mutex
	digests map[string]*Expected
}

func (e *expectations) add(digest string, size int) {
	e.lock.Lock()
	defer e.lock.Unlock()
	if e.digests == nil {
		e.digests = map[string]*Expected{}
	}
	e.digests[digest] = &Expected{size: size}
}

// take notes a message if it is one that is expected.
func (e *expectations) take(data []byte) bool {
	e.lock.Lock()
	defer e.lock.Unlock()
	for _, expected := range e.digests {
		if expected.size == len(data) {
			return e.takeHashed(data)
		}
	}
	return false
}

func (e *expectations) takeHashed(data []byte) bool {
	digest := sha256.Sum256(data)
	expected, ok := e.digests[hex.EncodeToString(digest[:])]
	if ok && expected.came == 0 {
		expected.came = time.Now().UnixNano()
	}
	return ok
}

func (e *expectations) time(digest string) int64 {
	e.lock.Lock()
	defer e.lock.Unlock()
	if expected, ok := e.digests[digest]; ok {
		return expected.came
	}
	return 0
}

// arrived returns when each node got an expected message, once all subscribed ones have it.
func (h *Hall) arrived(command BenchCommand) []int64 {
	limit := time.Now().Add(duration(command.Timeout))
	for {
		complete := true
		times := make([]int64, len(h.nodes))
		for index, node := range h.nodes {
			times[index] = node.expects.time(command.SHA256)
			if times[index] == 0 && node.subscribed() {
				complete = false
			}
		}
		if complete || time.Now().After(limit) {
			return times
		}
		time.Sleep(lookBetween)
	}
}

// publishFile offers the content of a file to the library as one message.
func (n *BenchNode) publishFile(command BenchCommand) (fields, error) {
	topic, err := n.join(command.Topic)
	if err != nil {
		return nil, err
	}
	data, err := os.ReadFile(command.Path)
	if err != nil {
		return nil, err
	}
	taken, start := 0, time.Now()
	if topic.Publish(context.Background(), data) == nil {
		taken = 1
	}
	return fields{"taken": taken, "began": start.UnixNano(), "ended": time.Now().UnixNano()}, nil
}
