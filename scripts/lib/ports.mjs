/** Ports for servers that scripts, tests and benches start, and the flags that make Nereid listen there. */
import { createServer } from 'node:net'

/**
 * Where ports are looked for. Not where the kernel finds one for whoever asks for any: that would give them to a client, or to another test,
 * between this look and the start of the server.
 */
const FIRST = 10_000
const LAST = 29_999
const LOOKS_MAX = 100

/** Loopback ports nobody listens on; held together until all are known, so that they differ. */
export async function freePorts(count) {
  const servers = await Promise.all(Array.from({ length: count }, () => listening()))
  const ports = servers.map((one) => one.address().port)
  await Promise.all(servers.map((one) => new Promise((resolve) => one.close(resolve))))
  return ports
}

async function listening() {
  for (let looks = 1; ; looks += 1) {
    try {
      return await listeningAt(FIRST + Math.floor(Math.random() * (LAST - FIRST + 1)))
    } catch (error) {
      if (looks === LOOKS_MAX) throw error
    }
  }
}

function listeningAt(port) {
  return new Promise((resolve, reject) => {
    const one = createServer()
    one.once('error', reject)
    one.listen(port, '127.0.0.1', () => resolve(one))
  })
}

const SERVICES = ['http', 'grpc', 'metrics']

/** The flags that make a Nereid listen on loopback, at these ports. */
export function listenFlags(ports) {
  return SERVICES.flatMap((service, i) => [`--${service}-address=127.0.0.1`, `--${service}-port=${ports[i]}`])
}
