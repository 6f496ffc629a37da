/** Shared memory that changes, goes away or overlaps while it is used. */
import { readFileSync, truncateSync, unlinkSync, writeFileSync } from 'node:fs'
import { server } from './lib/servers.mjs'

/** Clients register regions only where they are allowed to. */
const shared = server('shared memory', { flags: ['--allow-client-shm=true'] })

const SIZE = 1 << 20

/** A file in /dev/shm registered as `name`, gone afterwards. */
async function withRegion(t, name, contents, work) {
  const file = `/dev/shm/nereid-attack-${process.pid}-${name}`
  writeFileSync(file, contents)
  try {
    const body = JSON.stringify({ key: file.slice('/dev/shm'.length), offset: 0, byte_size: contents.length })
    const answer = await t.post(`/v2/systemsharedmemory/region/${name}/register`, body)
    t.check(answer.status === 200, `register: status ${answer.status}`)
    return await work(file)
  } finally {
    await t.post(`/v2/systemsharedmemory/region/${name}/unregister`, '')
    unlinkSync(file)
  }
}

const place = (name, size, offset) => ({ shared_memory_region: name, shared_memory_byte_size: size, shared_memory_offset: offset })

const infer = (t, model, datatype, count, input, output) =>
  t.post(
    `/v2/models/${model}/infer`,
    JSON.stringify({
      inputs: [{ name: 'INPUT0', shape: [count], datatype, parameters: input }],
      outputs: [{ name: 'OUTPUT0', parameters: output }],
    }),
  )

export const rows = [
  {
    attack: 'an output window that overlaps its input, by one byte to all of them',
    limit: 'bytes of a region are never a slice; copies read all before they write any (`RegionMemory::copy_from_region`)',
    server: shared,
    async run(t) {
      let wrong = 0
      for (const [from, to] of [[0, 1], [1, 0], [0, 4096], [4096, 0], [0, 0]]) {
        const all = Buffer.from(Array.from({ length: SIZE + 4096 }, (_, i) => i % 251))
        await withRegion(t, 'overlap', all, async (file) => {
          const answer = await infer(t, 'identity_uint8', 'UINT8', SIZE, place('overlap', SIZE, from), place('overlap', SIZE, to))
          t.check(answer.status === 200, `status ${answer.status}`)
          if (!readFileSync(file).subarray(to, to + SIZE).equals(all.subarray(from, from + SIZE))) wrong += 1
        })
      }
      t.check(wrong === 0, `${wrong} outputs are wrong`)
      return `${wrong} of 5 wrong`
    },
  },
  {
    attack: 'a region truncated while requests read and write it',
    limit: 'lost pages become zeros, the request fails (`memory::sigbus`)',
    server: shared,
    async run(t) {
      const contents = Buffer.alloc(SIZE * 16, 1)
      return withRegion(t, 'truncated', contents, async (file) => {
        const asked = Array.from({ length: 8 }, () =>
          infer(t, 'identity_uint8', 'UINT8', SIZE * 8, place('truncated', SIZE * 8, 0), place('truncated', SIZE * 8, SIZE * 8)),
        )
        await new Promise((resolve) => setTimeout(resolve, 3))
        truncateSync(file, 4096)
        const statuses = (await Promise.all(asked)).map((a) => a.status)
        t.check(statuses.every((s) => s === 200 || s === 400), `statuses ${statuses}`)
        return `statuses ${[...new Set(statuses)].sort().join(', ')}`
      })
    },
  },
]
