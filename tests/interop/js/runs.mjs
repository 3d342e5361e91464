import { absolute, fromHalves, now } from './clock.mjs'

const SHORTEST = 24 // bytes
const FIRST_ROOM = 4096 // messages; guess: room doubles as it fills

// Messages of a run: see "Commands" in bench/PROTOCOL.md for their bytes.
export function payloads (run, count, size) {
  if (size < SHORTEST) throw new RangeError(`size ${size} is less than ${SHORTEST}`)
  const pattern = new Uint8Array(size)
  for (let position = 16; position < size - 4; position++) pattern[position] = 7 * position
  return Array.from({ length: count }, (_, index) => {
    const data = new Uint8Array(pattern)
    const view = new DataView(data.buffer)
    view.setUint32(0, run)
    view.setUint32(4, index)
    view.setUint32(size - 4, index)
    return data
  })
}

// Write the time of publication, which is now.
export function stamp (data) {
  new DataView(data.buffer).setBigUint64(8, absolute(now()))
}

// What came of every run, at each node of the process.
export class Runs {
  #runs = new Map()
  #nodes

  constructor (nodes) {
    this.#nodes = nodes
  }

  take (node, data) {
    const at = now()
    if (data.length < SHORTEST) return
    const number = uint32(data, 0)
    let run = this.#runs.get(number)
    if (run === undefined) {
      run = new Run(this.#nodes)
      this.#runs.set(number, run)
    }
    run.take(node, data, at)
  }

  get (number) {
    return this.#runs.get(number) ?? new Run(this.#nodes)
  }

  forget (number) {
    this.#runs.delete(number)
  }
}

class Run {
  last = 0 // when the last new message came, by clock.mjs; 0 if none did
  #length = 0
  #counts
  #marks // for each node, a bit for each index
  #repeated = 0
  #wrong = 0
  #latencies = new Float64Array(FIRST_ROOM)
  #delivered = 0 // latencies that are taken

  constructor (nodes) {
    this.#counts = new Array(nodes).fill(0)
    this.#marks = Array.from({ length: nodes }, () => new Uint8Array(FIRST_ROOM / 8))
  }

  take (node, data, at) {
    const { length } = data
    const index = uint32(data, 4)
    if (this.#length === 0) this.#length = length
    if (length !== this.#length || uint32(data, length - 4) !== index) {
      this.#wrong++
      return
    }
    let marks = this.#marks[node]
    const place = Math.floor(index / 8)
    if (place >= marks.length) {
      marks = this.#marks[node] = larger(marks, Math.max(place + 1, 2 * marks.length))
    }
    const bit = 1 << (index & 7)
    if ((marks[place] & bit) !== 0) {
      this.#repeated++
      return
    }
    marks[place] |= bit
    this.#counts[node]++
    this.last = at
    if (this.#delivered === this.#latencies.length) {
      this.#latencies = larger(this.#latencies, 2 * this.#delivered)
    }
    this.#latencies[this.#delivered++] = at - fromHalves(uint32(data, 8), uint32(data, 12))
  }

  count (node) {
    return this.#counts[node]
  }

  received () {
    const last = this.last === 0 ? 0 : absolute(this.last)
    return { counts: this.#counts, repeated: this.#repeated, wrong: this.#wrong, last }
  }

  latencies () {
    return Array.from(this.#latencies.subarray(0, this.#delivered), Math.round)
  }
}

// Quicker than a DataView for each message.
function uint32 (data, at) {
  return data[at] * 0x1000000 + (data[at + 1] << 16 | data[at + 2] << 8 | data[at + 3])
}

function larger (array, length) {
  const copy = new array.constructor(length)
  copy.set(array)
  return copy
}
