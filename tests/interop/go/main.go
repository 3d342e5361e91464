// A peer of go-libp2p-pubsub for the interoperation runs: see ../README.md for the protocol. With
// the argument "bench" it is a peer of the mesh bench.
package main

import (
	"bufio"
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"os"
	"sync"
	"time"

	"github.com/libp2p/go-libp2p"
	pubsub "github.com/libp2p/go-libp2p-pubsub"
	"github.com/libp2p/go-libp2p/core/crypto"
	"github.com/libp2p/go-libp2p/core/host"
	"github.com/libp2p/go-libp2p/core/peer"
	"github.com/libp2p/go-libp2p/p2p/muxer/yamux"
	"github.com/libp2p/go-libp2p/p2p/security/noise"
	"github.com/libp2p/go-libp2p/p2p/transport/tcp"
)

const (
	dialTimeout = 20 * time.Second
	backlog     = 100_000 // messages that wait for the application
	loopback    = "127.0.0.1"
)

type fields map[string]any

// Command is one line of standard input.
type Command struct {
	ID      int     `json:"id"`
	Do      string  `json:"do"`
	Address string  `json:"address"`
	Tag     string  `json:"tag"`
	Count   int     `json:"count"`
	Size    int     `json:"size"`
	Rate    float64 `json:"rate"`
}

var output sync.Mutex

// say writes one line of standard output.
func say(line fields) {
	text, err := json.Marshal(line)
	if err != nil {
		panic(err)
	}
	output.Lock()
	defer output.Unlock()
	os.Stdout.Write(append(text, '\n'))
}

// respond answers the command of this number.
func respond(id int, answer fields, err error) {
	if answer == nil {
		answer = fields{}
	}
	if err != nil {
		answer["error"] = err.Error()
	}
	answer["answer"] = id
	say(answer)
}

func must(err error) {
	if err != nil {
		say(fields{"event": "fatal", "error": err.Error()})
		os.Exit(1)
	}
}

func main() {
	if os.Args[1] == "bench" {
		bench(os.Args[2])
		return
	}
	var settings Settings
	must(json.Unmarshal([]byte(os.Args[1]), &settings))
	h, err := newHost(settings)
	must(err)
	record := newRecord(settings.Topic)
	ps, err := pubsub.NewGossipSub(context.Background(), h, options(settings, record)...)
	must(err)
	if settings.ValidationDelay > 0 {
		must(ps.RegisterTopicValidator(settings.Topic, slowly(settings.ValidationDelay)))
	}
	topic, err := ps.Join(settings.Topic)
	must(err)
	node := &Node{host: h, pubsub: ps, topic: topic, record: record}
	say(fields{
		"event":   "listening",
		"peer":    h.ID().String(),
		"address": fmt.Sprintf("%s/p2p/%s", h.Addrs()[0], h.ID()),
	})
	lines := bufio.NewScanner(os.Stdin)
	for lines.Scan() {
		var command Command
		must(json.Unmarshal(lines.Bytes(), &command))
		if command.Do == "connect" || command.Do == "publish" {
			go node.answer(command)
		} else {
			node.answer(command)
		}
		if command.Do == "stop" {
			return
		}
	}
}

func newHost(settings Settings) (host.Host, error) {
	encoded, err := base64.StdEncoding.DecodeString(settings.Secret)
	if err != nil {
		return nil, err
	}
	key, err := crypto.UnmarshalPrivateKey(encoded)
	if err != nil {
		return nil, err
	}
	return listen(key, loopback, settings.Port)
}

// listen makes a host that speaks TCP, noise and yamux on an IPv4 address.
func listen(key crypto.PrivKey, address string, port int, more ...libp2p.Option) (host.Host, error) {
	return libp2p.New(append([]libp2p.Option{
		libp2p.Identity(key),
		libp2p.ListenAddrStrings(fmt.Sprintf("/ip4/%s/tcp/%d", address, port)),
		libp2p.Transport(tcp.NewTCPTransport),
		libp2p.Security(noise.ID, noise.New),
		libp2p.Muxer(yamux.ID, yamux.DefaultTransport),
		libp2p.DisableRelay(),
	}, more...)...)
}

// slowly accepts every message of other peers after a while.
func slowly(seconds float64) pubsub.Validator {
	return func(ctx context.Context, from peer.ID, message *pubsub.Message) bool {
		if !message.Local {
			time.Sleep(duration(seconds))
		}
		return true
	}
}

// Node does what the commands say.
type Node struct {
	host         host.Host
	pubsub       *pubsub.PubSub
	topic        *pubsub.Topic
	subscription *pubsub.Subscription // nil while not subscribed
	record       *Record
}

func (n *Node) answer(command Command) {
	answer, err := n.do(command)
	respond(command.ID, answer, err)
}

func (n *Node) do(command Command) (fields, error) {
	switch command.Do {
	case "connect":
		return nil, connect(n.host, command.Address, dialTimeout)
	case "subscribe":
		return nil, n.subscribe()
	case "unsubscribe":
		if n.subscription != nil {
			n.subscription.Cancel()
			n.subscription = nil
		}
		return nil, nil
	case "publish":
		return n.publish(command)
	case "status":
		return n.record.status(n.host.Network().Peers(), n.topic.ListPeers()), nil
	case "stop":
		return nil, n.host.Close()
	}
	return nil, fmt.Errorf("no such command: %s", command.Do)
}

func connect(from host.Host, address string, timeout time.Duration) error {
	info, err := peer.AddrInfoFromString(address)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	return from.Connect(ctx, *info)
}

func (n *Node) subscribe() error {
	if n.subscription != nil {
		return nil
	}
	subscription, err := n.topic.Subscribe(pubsub.WithBufferSize(backlog))
	if err != nil {
		return err
	}
	n.subscription = subscription
	go func() {
		for {
			message, err := subscription.Next(context.Background())
			if err != nil { // cancelled
				return
			}
			if message.ReceivedFrom != n.host.ID() {
				n.record.received(message.Data)
			}
		}
	}()
	return nil
}

func (n *Node) publish(command Command) (fields, error) {
	start := time.Now()
	for index := range command.Count {
		if command.Rate > 0 {
			time.Sleep(time.Until(start.Add(duration(float64(index) / command.Rate))))
		}
		err := n.topic.Publish(context.Background(), payload(command.Tag, index, command.Size))
		if err != nil {
			return fields{"published": index}, err
		}
	}
	return fields{"published": command.Count}, nil
}
