/** Models that run their input CODE as `execute`, and answer `done` or a text of its own. */
import { until } from './wait.mjs'

const MIB = 1 << 20
/** Memory that the code of a model may make the server keep, beyond its earlier value. */
const GROWTH_MIB_MAX = 256

/** The body of a request that runs code. */
export const bodyOf = (code) =>
  JSON.stringify({ inputs: [{ name: 'CODE', shape: [1], datatype: 'BYTES', data: [code] }] })

/** Has a model run code: the status, and its output or the error. */
export async function run(t, model, code) {
  const { status, text } = await t.post(`/v2/models/${model}/infer`, bodyOf(code))
  const found = JSON.parse(text)
  return { status, said: status === 200 ? found.outputs[0].data[0] : found.error }
}

/** A process or a worker that was ended is back, at the latest after the pause that follows many ends. */
export async function again(t, model) {
  let found
  await until(async () => (found = await run(t, model, '')).status === 200, { everyMs: 50, seconds: 60 })
  return found
}

/** Runs code beside questions for health; the server may not grow by much, and the model answers again. */
export async function bounded(t, model, code, expected) {
  const before = t.rssMiB()
  const { result, worstMs } = await t.health(() => run(t, model, code))
  const grown = t.rssMiB() - before
  t.check(expected.test(`${result.status} ${result.said}`), `answered ${result.status} ${result.said.slice(0, 300)}`)
  t.check(grown < GROWTH_MIB_MAX, `resident memory grew by ${grown} MiB`)
  const next = await again(t, model)
  t.check(next.status === 200 && next.said === 'done', `then answered ${next.status} ${next.said.slice(0, 300)}`)
  return `${result.status}, +${grown.toFixed(0)} MiB, health within ${worstMs.toFixed(0)} ms`
}

/** Runs code that prints a line of 64 KiB again and again, and code that logs it: the log may not grow by as much. */
export async function boundedLog(t, lines, prints, logs) {
  /** MiB of log that a code makes. */
  const logged = async (code) => {
    const before = t.printedBytes
    await bounded(t, 'one', code, /^200 done/)
    return (t.printedBytes - before) / MIB
  }
  const printed = await logged(prints)
  const written = await logged(logs)
  t.check(printed < 2, `${printed.toFixed(1)} MiB of log for what it printed`)
  // The text, and what stands in front of it.
  const most = (lines * (16_384 + 256)) / MIB + 2
  t.check(written < most, `${written.toFixed(0)} MiB of log for what it logged`)
  return (
    `${lines / 16} MiB each: ${printed.toFixed(1)} MiB of log for what it printed, ${written.toFixed(0)} ` +
    'MiB for what it logged'
  )
}
