// Node 20 lacks Promise.withResolvers, which libp2p 3.3 uses.
Promise.withResolvers ??= function () {
  let resolve, reject
  const promise = new this((...both) => { [resolve, reject] = both })
  return { promise, resolve, reject }
}
