/**
 * Cells: one subject under one load. A suite lists them; here they are prepared, checked, and measured in turn: every
 * repetition visits every cell of its suite once, so that whatever else the machine does falls on all of them.
 */
import { signalAll } from './process.mjs'
import { spread } from './stats.mjs'

/** How a number of concurrent requests is spread: connections × streams. HTTP/1.1 has one request per connection. */
function shape(transport, c) {
  if (transport === 'HTTP' || c <= 8) return { connections: c, streams: 1 }
  return { connections: Math.ceil(c / 8), streams: 8 }
}

/**
 * @param traffic `varied`: every request differs, as those of real clients do; `repeated`: always the same bytes.
 *   Shared memory is always repeated: the data are in the region.
 * @param times how often a repetition measures it: more where a target is close to what is found
 * @param busy processes that compute meanwhile, on a core each where there are enough
 */
export function cell(
  suite,
  subject,
  workload,
  transport,
  { form = 'binary', c, rate = null, traffic = 'varied', ...more },
) {
  const ours =
    subject.models === undefined ? workload : { ...workload, model: subject.models[workload.model] ?? workload.model }
  const load = rate === null ? `c=${c}` : `${Math.round(rate)}/s`
  const kind = form === 'shm' || workload.vary === undefined ? 'repeated' : traffic
  const name = [
    suite,
    workload.name,
    transport,
    ...(form === 'binary' ? [] : [form]),
    subject.name,
    load,
    ...(kind === 'repeated' ? [kind] : []),
  ].join(' · ')
  return {
    suite,
    name,
    subject,
    workload: ours,
    transport,
    form,
    c,
    rate,
    traffic: kind,
    ...shape(transport, c),
    runs: [],
    ...more,
  }
}

/** One repetition: every cell once, then again those that are measured more `times`, in turn as before. */
function rounds(cells) {
  const most = Math.max(...cells.map(({ times = 1 }) => times))
  return Array.from({ length: most }, (_, round) => cells.filter(({ times = 1 }) => times > round)).flat()
}

/** Stops a server that computes while nobody asks, unless it does the work meanwhile: others are measured beside it. */
async function awake({ isRestless = false, pids }, work) {
  const signal = (name) => isRestless && signalAll(pids(), name)
  signal('SIGCONT')
  try {
    return await work()
  } finally {
    signal('SIGSTOP')
  }
}

export class Runner {
  #generator
  #say
  #filter
  #checked = new Map()
  /** Cells that could not be measured, with the reason. */
  failed = []

  constructor(generator, { filter, say }) {
    this.#generator = generator
    this.#filter = filter
    this.#say = say
  }

  wanted(cells) {
    return cells.filter((c) => c.name.includes(this.#filter))
  }

  /** Makes the request of a cell and checks answers, once per subject and workload. Resolves with the answer. */
  async prepare(cell) {
    const key = [
      cell.subject.name,
      cell.subject.http,
      cell.workload.name,
      cell.workload.model,
      cell.transport,
      cell.form,
      cell.traffic,
    ].join('\0')
    if (!this.#checked.has(key)) {
      const request = [cell.subject, cell.workload, cell.transport, cell.form, cell.regions]
      cell.target = this.#generator.target(...request)
      if (cell.traffic === 'varied') cell.ring = this.#generator.ring(...request)
      const answer = await awake(cell.subject, () => this.#generator.check(cell))
      this.#checked.set(key, { target: cell.target, ring: cell.ring, answer })
    }
    const { target, ring, answer } = this.#checked.get(key)
    Object.assign(cell, { target, ring })
    return answer
  }

  /** Measures the cells that pass the filter; the others are dropped. Returns the measured ones. */
  async measure(title, cells, { repetitions, seconds }) {
    const ready = []
    for (const cell of this.wanted(cells)) {
      try {
        if (cell.run === undefined) {
          await this.prepare(cell)
          await this.run(cell, Math.min(0.3, seconds / 3))
        }
        ready.push(cell)
      } catch (error) {
        this.failed.push({ name: cell.name, reason: error.message })
        this.#say(`cannot measure ${cell.name}: ${error.message}`)
      }
    }
    if (ready.length === 0) return ready
    const length = (cell) => cell.seconds ?? seconds
    const total = rounds(ready).reduce((sum, cell) => sum + length(cell), 0) * repetitions
    this.#say(`${title}: ${ready.length} cells × ${repetitions} repetitions, ${Math.ceil(total)} s …`)
    for (let repetition = 0; repetition < repetitions; repetition += 1) {
      // Each repetition starts elsewhere: nobody is always measured after the same neighbour.
      const from = Math.floor((repetition * ready.length) / repetitions)
      const turn = [...ready.slice(from), ...ready.slice(0, from)]
      for (const cell of rounds(turn)) {
        const run =
          cell.run === undefined ? this.run(cell, length(cell), { seed: repetition + 1 }) : cell.run(length(cell))
        try {
          cell.runs.push(await run)
        } catch (error) {
          this.failed.push({ name: cell.name, reason: error.message })
          this.#say(`${cell.name}: ${error.message}`)
        }
      }
    }
    for (const cell of ready) {
      const errors = cell.runs.reduce((n, r) => n + r.errors, 0)
      if (errors > 0)
        this.#say(`${cell.name}: ${errors} errors, first: ${cell.runs.find((r) => r.errors > 0).firstError}`)
    }
    return ready
  }

  /** One timed run of a cell that is prepared. */
  async run(cell, seconds, options) {
    const ends = Array.from({ length: cell.busy ?? 0 }, () => this.#generator.beside('compute'))
    try {
      return await awake(cell.subject, () => this.#generator.run(cell, seconds, options))
    } finally {
      await Promise.all(ends.map((end) => end()))
    }
  }
}

const FIGURES = ['rate', 'p50', 'p90', 'p99', 'p999', 'cpuUs', 'cpuMainUs', 'clientCpuUs']

/** The record of a cell: figures over the repetitions, and each repetition's own. */
export function summary(cell) {
  const { suite, name, transport, form, traffic, c, rate, connections, streams, runs } = cell
  return {
    suite,
    name,
    subject: cell.subject.name,
    kind: cell.subject.kind,
    workload: cell.workload.name,
    bytes: cell.workload.bytes ?? null,
    transport,
    form,
    traffic,
    c,
    targetRate: rate,
    connections,
    streams,
    ...Object.fromEntries(FIGURES.map((key) => [key, spread(runs.map((r) => r[key]))])),
    errors: runs.reduce((n, r) => n + r.errors, 0),
    unsent: runs.reduce((n, r) => n + r.unsent, 0),
    runs,
  }
}
