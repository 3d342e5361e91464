package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"runtime"
	"runtime/debug"
	"sync"
	"time"

	"github.com/libp2p/go-libp2p"
	pubsub "github.com/libp2p/go-libp2p-pubsub"
	"github.com/libp2p/go-libp2p/core/crypto"
	"github.com/libp2p/go-libp2p/core/host"
	"github.com/libp2p/go-libp2p/core/network"
	"github.com/libp2p/go-libp2p/p2p/net/connmgr"
	"github.com/libp2p/go-libp2p/p2p/net/swarm"
)

const (
	benchBacklog   = 65_536      // messages; a guess: with it 20,000 at once reached each of 5 nodes
	leastBacklog   = 1024        // messages; a guess: what comes while a receiver waits for a core
	outboundFrames = 1 << 20     // frames; a guess, more than a run has messages
	patience       = time.Minute // for a connection: a guess, the other side may be 200 nodes busy with handshakes
	longestCommand = 16 << 20    // bytes; many topics
)

// BenchSettings is the second argument of the process: see "Start" in bench/PROTOCOL.md.
type BenchSettings struct {
	Nodes      int    `json:"nodes"`
	Policy     string `json:"policy"`
	Heartbeats bool   `json:"heartbeats"`
	Listen     string `json:"listen"`
}

// BenchCommand is one line of standard input.
type BenchCommand struct {
	ID      int      `json:"id"`
	Do      string   `json:"do"`
	Node    int      `json:"node"`
	Address string   `json:"address"`
	Topic   string   `json:"topic"`
	Topics  []string `json:"topics"`
	Run     uint32   `json:"run"`
	Count   int      `json:"count"`
	Size    int      `json:"size"`
	Rate    float64  `json:"rate"`
	Silence float64  `json:"silence"`
	Path    string   `json:"path"`
	SHA256  string   `json:"sha256"`
	Timeout float64  `json:"timeout"`
}

// bench speaks bench/PROTOCOL.md until the end of standard input.
func bench(argument string) {
	settings := BenchSettings{Listen: loopback}
	must(json.Unmarshal([]byte(argument), &settings))
	hall := &Hall{heartbeats: newHeartbeatLog()}
	listening := []fields{}
	for index := range settings.Nodes {
		var beats *HeartbeatLog
		if settings.Heartbeats && index == 0 {
			beats = hall.heartbeats
		}
		node, err := newBenchNode(settings, beats)
		must(err)
		hall.nodes = append(hall.nodes, node)
		listening = append(listening, fields{
			"peer":    node.host.ID().String(),
			"address": fmt.Sprintf("%s/p2p/%s", node.host.Addrs()[0], node.host.ID()),
		})
	}
	say(fields{"event": "listening", "nodes": listening, "versions": versions()})
	lines := bufio.NewScanner(os.Stdin)
	lines.Buffer(nil, longestCommand)
	for lines.Scan() {
		var command BenchCommand
		must(json.Unmarshal(lines.Bytes(), &command))
		switch command.Do {
		case "connect", "publish", "publish_file", "wait", "arrived":
			go hall.answer(command)
		default:
			hall.answer(command)
		}
	}
	must(lines.Err())
}

func versions() map[string]string {
	found := map[string]string{"go": runtime.Version()}
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, module := range info.Deps {
			switch module.Path {
			case "github.com/libp2p/go-libp2p":
				found["go-libp2p"] = module.Version
			case "github.com/libp2p/go-libp2p-pubsub":
				found["go-libp2p-pubsub"] = module.Version
			}
		}
	}
	return found
}

// BenchNode is one host with its pubsub.
type BenchNode struct {
	host    host.Host
	pubsub  *pubsub.PubSub
	lock    sync.Mutex
	topics  map[string]*pubsub.Topic
	subs    map[string]bool // by topic
	tallies tallies
	expects expectations
}

func newBenchNode(settings BenchSettings, beats *HeartbeatLog) (*BenchNode, error) {
	key, _, err := crypto.GenerateEd25519Key(nil)
	if err != nil {
		return nil, err
	}
	// The default manager closes connections beyond 192; this one is the same kind, so that what
	// the pubsub tells it about peers costs what it costs by default, but it never closes any.
	connections, err := connmgr.NewConnManager(math.MaxInt32-1, math.MaxInt32)
	if err != nil {
		return nil, err
	}
	h, err := listen(key, settings.Listen, 0,
		// The default limits refuse inbound connections beyond 64 and 64 for each GiB that they
		// allow themselves.
		libp2p.ResourceManager(&network.NullResourceManager{}),
		libp2p.ConnectionManager(connections),
		// The default gives a dial on loopback 5 s, too little where 200 nodes dial a slow one.
		libp2p.SwarmOpts(swarm.WithDialTimeoutLocal(patience)),
	)
	if err != nil {
		return nil, err
	}
	ps, err := pubsub.NewGossipSub(context.Background(), h, benchOptions(settings.Policy, beats)...)
	if err != nil {
		return nil, err
	}
	return &BenchNode{
		host:    h,
		pubsub:  ps,
		topics:  map[string]*pubsub.Topic{},
		subs:    map[string]bool{},
		tallies: tallies{runs: map[uint32]*RunTally{}},
	}, nil
}

// benchOptions leaves the library's defaults, but for what would lose messages.
func benchOptions(policy string, beats *HeartbeatLog) []pubsub.Option {
	chosen := []pubsub.Option{
		// The default of 1 MiB cuts off peers that send more; all implementations get 4 MiB.
		pubsub.WithMaxMessageSize(maxFrame),
		// A full queue (32 frames by default) drops what is published without an error. It is a
		// slice that grows, so that this much costs nothing by itself.
		pubsub.WithPeerOutboundQueueSize(outboundFrames),
		// Signed messages wait here for one of the workers, as many as there are cores; beyond
		// 32 by default they are dropped. The throttles of validation are left as they are: only
		// validators of the application pass through them, and there are none.
		pubsub.WithValidateQueueSize(benchBacklog),
	}
	if policy == "nosign" {
		chosen = append(chosen, unsigned()...)
	}
	if beats != nil {
		params := pubsub.DefaultGossipSubParams()
		params.SlowHeartbeatWarning = math.SmallestNonzeroFloat64 // every heartbeat is slow
		chosen = append(chosen, pubsub.WithGossipSubParams(params), pubsub.WithLogger(beats.logger()))
	}
	return chosen
}

// join returns the topic; the library lets it be joined once.
func (n *BenchNode) join(name string) (*pubsub.Topic, error) {
	n.lock.Lock()
	defer n.lock.Unlock()
	if topic, ok := n.topics[name]; ok {
		return topic, nil
	}
	topic, err := n.pubsub.Join(name)
	if err == nil {
		n.topics[name] = topic
	}
	return topic, err
}

// subscribe starts a receiver for each topic that has none.
func (n *BenchNode) subscribe(names []string) error {
	for _, name := range names {
		if n.subs[name] {
			continue
		}
		topic, err := n.join(name)
		if err != nil {
			return err
		}
		// Beyond 32 waiting messages by default they are dropped. The buffer is allocated at
		// once, 8 bytes a message: many topics share it, so as not to distort memory and the
		// pace of garbage collection.
		room := max(benchBacklog/len(names), leastBacklog)
		subscription, err := topic.Subscribe(pubsub.WithBufferSize(room))
		if err != nil {
			return err
		}
		n.lock.Lock()
		n.subs[name] = true
		n.lock.Unlock()
		go n.receive(subscription)
	}
	return nil
}

func (n *BenchNode) subscribed() bool {
	n.lock.Lock()
	defer n.lock.Unlock()
	return len(n.subs) > 0
}

func (n *BenchNode) receive(subscription *pubsub.Subscription) {
	own := n.host.ID()
	for {
		message, err := subscription.Next(context.Background())
		if err != nil { // cancelled
			return
		}
		if message.ReceivedFrom != own {
			if !n.expects.take(message.Data) {
				n.tallies.take(message.Data, time.Now().UnixNano())
			}
		}
	}
}

// publish offers a run of messages to the library.
func (n *BenchNode) publish(command BenchCommand) (fields, error) {
	topic, err := n.join(command.Topic)
	if err != nil {
		return nil, err
	}
	payloads, err := benchPayloads(command.Run, command.Count, command.Size)
	if err != nil {
		return nil, err
	}
	taken := 0
	ctx := context.Background()
	start := time.Now()
	for index, payload := range payloads {
		if command.Rate > 0 {
			time.Sleep(time.Until(start.Add(duration(float64(index) / command.Rate))))
		}
		stamp(payload, time.Now().UnixNano())
		if topic.Publish(ctx, payload) == nil {
			taken++
		}
		payloads[index] = nil // the library decides how long it is kept
	}
	return fields{"taken": taken, "began": start.UnixNano(), "ended": time.Now().UnixNano()}, nil
}

// Hall is all nodes of the process.
type Hall struct {
	nodes      []*BenchNode
	heartbeats *HeartbeatLog
}

func (h *Hall) answer(command BenchCommand) {
	answer, err := h.do(command)
	respond(command.ID, answer, err)
}

func (h *Hall) do(command BenchCommand) (fields, error) {
	switch command.Do {
	case "received":
		return h.received(command.Run), nil
	case "wait":
		h.wait(command)
		return h.received(command.Run), nil
	case "expect":
		for _, node := range h.nodes {
			node.expects.add(command.SHA256, command.Size)
		}
		return nil, nil
	case "arrived":
		return fields{"times": h.arrived(command)}, nil
	case "latencies":
		return fields{"ns": h.latencies(command.Run)}, nil
	case "heartbeats":
		return fields{"seconds": h.heartbeats.drain()}, nil
	case "forget":
		for _, node := range h.nodes {
			node.tallies.forget(command.Run)
		}
		return nil, nil
	}
	if command.Node < 0 || command.Node >= len(h.nodes) {
		return nil, fmt.Errorf("no such node: %d", command.Node)
	}
	node := h.nodes[command.Node]
	switch command.Do {
	case "connect":
		return nil, connect(node.host, command.Address, patience)
	case "subscribe":
		return nil, node.subscribe(command.Topics)
	case "peers":
		topic, err := node.join(command.Topic)
		if err != nil {
			return nil, err
		}
		return fields{"count": len(topic.ListPeers())}, nil
	case "publish":
		return node.publish(command)
	case "publish_file":
		return node.publishFile(command)
	}
	return nil, fmt.Errorf("no such command: %s", command.Do)
}
