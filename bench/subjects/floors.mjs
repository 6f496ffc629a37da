/**
 * Floors: servers that only move the bytes. One process per transport and answer, since a floor knows nothing of
 * models; it sends the very bytes that Nereid answered. A tensor that comes back as it went is a true echo, out of the
 * memory it was read into.
 */
import { start } from '../lib/process.mjs'
import { CERTIFICATE, KEY } from './nereid.mjs'

/** A wake and a send for each response of a stream. It answers on its own, and has no bytes of Nereid's. */
export const PACED = 'paced sends'
const KINDS = {
  'hyper echo': 'floor-http',
  'epoll echo': 'floor-epoll',
  'h2 echo': 'floor-h2',
  'frame echo': 'floor-frames',
  'tokio-rustls echo': 'floor-tls',
  'h2 echo over TLS': 'floor-h2',
  [PACED]: 'floor-paced',
}
/** Sockets and the least of a protocol: not what a library makes of them. */
export const BARE = ['epoll echo', 'frame echo']
export const FLOORS = { HTTP: ['hyper echo', 'epoll echo'], gRPC: ['h2 echo', 'frame echo'] }
/** The same with rustls as it comes; they are given the certificate of the bench. */
export const TLS_FLOORS = { HTTP: ['tokio-rustls echo'], gRPC: ['h2 echo over TLS'] }
const OVER_TLS = Object.values(TLS_FLOORS).flat()

export class Floors {
  #binary
  #generator
  #running = new Map()

  constructor(binary, generator) {
    this.#binary = binary
    this.#generator = generator
  }

  async get(name, key, answer = Buffer.alloc(0), echoed = 0) {
    const id = `${name}\0${key}`
    if (!this.#running.has(id)) {
      const tls = OVER_TLS.includes(name)
      const words = [
        KINDS[name],
        `--answer=${this.#generator.file(answer)}`,
        `--tail=${echoed}`,
        ...(tls ? [`--cert=${CERTIFICATE}`, `--key=${KEY}`] : []),
      ]
      const { child, match } = await start(name, this.#binary, words, { ready: /ready (\d+)/ })
      const port = Number(match[1])
      // A floor does not infer; the checked pass only compares bytes.
      const verify = (got) => {
        if (!got.equals(answer)) throw new Error(`${name} does not answer with its bytes`)
      }
      this.#running.set(id, {
        name,
        kind: 'floor',
        tls,
        child,
        pids: () => [child.pid],
        http: port,
        grpc: port,
        verify,
      })
    }
    return this.#running.get(id)
  }
}
