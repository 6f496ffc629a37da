/**
 * Floors: servers that only move the bytes. One process per transport and answer, since a floor knows nothing of models; it sends
 * the very bytes that Nereid answered. A tensor that comes back as it went is a true echo, out of the memory it was read into.
 */
import { start } from '../lib/process.mjs'

const KINDS = { 'hyper echo': 'floor-http', 'epoll echo': 'floor-epoll', 'h2 echo': 'floor-h2' }
export const FLOORS = { HTTP: ['hyper echo', 'epoll echo'], gRPC: ['h2 echo'] }

export class Floors {
  #binary
  #generator
  #running = new Map()

  constructor(binary, generator) {
    this.#binary = binary
    this.#generator = generator
  }

  async get(name, key, answer, echoed = 0) {
    const id = `${name}\0${key}`
    if (!this.#running.has(id)) {
      const { child, match } = await start(name, this.#binary, [KINDS[name], `--answer=${this.#generator.file(answer)}`, `--tail=${echoed}`], { ready: /ready (\d+)/ })
      const port = Number(match[1])
      // What a floor answers is not an inference; that it is the same bytes is seen by the checked pass.
      const verify = (got) => {
        if (!got.equals(answer)) throw new Error(`${name} does not answer with its bytes`)
      }
      this.#running.set(id, { name, kind: 'floor', child, pids: () => [child.pid], http: port, grpc: port, verify })
    }
    return this.#running.get(id)
  }
}
