/** Shared memory that changes, goes away or overlaps while it is used. */
import { readFileSync, truncateSync } from 'node:fs'
import { Worker } from 'node:worker_threads'
import { buildCuda, cudaEnvironment } from './lib/cuda.mjs'
import { keyOf, place, shared, withRegion } from './lib/regions.mjs'
import { server } from './lib/servers.mjs'

const SIZE = 1 << 20

const infer = (t, model, datatype, count, input, output) =>
  t.post(
    `/v2/models/${model}/infer`,
    JSON.stringify({
      inputs: [{ name: 'INPUT0', shape: [count], datatype, parameters: input }],
      outputs: [{ name: 'OUTPUT0', parameters: output }],
    }),
  )

const STRINGS = 100_000

/** Strings of four bytes, each of which says that it has `length`. */
function stringsOf(length) {
  const out = Buffer.alloc(8 * STRINGS, 'x')
  for (let at = 0; at < out.length; at += 8) out.writeUInt32LE(length, at)
  return out
}

/**
 * Strings in a region through and back in the body: how many the answer has when each is walked, -1 when that leads
 * past its end.
 */
async function inferStrings(t, count, input) {
  const body = {
    inputs: [{ name: 'INPUT0', shape: [count], datatype: 'BYTES', parameters: input }],
    outputs: [{ name: 'OUTPUT0', parameters: { binary_data: true } }],
  }
  const answer = await fetch(`${t.url}/v2/models/identity_bytes/infer`, { method: 'POST', body: JSON.stringify(body) })
  const bytes = Buffer.from(await answer.arrayBuffer())
  if (answer.status !== 200) return { status: answer.status, strings: 0 }
  let strings = 0
  let at = Number(answer.headers.get('inference-header-content-length'))
  for (; at + 4 <= bytes.length; strings += 1) at += 4 + bytes.readUInt32LE(at)
  return { status: 200, strings: at === bytes.length ? strings : -1 }
}

const LOCKED_BYTES_MAX = 256 << 10

/** A machine with a GPU, of which a stand-in of the driver's library knows. */
const withGpu = server('a GPU, and few bytes that may be page-locked', {
  flags: ['--allow-client-shm=true', `--pinned-region-byte-size=${LOCKED_BYTES_MAX}`],
  env: cudaEnvironment,
  models: buildCuda,
})

export const rows = [
  {
    attack: '64 regions of 64 KiB of one object, on a machine with a GPU that page-locks 256 KiB',
    limit:
      '`--pinned-region-byte-size` limits locked pages; further regions work without them, only slower ' +
      '(`device::Locked`).',
    server: withGpu,
    async run(t) {
      const size = 64 << 10
      const names = Array.from({ length: 64 }, (_, i) => `locked${i}`)
      return withRegion(t, 'attack_locked', Buffer.alloc(size), async (file) => {
        const key = keyOf(file)
        for (const name of names) {
          const { status } = await t.post(
            `/v2/systemsharedmemory/region/${name}/register`,
            JSON.stringify({ key, byte_size: size }),
          )
          t.check(status === 200, `registering answered ${status}`)
        }
        const locked = () => t.metric('nereid_pinned_region_bytes')
        const most = await locked()
        t.check(most > 0 && most <= LOCKED_BYTES_MAX, `${most} bytes are locked`)
        for (const name of names) await t.post(`/v2/systemsharedmemory/region/${name}/unregister`, '{}')
        t.check((await locked()) <= size, `${await locked()} bytes stay locked`)
        return `${most} bytes locked`
      })
    },
  },
  {
    attack: 'an output window that overlaps its input, by one byte to all of them',
    limit:
      'The bytes of a region are never a slice, and a copy reads all before it writes any ' +
      '(`RegionMemory::copy_from_region`).',
    server: shared,
    async run(t) {
      let wrong = 0
      for (const [from, to] of [
        [0, 1],
        [1, 0],
        [0, 4096],
        [4096, 0],
        [0, 0],
      ]) {
        const all = Buffer.from(Array.from({ length: SIZE + 4096 }, (_, i) => i % 251))
        await withRegion(t, 'overlap', all, async (file) => {
          const answer = await infer(
            t,
            'identity_uint8',
            'UINT8',
            SIZE,
            place('overlap', SIZE, from),
            place('overlap', SIZE, to),
          )
          t.check(answer.status === 200, `status ${answer.status}`)
          if (
            !readFileSync(file)
              .subarray(to, to + SIZE)
              .equals(all.subarray(from, from + SIZE))
          )
            wrong += 1
        })
      }
      t.check(wrong === 0, `${wrong} outputs are wrong`)
      return `${wrong} of 5 wrong`
    },
  },
  {
    attack: 'a region truncated while requests read and write it',
    limit: 'Lost pages become zeros, and the request fails (`memory::sigbus`).',
    server: shared,
    async run(t) {
      const contents = Buffer.alloc(SIZE * 16, 1)
      return withRegion(t, 'truncated', contents, async (file) => {
        const asked = Array.from({ length: 8 }, () =>
          infer(
            t,
            'identity_uint8',
            'UINT8',
            SIZE * 8,
            place('truncated', SIZE * 8, 0),
            place('truncated', SIZE * 8, SIZE * 8),
          ),
        )
        await new Promise((resolve) => setTimeout(resolve, 3))
        truncateSync(file, 4096)
        const statuses = (await Promise.all(asked)).map((a) => a.status)
        t.check(
          statuses.every((s) => s === 200 || s === 400),
          `statuses ${statuses}`,
        )
        return `statuses ${[...new Set(statuses)].sort().join(', ')}`
      })
    },
  },
  {
    attack: 'the lengths of strings in a region rewritten all the time while requests use them',
    limit: 'Strings are checked in a copy that no client can change (`RegionMemory`), and only the copy is used.',
    server: shared,
    async run(t) {
      const [right, wrong] = [stringsOf(4), stringsOf(2 ** 31)]
      return withRegion(t, 'lengths', right, async (file) => {
        // From a thread of its own, as fast as the file takes it.
        const rewrite = `const { openSync, writeSync } = require('node:fs')
          const { file, right, wrong } = require('node:worker_threads').workerData
          const to = openSync(file, 'r+')
          for (let at = 0; ; at = (at + 8) % right.length) {
            writeSync(to, wrong, at, 8, at)
            writeSync(to, right, at, 8, at)
          }`
        const worker = new Worker(rewrite, { eval: true, workerData: { file, right, wrong } })
        const counts = {}
        let broken = 0
        try {
          for (let i = 0; i < 40; i += 1) {
            const asked = Array.from({ length: 4 }, () => inferStrings(t, STRINGS, place('lengths', right.length)))
            for (const { status, strings } of await Promise.all(asked)) {
              counts[status] = (counts[status] ?? 0) + 1
              if (status === 200 && strings !== STRINGS) broken += 1
            }
          }
        } finally {
          await worker.terminate()
        }
        t.check(
          Object.keys(counts).every((s) => s === '200' || s === '400'),
          `statuses ${Object.keys(counts)}`,
        )
        t.check(broken === 0, `${broken} answers with lengths that lead nowhere`)
        t.check((counts[200] ?? 0) > 0 && (counts[400] ?? 0) > 0, `it did not try: ${JSON.stringify(counts)}`)
        return `${counts[200]} answers 200, ${counts[400]} answers 400, none wrong`
      })
    },
  },
]
