/** The in-process API: JavaScript to the core and back, no socket. */
import { Server } from '../../dist/index.js'
import { MODELS } from '../models/generate.mjs'

export async function add(bench) {
  const server = await Server.start({
    modelRepository: MODELS,
    modelControlMode: 'explicit',
    loadModel: ['simple', 'identity'],
    logInfo: false,
  })
  const simple = server.model('simple')
  const sixteen = () => ({ shape: [1, 16], data: new Int32Array(16) })
  const inputs = { INPUT0: sixteen(), INPUT1: sixteen() }
  bench('in process: infer simple, one at a time', () => simple.infer({ inputs }))
  bench('in process: infer simple, 32 at a time', () =>
    Promise.all(Array.from({ length: 32 }, () => simple.infer({ inputs }))))
  const identity = server.model('identity')
  const floats = { INPUT0: { shape: [1 << 18], data: new Float32Array(1 << 18) } }
  bench('in process: infer identity of 1 MiB', () => identity.infer({ inputs: floats }))
  return () => server.stop()
}
