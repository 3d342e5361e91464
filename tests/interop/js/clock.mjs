// The system's real-time clock in nanoseconds, as near as Node.js comes to it: where the process
// began (read once, in microseconds) and the monotonic clock since.
const HIGH = 2 ** 32
const began = BigInt(Math.round(performance.timeOrigin * 1000)) * 1000n // ns since 1970

// Numbers hold nanoseconds exactly up to 2^53, which is 104 days: they count from here, a multiple
// of 2^32 ns, so that only the upper half of a 64-bit time needs to be moved.
const HIGH_BASE = Number(began >> 32n)
const BASE = BigInt(HIGH_BASE) << 32n
const BEGAN = Number(began - BASE)

// Now, in nanoseconds since BASE.
export function now () {
  return BEGAN + performance.now() * 1e6
}

// A time since 1970 in nanoseconds, as BigInt.
export function absolute (time) {
  return BASE + BigInt(Math.round(time))
}

// The time whose two halves since 1970 are these.
export function fromHalves (high, low) {
  return (high - HIGH_BASE) * HIGH + low
}
