/**
 * The same requests to servers of 1, 2, 4 and 8 reactors and instances: what a core more brings, and what a request
 * costs then. Two models: one that runs where it arrives, so that the reactors are what is measured, and one of a
 * millisecond, for the instances and their threads.
 *
 * Of each size there is a server, and all of them are measured in turn: ratios are within a run. As many load
 * generators as reactors send, each from connections of its own: one is one thread, and would be the limit.
 */
import { cell } from '../lib/cells.mjs'
import { end } from '../lib/process.mjs'
import { MODELS } from '../models/generate.mjs'
import { VARIANTS, writeVariant } from '../models/variants.mjs'
import { startNereid } from '../subjects/nereid.mjs'
import * as workloads from '../workloads.mjs'

export const SIZES = [1, 2, 4, 8]

/**
 * Connections of one generator, and requests at a time of each. Many connections: the kernel deals them out to reactors
 * by chance.
 */
const SHAPES = { HTTP: { connections: 16, streams: 1 }, gRPC: { connections: 8, streams: 2 } }

/** Sizes that fit a machine, and what to say of the others. */
export function sizesFor(cpus, quick = false) {
  const asked = quick ? SIZES.slice(0, 2) : SIZES
  const sizes = asked.filter((n) => n <= cpus)
  const notes = []
  const beyond = asked.filter((n) => n > cpus)
  if (beyond.length > 0)
    notes.push(`not measured: ${beyond.join(' and ')} reactors and instances, as this machine has ${cpus} cores`)
  const shared = sizes.filter((n) => 2 * n > cpus)
  if (shared.length > 0)
    notes.push(
      `at ${shared.join(' and ')} reactors the load generators share the ${cpus} cores with the server: ` +
        'rates are lower than they could be, CPU per request is not',
    )
  return { sizes, notes }
}

const group = (count) => `instance_group [ { count: ${count} kind: KIND_CPU } ]\n`

export async function scale(ctx) {
  const { sizes, notes } = sizesFor(ctx.cpus, ctx.quick)
  for (const note of notes) ctx.say(`scale: ${note}`)
  const servers = []
  try {
    const cells = []
    for (const n of sizes) {
      const models = ['simple', 'millisecond'].map((base) => writeVariant(base, `${base}_of_${n}`, group(n)))
      const server = await startNereid(ctx.root, {
        repository: [MODELS, VARIANTS],
        models,
        flags: [`--reactor-threads=${n}`],
        name: `Nereid, ${n} ${n === 1 ? 'reactor and instance' : 'reactors and instances'}`,
      })
      servers.push(server)
      for (const transport of ['HTTP', 'gRPC']) {
        const shape = SHAPES[transport]
        for (const workload of [
          { ...workloads.simple, model: models[0] },
          { ...workloads.milliseconds(models[1]), name: 'millisecond' },
        ]) {
          const one = {
            ...cell('scale', server, workload, transport, { c: n * shape.connections * shape.streams }),
            ...shape,
            size: n,
          }
          if (ctx.runner.wanted([one]).length === 0) continue
          await ctx.runner.prepare(one)
          cells.push({ ...one, run: (seconds) => ctx.generator.runTogether(one, seconds, n) })
        }
      }
    }
    return { cells: await ctx.runner.measure('scale', cells, ctx), more: { cpus: ctx.cpus, notes } }
  } finally {
    await Promise.all(servers.map((s) => end(s.child)))
  }
}
