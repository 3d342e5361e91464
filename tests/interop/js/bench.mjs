// A peer of @libp2p/gossipsub for the mesh bench: see bench/PROTOCOL.md.
import { readFileSync } from 'node:fs'
import { createInterface } from 'node:readline'
import { setImmediate as turn, setTimeout as sleep } from 'node:timers/promises'
import { noise } from '@chainsafe/libp2p-noise'
import { gossipsub } from '@libp2p/gossipsub'
import { identify } from '@libp2p/identify'
import { tcp } from '@libp2p/tcp'
import { yamux } from '@libp2p/yamux'
import { multiaddr } from '@multiformats/multiaddr'
import { createLibp2p } from 'libp2p'
import { absolute, now } from './clock.mjs'
import { payloads, Runs, stamp } from './runs.mjs'
import { idOfContent, idOfOrigin, MAX_FRAME } from './settings.mjs'

const LOOK_INTERVAL = 10 // milliseconds between looks at a run that is waited for; guess

// Awaiting publish never leaves the microtask queue: a loop of nothing else lets heartbeats, window
// updates and all that a socket does not take at once wait until its end. After so many bytes it gives
// way to them. Measured: after each message, 16, 64 or 256 KiB the throughput is the same within what
// repeated runs differ by; 64 KiB took the least CPU time of them, or 1 % more.
const GIVE_WAY = 64 * 1024

const settings = JSON.parse(process.argv[3])

function fail (error) {
  process.stdout.write(
    JSON.stringify({ event: 'fatal', error: String(error?.stack ?? error) }) + '\n',
    () => process.exit(1)
  )
}
process.on('uncaughtException', fail)

// JSON has integers of any length, JSON.stringify has none beyond 2^53: they go through it as texts.
function say (line) {
  const text = JSON.stringify(line, (_, value) => typeof value === 'bigint' ? `ns:${value}` : value)
  process.stdout.write(text.replace(/"ns:(\d+)"/g, '$1') + '\n')
}

// No queue is raised: gossipsub sets no limit on what waits for a peer by default
// (maxOutboundBufferSize), nor do yamux and noise.
function gossipsubOptions () {
  const signed = settings.policy === 'sign'
  return {
    globalSignaturePolicy: signed ? 'StrictSign' : 'StrictNoSign',
    msgIdFn: signed ? idOfOrigin : idOfContent,
    // Longer frames end the stream.
    maxInboundDataLength: MAX_FRAME,
    // An RPC with more of anything (5000 messages, 512 ids in an IDONTWANT, …) is dropped whole, and
    // the messages in it are lost.
    decodeRpcLimits: {
      maxSubscriptions: Infinity,
      maxMessages: Infinity,
      maxIhaveMessageIDs: Infinity,
      maxIwantMessageIDs: Infinity,
      maxIdontwantMessageIDs: Infinity,
      maxControlMessages: Infinity,
      maxPeerInfos: Infinity
    },
    // Otherwise what is published before a subscriber is known is refused, instead of kept for gossip.
    allowPublishToZeroTopicPeers: true,
    // With more than 10 peers of one IP address the scores of all of them are below 0, so that none
    // stays in the mesh; from 15 on none is listened to.
    scoreParams: { IPColocationFactorWhitelist: new Set(['127.0.0.1']) }
  }
}

function start () {
  return createLibp2p({
    addresses: { listen: ['/ip4/127.0.0.1/tcp/0'] },
    transports: [tcp()],
    connectionEncrypters: [noise()],
    streamMuxers: [yamux()],
    connectionManager: {
      // Peers beyond it are refused (300 by default).
      maxConnections: Infinity,
      // So are peers of one IP address that come faster than so many a second (5), as all peers do
      // here, and those that come while so many are being shaken hands with (10).
      inboundConnectionThreshold: Infinity,
      maxIncomingPendingConnections: Infinity
    },
    // A ping that waits behind messages for more than 5 s would close the connection, and lose them.
    connectionMonitor: { abortConnectionOnPingFailure: false },
    // gossipsub needs identify to learn which peers speak it.
    services: { identify: identify(), pubsub: gossipsub(gossipsubOptions()) }
  })
}

function measureHeartbeats (pubsub, seconds) {
  const heartbeat = pubsub.heartbeat.bind(pubsub)
  pubsub.heartbeat = async () => {
    const began = performance.now()
    try {
      await heartbeat()
    } finally {
      seconds.push((performance.now() - began) / 1000)
    }
  }
}

const nodes = []
for (let index = 0; index < settings.nodes; index++) nodes.push(await start())
const runs = new Runs(nodes.length)
const heartbeats = []
nodes.forEach(({ services: { pubsub } }, node) => {
  pubsub.addEventListener('message', (event) => runs.take(node, event.detail.data))
})
if (settings.heartbeats) measureHeartbeats(nodes[0].services.pubsub, heartbeats)

const commands = {
  async connect ({ node, address }) {
    await nodes[node].dial(multiaddr(address))
  },
  subscribe ({ node, topics }) {
    for (const topic of topics) nodes[node].services.pubsub.subscribe(topic)
  },
  peers ({ node, topic }) {
    return { count: nodes[node].services.pubsub.getSubscribers(topic).length }
  },
  async publish ({ node, topic, run, count, size, rate }) {
    const { pubsub } = nodes[node].services
    const messages = payloads(run, count, size)
    let taken = 0
    let offered = 0 // bytes since it last gave way
    const began = now()
    for (let index = 0; index < count; index++) {
      const early = rate > 0 ? (began - now()) / 1e6 + index / rate * 1000 : 0 // milliseconds
      if (early > 0) await sleep(Math.ceil(early))
      else if (offered >= GIVE_WAY) await turn()
      if (early > 0 || offered >= GIVE_WAY) offered = 0
      offered += size
      const message = messages[index]
      stamp(message)
      try {
        await pubsub.publish(topic, message)
        taken++
      } catch {}
    }
    return { taken, began: absolute(began), ended: absolute(now()) }
  },
  received ({ run }) {
    return runs.get(run).received()
  },
  async wait ({ run, count, silence }) {
    const asked = now()
    while (!complete(run, count)) {
      const last = Math.max(asked, runs.get(run).last)
      if (now() - last >= silence * 1e9) break
      await sleep(LOOK_INTERVAL)
    }
    return runs.get(run).received()
  },
  latencies ({ run }) {
    return { ns: runs.get(run).latencies() }
  },
  heartbeats () {
    return { seconds: heartbeats.splice(0) }
  },
  forget ({ run }) {
    runs.forget(run)
  }
}

function complete (run, count) {
  const counts = runs.get(run)
  return nodes.every(({ services: { pubsub } }, node) =>
    pubsub.getTopics().length === 0 || counts.count(node) >= count)
}

async function answer (command) {
  try {
    say({ ...await commands[command.do](command), answer: command.id })
  } catch (error) {
    say({ answer: command.id, error: String(error) })
  }
}

function versions () {
  const { dependencies } = JSON.parse(readFileSync(new URL('package.json', import.meta.url)))
  const { libp2p, '@libp2p/gossipsub': gossipsub } = dependencies // exact versions
  return { '@libp2p/gossipsub': gossipsub, libp2p, node: process.version }
}

say({
  event: 'listening',
  nodes: nodes.map((node) => {
    return { peer: node.peerId.toString(), address: node.getMultiaddrs()[0].toString() }
  }),
  versions: versions()
})
const beside = new Set(['connect', 'publish', 'wait'])
for await (const line of createInterface({ input: process.stdin })) {
  const command = JSON.parse(line)
  const answered = answer(command)
  if (!beside.has(command.do)) await answered
}
process.exit(0)
