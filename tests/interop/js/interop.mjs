// A peer of @libp2p/gossipsub for the interoperation runs: see ../README.md for the protocol.
import { createInterface } from 'node:readline'
import { setTimeout as sleep } from 'node:timers/promises'
import { noise } from '@chainsafe/libp2p-noise'
import { privateKeyFromProtobuf } from '@libp2p/crypto/keys'
import { gossipsub } from '@libp2p/gossipsub'
import { identify, identifyPush } from '@libp2p/identify'
import { tcp } from '@libp2p/tcp'
import { yamux } from '@libp2p/yamux'
import { multiaddr } from '@multiformats/multiaddr'
import { createLibp2p } from 'libp2p'
import { payload, Record } from './record.mjs'
import { gossipsubOptions } from './settings.mjs'

const say = (line) => process.stdout.write(JSON.stringify(line) + '\n')
const settings = JSON.parse(process.argv[2])
const { topic } = settings

function fail (error) {
  process.stdout.write(
    JSON.stringify({ event: 'fatal', error: String(error?.stack ?? error) }) + '\n',
    () => process.exit(1)
  )
}
process.on('uncaughtException', fail)

const node = await createLibp2p({
  privateKey: privateKeyFromProtobuf(Buffer.from(settings.secret, 'base64')),
  addresses: { listen: [`/ip4/127.0.0.1/tcp/${settings.port}`] },
  transports: [tcp()],
  connectionEncrypters: [noise()],
  streamMuxers: [yamux()],
  services: {
    identify: identify(),
    identifyPush: identifyPush(),
    pubsub: gossipsub(gossipsubOptions(settings))
  }
})
const { pubsub } = node.services
const record = new Record(pubsub, topic, say)
if (settings.validation_delay > 0) {
  pubsub.topicValidators.set(topic, async () => {
    await sleep(settings.validation_delay * 1000)
    return 'accept'
  })
}

const commands = {
  async connect ({ address }) {
    await node.dial(multiaddr(address))
  },
  subscribe () {
    pubsub.subscribe(topic)
  },
  unsubscribe () {
    pubsub.unsubscribe(topic)
  },
  async publish ({ tag, count, size, rate }) {
    const start = performance.now()
    for (let index = 0; index < count; index++) {
      const early = rate > 0 ? start + index / rate * 1000 - performance.now() : 0
      if (early > 0) await sleep(early)
      await pubsub.publish(topic, payload(tag, index, size))
    }
    return { published: count }
  },
  status () {
    return record.status(node.getPeers())
  },
  async stop () {
    await node.stop()
  }
}

async function answer (command) {
  try {
    say({ ...await commands[command.do](command), answer: command.id })
  } catch (error) {
    say({ answer: command.id, error: String(error) })
  }
}

const [address] = node.getMultiaddrs()
say({ event: 'listening', peer: node.peerId.toString(), address: address.toString() })
for await (const line of createInterface({ input: process.stdin })) {
  const command = JSON.parse(line)
  const answered = answer(command)
  if (command.do !== 'connect' && command.do !== 'publish') await answered
  if (command.do === 'stop') break
}
process.exit(0)
