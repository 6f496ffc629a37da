/** Finds ports for servers of scripts, tests and benches, and makes the flags that use them. */
import { createServer } from 'node:net'

/**
 * First port tried. Outside the kernel's ephemeral range, which it could assign to a client or another test between
 * this check and the start of the server; above 10080, the last port that `fetch` and browsers refuse.
 */
const FIRST = 10_081
const LAST = 29_999
const LOOKS_MAX = 100

/** Free loopback ports; all are held until the last is found, so that they differ. */
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

/** Flags of a Nereid that listens on loopback, at these ports. */
export function listenFlags(ports) {
  return SERVICES.flatMap((service, i) => [`--${service}-address=127.0.0.1`, `--${service}-port=${ports[i]}`])
}
