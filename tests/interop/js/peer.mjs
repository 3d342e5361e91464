// A peer of @libp2p/gossipsub: with `bench` as its first argument that of the mesh bench, otherwise
// that of the interoperation runs.
import './promises.mjs'

await import(process.argv[2] === 'bench' ? './bench.mjs' : './interop.mjs')
