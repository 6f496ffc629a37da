/** Ports for servers that scripts, tests and benches start, and the flags that make Nereid listen there. */
import { createServer } from 'node:net'

/** Loopback ports nobody listens on; held together until all are known, so that they differ. */
export async function freePorts(count) {
  const servers = await Promise.all(Array.from({ length: count }, () => listening()))
  const ports = servers.map((one) => one.address().port)
  await Promise.all(servers.map((one) => new Promise((resolve) => one.close(resolve))))
  return ports
}

function listening() {
  return new Promise((resolve, reject) => {
    const one = createServer()
    one.once('error', reject)
    one.listen(0, '127.0.0.1', () => resolve(one))
  })
}

const SERVICES = ['http', 'grpc', 'metrics']

/** The flags that make a Nereid listen on loopback, at these ports. */
export function listenFlags(ports) {
  return SERVICES.flatMap((service, i) => [`--${service}-address=127.0.0.1`, `--${service}-port=${ports[i]}`])
}
