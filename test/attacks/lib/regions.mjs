/** Shared memory of a client's: files of /dev/shm that a row registers, and takes away when it is over. */
import { unlinkSync, writeFileSync } from 'node:fs'
import { server } from './servers.mjs'

/** Clients register regions only where they are allowed to. */
export const shared = server('shared memory', { flags: ['--allow-client-shm=true'] })

/** A file in /dev/shm registered as `name`, gone afterwards. */
export async function withRegion(t, name, contents, work) {
  const file = `/dev/shm/nereid-attack-${process.pid}-${name}`
  writeFileSync(file, contents)
  try {
    const body = JSON.stringify({ key: keyOf(file), offset: 0, byte_size: contents.length })
    const answer = await t.post(`/v2/systemsharedmemory/region/${name}/register`, body)
    t.check(answer.status === 200, `register: status ${answer.status} ${answer.text.slice(0, 200)}`)
    return await work(file)
  } finally {
    await t.post(`/v2/systemsharedmemory/region/${name}/unregister`, '')
    unlinkSync(file)
  }
}

/** The key under which a file of /dev/shm is registered. */
export const keyOf = (file) => file.slice('/dev/shm'.length)

/** Where a tensor is, as the parameters of a request say it. */
export const place = (name, size, offset = 0) => ({
  shared_memory_region: name,
  shared_memory_byte_size: size,
  shared_memory_offset: offset,
})
