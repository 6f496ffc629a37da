/** A file of system shared memory with the tensors of all requests, registered with a server on this machine. */

import { closeSync, ftruncateSync, openSync, rmSync, writeSync } from 'node:fs'
import type { Client } from 'nereid/client'
import { CommandError } from '../../internal.js'
import type { Entry } from './inputs.js'
import type { Model } from './model.js'
import { elementBytes, elementsOf } from './tensors.js'

type Place = [string, string | number][]

export interface Region {
  /** Where the k-th input of the i-th request is. */
  input(i: number, k: number): Place
  outputs: { name: string; parameters: Place }[]
  /** Unregisters the region and removes the file. */
  close(): Promise<void>
}

/** Where Linux has files of system shared memory. */
const DIRECTORY = '/dev/shm'
const ALIGNMENT = 64

let count = 0

/**
 * All requests in flight write outputs to the same place, as those of perf_analyzer do.
 *
 * @param outputBytes bytes of an output whose size the model does not tell
 */
export async function regionOf(
  client: Client,
  model: Model,
  entries: readonly Entry[],
  outputBytes: number,
): Promise<Region> {
  const name = `nereid-bench-${process.pid}-${(count += 1)}`
  const path = `${DIRECTORY}/${name}`
  let end = 0
  const parts: [Buffer, number][] = []
  const place = (bytes: number): Place => {
    const offset = end
    end += Math.ceil(Math.max(1, bytes) / ALIGNMENT) * ALIGNMENT
    return [
      ['shared_memory_region', name],
      ['shared_memory_offset', offset],
      ['shared_memory_byte_size', bytes],
    ]
  }
  const inputs = entries.map((entry) =>
    entry.inputs.map(({ data }) => {
      parts.push([data, end])
      return place(data.length)
    }),
  )
  const rows = model.batchMax > 0 ? (entries[0]?.inputs[0]?.shape[0] ?? 1) : 1
  const outputs = model.outputs.map(({ name, datatype, dims }) => {
    const bytes = dims.includes(-1) ? null : elementBytes(datatype)
    return { name, parameters: place(bytes === null ? outputBytes * rows : bytes * elementsOf(dims) * rows) }
  })
  const remove = (): void => rmSync(path, { force: true })
  // A second Ctrl-C waits for nothing.
  process.once('exit', remove)
  try {
    const file = openSync(path, 'wx', 0o600)
    ftruncateSync(file, end)
    for (const [data, offset] of parts) writeSync(file, data, 0, data.length, offset)
    closeSync(file)
    await client.systemSharedMemory.register(name, { key: `/${name}`, byte_size: end })
  } catch (error) {
    remove()
    const reason = error instanceof Error ? error.message : String(error)
    throw new CommandError(`--shared-memory: ${reason}; the server must run on this machine and share ${DIRECTORY}`)
  }
  return {
    input: (i, k) => inputs[i]?.[k] ?? [],
    outputs,
    async close() {
      remove()
      process.off('exit', remove)
      await client.systemSharedMemory.unregister(name)
    },
  }
}
