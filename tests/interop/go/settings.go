package main

import (
	"crypto/sha256"
	"encoding/binary"
	"time"

	pubsub "github.com/libp2p/go-libp2p-pubsub"
	pb "github.com/libp2p/go-libp2p-pubsub/pb"
	"github.com/libp2p/go-libp2p/core/peer"
)

const (
	maxFrame      = 4 << 20 // bytes
	queueLength   = 8192    // frames per peer, and messages that wait for validation
	inspectPeriod = 250 * time.Millisecond
)

// Settings is the argument of the process: see "Start" in ../README.md.
type Settings struct {
	Topic              string  `json:"topic"`
	Port               int     `json:"port"`
	Secret             string  `json:"secret"`
	Policy             string  `json:"policy"`
	FloodPublish       bool    `json:"flood_publish"`
	ValidationDelay    float64 `json:"validation_delay"`
	IDontWantThreshold int     `json:"idontwant_threshold"`
	D                  int     `json:"d"`
	DLo                int     `json:"d_lo"`
	DHi                int     `json:"d_hi"`
	DOut               int     `json:"d_out"`
	DLazy              int     `json:"d_lazy"`
	Heartbeat          float64 `json:"heartbeat"`
	PruneBackoff       float64 `json:"prune_backoff"`
	UnsubscribeBackoff float64 `json:"unsubscribe_backoff"`
	ExpectedDeliveries float64 `json:"expected_deliveries"`
	Activation         float64 `json:"activation"`
}

func duration(seconds float64) time.Duration {
	return time.Duration(seconds * float64(time.Second))
}

func options(settings Settings, record *Record) []pubsub.Option {
	params := pubsub.DefaultGossipSubParams()
	params.D, params.Dlo, params.Dhi = settings.D, settings.DLo, settings.DHi
	params.Dout, params.Dlazy, params.Dscore = settings.DOut, settings.DLazy, min(4, settings.D)
	params.HeartbeatInterval = duration(settings.Heartbeat)
	params.PruneBackoff = duration(settings.PruneBackoff)
	params.UnsubscribeBackoff = duration(settings.UnsubscribeBackoff)
	params.IDontWantMessageThreshold = settings.IDontWantThreshold
	chosen := []pubsub.Option{
		pubsub.WithGossipSubParams(params),
		pubsub.WithFloodPublish(settings.FloodPublish),
		pubsub.WithMaxMessageSize(maxFrame),
		pubsub.WithPeerOutboundQueueSize(queueLength),
		pubsub.WithValidateQueueSize(queueLength),
		pubsub.WithPeerScore(scoring(settings)),
		pubsub.WithPeerScoreInspect(record.scored, inspectPeriod),
		pubsub.WithRawTracer(record),
		pubsub.WithAppSpecificRpcInspector(record.frameReceived),
	}
	if settings.Policy == "nosign" {
		chosen = append(chosen, unsigned()...)
	}
	return chosen
}

func unsigned() []pubsub.Option {
	return []pubsub.Option{
		pubsub.WithMessageSignaturePolicy(pubsub.StrictNoSign),
		pubsub.WithNoAuthor(), // StrictNoSign by itself still sends author and seqno
		pubsub.WithMessageIdFn(idOfContent),
	}
}

func scoring(settings Settings) (*pubsub.PeerScoreParams, *pubsub.PeerScoreThresholds) {
	deliveries := 0.0 // P3's weight
	if settings.ExpectedDeliveries > 0 {
		deliveries = -1
	}
	topic := &pubsub.TopicScoreParams{
		TopicWeight:                     1,
		TimeInMeshQuantum:               time.Second,
		MeshMessageDeliveriesWeight:     deliveries,
		MeshMessageDeliveriesThreshold:  settings.ExpectedDeliveries,
		MeshMessageDeliveriesCap:        1000,
		MeshMessageDeliveriesDecay:      0.999,
		MeshMessageDeliveriesWindow:     2 * time.Second,
		MeshMessageDeliveriesActivation: duration(settings.Activation),
		MeshFailurePenaltyWeight:        deliveries,
		MeshFailurePenaltyDecay:         0.999,
		InvalidMessageDeliveriesWeight:  -10,
		InvalidMessageDeliveriesDecay:   0.9999,
	}
	params := &pubsub.PeerScoreParams{
		Topics:                 map[string]*pubsub.TopicScoreParams{settings.Topic: topic},
		AppSpecificScore:       func(peer.ID) float64 { return 0 },
		BehaviourPenaltyWeight: -10,
		BehaviourPenaltyDecay:  0.9999,
		DecayInterval:          time.Second,
		DecayToZero:            0.01,
		RetainScore:            time.Hour,
	}
	thresholds := &pubsub.PeerScoreThresholds{
		GossipThreshold:   -10,
		PublishThreshold:  -50,
		GraylistThreshold: -100,
	}
	return params, thresholds
}

// idOfContent names an unsigned message.
func idOfContent(message *pb.Message) string {
	topic := message.GetTopic()
	digest := sha256.New()
	digest.Write(binary.BigEndian.AppendUint32(nil, uint32(len(topic))))
	digest.Write([]byte(topic))
	digest.Write(message.GetData())
	return string(digest.Sum(nil))
}
