import { createHash } from 'node:crypto'

export const MAX_FRAME = 4 * 1024 * 1024 // bytes
const QUEUE = 64 * 1024 * 1024 // bytes that may wait for a peer

// Options of gossipsub from the settings of the process: see "Start" in ../README.md.
export function gossipsubOptions (settings) {
  const signed = settings.policy === 'sign'
  return {
    D: settings.d,
    Dlo: settings.d_lo,
    Dhi: settings.d_hi,
    Dout: settings.d_out,
    Dlazy: settings.d_lazy,
    Dscore: Math.min(4, settings.d),
    heartbeatInterval: milliseconds(settings.heartbeat),
    pruneBackoff: milliseconds(settings.prune_backoff),
    unsubcribeBackoff: milliseconds(settings.unsubscribe_backoff),
    idontwantMinDataSize: settings.idontwant_threshold,
    floodPublish: settings.flood_publish,
    allowPublishToZeroTopicPeers: true,
    maxInboundDataLength: MAX_FRAME,
    maxOutboundBufferSize: QUEUE,
    globalSignaturePolicy: signed ? 'StrictSign' : 'StrictNoSign',
    msgIdFn: signed ? idOfOrigin : idOfContent,
    ...scoring(settings)
  }
}

function milliseconds (seconds) {
  return Math.round(seconds * 1000)
}

function scoring (settings) {
  const deliveries = settings.expected_deliveries > 0 ? -1 : 0 // P3's weight
  const topic = {
    topicWeight: 1,
    timeInMeshWeight: 0,
    firstMessageDeliveriesWeight: 0,
    meshMessageDeliveriesWeight: deliveries,
    meshMessageDeliveriesThreshold: settings.expected_deliveries,
    meshMessageDeliveriesCap: 1000,
    meshMessageDeliveriesDecay: 0.999,
    meshMessageDeliveriesWindow: 2000,
    meshMessageDeliveriesActivation: milliseconds(settings.activation),
    meshFailurePenaltyWeight: deliveries,
    meshFailurePenaltyDecay: 0.999,
    invalidMessageDeliveriesWeight: -10,
    invalidMessageDeliveriesDecay: 0.9999
  }
  return {
    scoreParams: {
      topics: { [settings.topic]: topic },
      topicScoreCap: 0, // none
      appSpecificWeight: 0,
      IPColocationFactorWeight: 0,
      behaviourPenaltyWeight: -10,
      behaviourPenaltyThreshold: 0,
      behaviourPenaltyDecay: 0.9999,
      decayInterval: 1000,
      decayToZero: 0.01,
      retainScore: 3_600_000
    },
    scoreThresholds: {
      gossipThreshold: -10,
      publishThreshold: -50,
      graylistThreshold: -100,
      acceptPXThreshold: 0,
      opportunisticGraftThreshold: 0
    }
  }
}

// Author and seqno, as go names messages. The library's own ids hold the author's whole public
// key, which no other implementation knows messages by.
export function idOfOrigin (message) {
  const author = message.from.toMultihash().bytes
  const id = Buffer.alloc(author.length + 8)
  id.set(author)
  id.writeBigUInt64BE(message.sequenceNumber, author.length)
  return new Uint8Array(id)
}

export function idOfContent (message) {
  const topic = Buffer.from(message.topic)
  const length = Buffer.alloc(4)
  length.writeUInt32BE(topic.length)
  const digest = createHash('sha256').update(length).update(topic).update(message.data).digest()
  return new Uint8Array(digest)
}
