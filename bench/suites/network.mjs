/** The suites that compare servers under load: small requests, sizes, latency over rate. */
import { cell } from '../lib/cells.mjs'
import { makeRegions } from '../lib/regions.mjs'
import { BARE, FLOORS } from '../subjects/floors.mjs'
import * as workloads from '../workloads.mjs'

const TRANSPORTS = ['HTTP', 'gRPC']
const speaks = (subject, transport) => (subject.transports ?? TRANSPORTS).includes(transport)
const serves = (subject, workload) => subject.models === undefined || workload.model in subject.models

/** Floors for a workload: they need Nereid's answer first. */
export async function floors(ctx, suite, workload, transport, form, loads) {
  const cells = []
  const asked = cell(suite, ctx.nereid, workload, transport, { form, c: 8 })
  const wanted = FLOORS[transport].filter((name) =>
    loads.some((load) => ctx.runner.wanted([cell(suite, { name }, workload, transport, { form, ...load })]).length > 0),
  )
  if (wanted.length === 0) return cells
  const answer = await ctx.runner.prepare(asked)
  for (const name of wanted) {
    const subject = await ctx.floors.get(
      name,
      `${workload.name} ${form}`,
      answer,
      form === 'binary' ? (workload.bytes ?? 0) : 0,
    )
    for (const load of loads) cells.push(cell(suite, subject, workload, transport, { form, ...load }))
  }
  return cells
}

/**
 * `simple` at 1, 8 and 32 requests at a time; the same request repeated beside it, where a target compares.
 */
export async function front(ctx) {
  const cells = []
  const loads = [1, 8, 32].map((c) => ({ c }))
  const both = [...loads, ...loads.map((load) => ({ ...load, traffic: 'repeated' }))]
  for (const transport of TRANSPORTS) {
    for (const subject of [ctx.nereid, ...ctx.tritons]) {
      if (!speaks(subject, transport) || !serves(subject, workloads.simple)) continue
      const form = transport === 'HTTP' ? (subject.form ?? 'binary') : 'binary'
      const isCompared = subject === ctx.nereid || subject === ctx.tritonReference
      for (const load of isCompared ? both : loads)
        cells.push(cell('front', subject, workloads.simple, transport, { form, ...load }))
    }
    cells.push(...(await floors(ctx, 'front', workloads.simple, transport, 'binary', both)))
  }
  // The lowest echoes are context, not targets of their own: once is enough.
  const kept = cells.filter((x) => !BARE.includes(x.subject.name) || (x.c === 8 && x.traffic === 'varied'))
  // Targets compare Nereid with an echo.
  const isJudged = ({ subject: { name }, c, traffic }) =>
    !ctx.quick && c > 1 && traffic === 'varied' && ['Nereid', 'hyper echo', 'h2 echo'].includes(name)
  return ctx.runner.measure(
    'small requests',
    kept.map((x) => ({ ...x, times: isJudged(x) ? 3 : 1 })),
    ctx,
  )
}

const LARGE = 16 << 20

/** The same floats back: 64 B to 16 MiB, as binary, JSON and through shared memory; strings. */
export async function sizes(ctx) {
  const cells = []
  const list = ctx.quick ? [LARGE] : [64, 1 << 10, 64 << 10, 1 << 20, LARGE]
  const add = async (workload, transport, form, load, withFloors = true) => {
    for (const subject of [ctx.nereid, ...ctx.tritons]) {
      if (subject.name === 'Triton (response cache)' || !serves(subject, workload)) continue
      cells.push(cell('sizes', subject, workload, transport, { form, ...load }))
    }
    if (withFloors) cells.push(...(await floors(ctx, 'sizes', workload, transport, form, [load])))
  }
  for (const bytes of list) {
    const load = { c: bytes >= 1 << 20 ? 2 : 8 }
    for (const transport of TRANSPORTS) await add(workloads.identity(bytes), transport, 'binary', load)
  }
  await add(workloads.identity(1 << 20), 'HTTP', 'json', { c: 2 }, false)
  if (!ctx.quick) {
    for (const bytes of [64, 64 << 10]) await add(workloads.strings(bytes), 'HTTP', 'binary', { c: 8 }, false)
  }
  for (const transport of TRANSPORTS) await add(workloads.strings(12, 4096), transport, 'binary', { c: 8 }, false)
  // Each server has regions of its own: two writers must not make each other's output look right.
  for (const [i, subject] of [ctx.nereid, ...ctx.tritons].entries()) {
    const workload = workloads.identity(
      LARGE,
      subject.models?.identity_onnx === undefined && subject !== ctx.nereid ? 'identity' : 'identity_onnx',
    )
    const wanted = cell('sizes', subject, workload, 'HTTP', { form: 'shm', c: 1 })
    if (
      subject.name === 'Triton (response cache)' ||
      !serves(subject, workload) ||
      ctx.runner.wanted([wanted]).length === 0
    )
      continue
    const { regions, verify } = await makeRegions(subject.http, workload, i)
    cells.push({ ...wanted, regions, verifyRegion: verify })
    cells.push({ ...cell('sizes', subject, workload, 'HTTP', { form: 'shm', c: 8 }), regions, verifyRegion: verify })
  }
  return ctx.runner.measure('sizes', cells, ctx)
}

/**
 * Latency over rate, open loop. Rates are shares of what Triton can do, or of what Nereid can do where there is no
 * Triton.
 */
export async function curves(ctx, frontCells) {
  const cells = []
  for (const transport of TRANSPORTS) {
    const best = (name) =>
      Math.max(
        0,
        ...frontCells
          .filter((c) => c.subject.name === name && c.transport === transport)
          .flatMap((c) => c.runs.map((r) => r.rate)),
      )
    const own = best(ctx.nereid.name) || (await saturation(ctx, ctx.nereid, transport))
    const triton = ctx.tritonReference
    const theirs = triton === null ? 0 : best(triton.name) || (await saturation(ctx, triton, transport))
    const shares = ctx.quick ? [0.2, 0.4, 0.7] : [0.1, 0.2, 0.4, 0.6, 0.8]
    const load = (rate) => ({ c: 64, rate })
    // Targets compare those of 20 and 40 %, whose p99 of a second differs by half from run to run.
    const times = (share) => (!ctx.quick && (share === 0.2 || share === 0.4) ? 3 : 1)
    if (triton !== null) {
      for (const share of shares) {
        for (const subject of [ctx.nereid, triton]) {
          cells.push(
            cell('curves', subject, workloads.simple, transport, {
              ...load(theirs * share),
              share,
              of: 'Triton',
              times: times(share),
            }),
          )
        }
      }
    }
    for (const share of triton === null ? shares : [0.6, 0.8]) {
      cells.push(cell('curves', ctx.nereid, workloads.simple, transport, { ...load(own * share), share, of: 'Nereid' }))
    }
    if (ctx.quick) break
    const rates = cells.filter((c) => c.transport === transport && c.subject === ctx.nereid).map((c) => c.rate)
    cells.push(
      ...(await floors(ctx, 'curves', workloads.simple, transport, 'binary', rates.map(load))).filter(
        (c) => !BARE.includes(c.subject.name),
      ),
    )
  }
  return ctx.runner.measure('latency over rate', cells, ctx)
}

async function saturation(ctx, subject, transport) {
  const one = cell('curves', subject, workloads.simple, transport, { c: 32 })
  if (ctx.runner.wanted([one]).length === 0 && ctx.filtered) return 1000
  await ctx.runner.prepare(one)
  return (await ctx.generator.run(one, 1)).rate
}
