const LONGEST_HEAD = 100 // bytes; tags are short
const LOOK_INTERVAL = 250 // milliseconds between looks at the scores

// What has been seen. Where gossipsub has no event for something, its methods are wrapped.
export class Record {
  constructor (pubsub, topic, say) {
    this.pubsub = pubsub
    this.topic = topic
    this.tallies = new Map() // tag → { distinct, repeated, wrong, indices }
    this.sent = noControl()
    this.got = noControl()
    this.duplicates = 0
    this.rejected = 0
    this.lowest = new Map() // peer → score
    pubsub.addEventListener('message', (event) => this.#received(Buffer.from(event.detail.data)))
    wrap(pubsub, 'handleReceivedRpc', (from, rpc) => {
      add(this.got, rpc.control)
      for (const _ of rpc.control?.graft ?? []) say({ event: 'graft', peer: from.toString() })
      for (const prune of rpc.control?.prune ?? []) {
        const backoff = prune.backoff == null ? null : Number(prune.backoff)
        say({ event: 'prune', peer: from.toString(), backoff })
      }
    })
    wrap(pubsub, 'sendRpc', (to, rpc) => add(this.sent, rpc.control))
    wrap(pubsub, 'sendRpcInBatch', (peers, rpc) => {
      for (const _ of peers) add(this.sent, rpc.control)
    })
    const validate = pubsub.validateReceivedMessage.bind(pubsub)
    pubsub.validateReceivedMessage = async (...args) => {
      const result = await validate(...args)
      if (result.code === 'duplicate') this.duplicates++
      if (result.code === 'invalid') this.rejected++
      return result
    }
    setInterval(() => {
      for (const peer of pubsub.getPeers()) this.#score(peer.toString())
    }, LOOK_INTERVAL).unref()
  }

  status (connected) {
    const subscribed = new Set(this.pubsub.getSubscribers(this.topic).map(String))
    const mesh = new Set(this.pubsub.getMeshPeers(this.topic))
    const peers = {}
    for (const id of connected.map(String)) {
      peers[id] = {
        protocol: this.pubsub.streamsOutbound.get(id)?.protocol ?? null,
        subscribed: subscribed.has(id),
        mesh: mesh.has(id),
        score: this.#score(id),
        lowest: this.lowest.get(id)
      }
    }
    const received = {}
    for (const [tag, { distinct, repeated, wrong }] of this.tallies) {
      received[tag] = { distinct, repeated, wrong }
    }
    const { sent, got, duplicates, rejected } = this
    return { received, peers, sent, got, duplicates, rejected }
  }

  #score (id) {
    const score = this.pubsub.getScore(id)
    this.lowest.set(id, Math.min(score, this.lowest.get(id) ?? score))
    return score
  }

  #received (data) {
    const [tag, number] = data.subarray(0, LONGEST_HEAD).toString('latin1').split(':', 2)
    if (!this.tallies.has(tag)) {
      this.tallies.set(tag, { distinct: 0, repeated: 0, wrong: 0, indices: new Set() })
    }
    const tally = this.tallies.get(tag)
    if (!payload(tag, number, data.length).equals(data)) tally.wrong++
    else if (tally.indices.has(number)) tally.repeated++
    else {
      tally.indices.add(number)
      tally.distinct++
    }
  }
}

// Message number index of a tag.
export function payload (tag, index, size) {
  const data = Buffer.alloc(size)
  for (let position = 0; position < size; position++) data[position] = 7 * position
  data.write(`${tag}:${index}:`, 'latin1')
  return data
}

function wrap (object, name, before) {
  const original = object[name].bind(object)
  object[name] = (...args) => {
    before(...args)
    return original(...args)
  }
}

function noControl () {
  return { graft: 0, prune: 0, ihave: 0, iwant: 0, idontwant: 0 }
}

function add (counts, control) {
  counts.graft += control?.graft?.length ?? 0
  counts.prune += control?.prune?.length ?? 0
  for (const kind of ['ihave', 'iwant', 'idontwant']) {
    for (const each of control?.[kind] ?? []) counts[kind] += each.messageIDs.length
  }
}
