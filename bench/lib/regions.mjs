/** System shared memory as a client makes it: a file in /dev/shm, registered over HTTP. */
import { readFileSync, unlinkSync, writeFileSync } from 'node:fs'

const made = []

/** One region per tensor, holding its bytes (inputs) or zeros (outputs). */
export async function makeRegions(http, workload, id) {
  const regions = {}
  const sizes = [
    ...workload.inputs.map((t) => [t.name, t.data.length, t.data]),
    ...workload.outputs.map((name, i) => [
      name,
      workload.expected[i].length,
      Buffer.alloc(workload.expected[i].length),
    ]),
  ]
  for (const [tensor, bytes, data] of sizes) {
    const name = `nereid_bench_${process.pid}_${id}_${tensor}`
    const path = `/dev/shm/${name}`
    writeFileSync(path, data)
    made.push(path)
    const answer = await fetch(`http://127.0.0.1:${http}/v2/systemsharedmemory/region/${name}/register`, {
      method: 'POST',
      body: JSON.stringify({ key: `/${name}`, offset: 0, byte_size: bytes }),
    })
    if (!answer.ok) throw new Error(`registering a shared memory region failed: ${await answer.text()}`)
    regions[tensor] = { name, bytes, path }
  }
  const verify = () =>
    workload.outputs.forEach((name, i) => {
      if (!readFileSync(regions[name].path).equals(workload.expected[i]))
        throw new Error(`region of ${name} does not hold the output`)
    })
  return { regions, verify }
}

export function removeRegions() {
  for (const path of made.splice(0)) {
    try {
      unlinkSync(path)
    } catch {
      // Gone already.
    }
  }
}
