/**
 * ONNX Runtime without a server: `node bare_session.mjs FILE` prints resident MiB before, at the peak of, and after
 * making one session with default settings, and keeps it.
 */
import { readFileSync } from 'node:fs'
import ort from 'onnxruntime-node'

const mib = (key) => Number(new RegExp(`${key}:\\s+(\\d+)`).exec(readFileSync('/proc/self/status', 'utf8'))[1]) / 1024
const before = mib('VmRSS')
const session = await ort.InferenceSession.create(process.argv[2])
process.stdout.write(`loaded ${before.toFixed(1)} ${mib('VmHWM').toFixed(1)} ${mib('VmRSS').toFixed(1)}\n`)
setInterval(() => session.inputNames, 1000)
