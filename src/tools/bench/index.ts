/**
 * `nereid bench`: measures a server of the v2 protocol, finds the highest rate within a latency, or compares two
 * servers.
 *
 * Exit code 0 if it has measured, 1 if the server failed or the goal was not reached, 2 for wrong arguments, and 130
 * if a signal ended it before all loads or pairs were measured.
 */

import { writeFileSync } from 'node:fs'
import { ClientError } from 'nereid/client'
import { CommandError, printable } from '../../internal.js'
import { timeOf } from '../why/record.js'
import { compare } from './compare.js'
import { Generator } from './generator.js'
import { failedText, search, type Found } from './goal.js'
import { Subject, judged, measure, type Row } from './measure.js'
import { reportOf } from './report.js'
import { settingsOf, type Settings } from './settings.js'
import {
  comparisonLines,
  csvOf,
  failureLines,
  foundLines,
  loadText,
  rateText,
  remarkLines,
  tableLines,
} from './table.js'

/** Exit code of a program that SIGINT ended. */
const ENDED = 130

export async function run(program: string, args: readonly string[]): Promise<number> {
  let settings: Settings
  try {
    settings = settingsOf(args)
  } catch (error) {
    if (!(error instanceof CommandError)) throw error
    process.stderr.write(`${error.message}; see ${program} help bench\n`)
    return 2
  }
  const progress = new ProgressLine()
  for (const note of settings.notes) progress.say(`note: ${note}`)
  let generator: Generator | null = null
  const subjects: Subject[] = []
  const stop = (): void => {
    // The second one waits for nothing.
    if (generator === null || generator.isStopped) {
      generator?.close()
      process.exit(ENDED)
    }
    generator.stop()
  }
  process.on('SIGINT', stop).on('SIGTERM', stop)
  try {
    generator = new Generator(({ requests, errors, rate, p99_us: p99 }) => {
      const failed = errors > 0 ? `, ${errors} of ${requests + errors} FAILED` : ''
      progress.show(`${rateText(rate)} requests/s, p99 ${timeOf(p99)}${failed}`)
    })
    for (const target of settings.targets) subjects.push(await Subject.open(target, settings, generator))
    return await measured(subjects, generator, settings, progress)
  } catch (error) {
    if (!(error instanceof CommandError) && !(error instanceof ClientError)) throw error
    const isEnded = generator?.isStopped === true
    progress.say(isEnded ? 'ended early: nothing was measured' : error.message)
    return isEnded ? ENDED : 1
  } finally {
    // Once it was told to end, a further Ctrl-C must not change how it ends.
    if (generator?.isStopped !== true) process.off('SIGINT', stop).off('SIGTERM', stop)
    for (const subject of subjects) await subject.close().catch(() => {})
    generator?.close()
  }
}

async function measured(
  [subject, other]: readonly Subject[],
  generator: Generator,
  settings: Settings,
  progress: ProgressLine,
): Promise<number> {
  if (subject === undefined) throw new TypeError('there is no server')
  const title = titleOf(subject, settings)
  if (other !== undefined) {
    const comparison = await compare([subject, other], generator, settings, (done) => {
      progress.prefix = `pair ${done} of ${settings.pairs}: `
    })
    progress.clear()
    const { pairs, results, problem } = comparison
    const lines = [...comparisonLines(comparison, [subject.target.url, other.target.url]), ...stoppedLines(generator)]
    print(settings, lines, { title, ...comparison })
    if (generator.isStopped && pairs < settings.pairs) return ENDED
    return problem === null && results.flat().every(({ errors, requests }) => errors === 0 && requests > 0) ? 0 : 1
  }
  const rows: Row[] = []
  let found: Found | null = null
  let problem: string | null = null
  const { goal } = settings
  if (goal !== null) {
    progress.prefix = 'capacity: '
    found = await search(subject, generator, settings, goal, (row, reason) => {
      rows.push(row)
      progress.prefix = 'search: '
      if (row.kept === undefined) return
      const figure = `${goal.statistic} ${timeOf(row.result.latency_us[goal.statistic])}`
      progress.say(`${loadText(row.load)}: ${reason === null ? `${figure}, kept` : `not kept: ${reason}`}`)
    })
    problem = found.problem
  } else {
    for (const load of settings.loads) {
      progress.prefix = `${loadText(load)}: `
      let row: Row | null
      try {
        row = await measure(subject, generator, settings, load, ({ windows }) => {
          if (settings.stopWithin !== null) progress.prefix = `${loadText(load)}, window ${windows.length + 1}: `
        })
      } catch (error) {
        // The rows before it are printed and written all the same.
        if (!(error instanceof CommandError)) throw error
        problem = `with ${loadText(load)}: ${error.message}`
        break
      }
      if (row === null) break
      rows.push(row)
      problem = row.problem
      const { result } = row
      const failed = result.errors > 0 ? `, ${failedText(result)}` : ''
      progress.done(`${rateText(result.rate)} requests/s, p50 ${timeOf(result.latency_us.p50)}${failed}`)
      const isSlow = settings.latencyMaxUs !== null && judged(result, settings) > settings.latencyMaxUs
      if (isSlow || problem !== null || generator.isStopped) break
    }
  }
  progress.clear()
  const lost = problem === null || rows.some((row) => row.problem !== null) ? [] : [`FAILED ${printable(problem)}`]
  const lines = [
    ...failureLines(rows),
    ...lost,
    title,
    ...(rows.length === 0 ? [] : tableLines(rows, settings)),
    ...remarkLines(rows, settings),
    ...(goal === null || found === null ? [] : foundLines(goal, found, generator.isStopped)),
    ...stoppedLines(generator),
  ]
  print(settings, lines, { title, rows, goal, found, problem })
  if (settings.csv !== null) save('csv', settings.csv, csvOf(rows, settings, subject.model.isDecoupled))
  if (settings.report !== null) save('report', settings.report, reportOf(title, lines, rows, goal, new Date()))
  const isMissing = found === null ? rows.length < settings.loads.length : found.runs === 0
  if (generator.isStopped && isMissing) return ENDED
  const hasFailed = rows.some(({ result }) => result.errors > 0 || result.requests === 0)
  const isMissed = found !== null && found.rate === 0
  // Rates that fail are what a search looks for.
  return problem !== null || (found === null && hasFailed) || isMissed ? 1 : 0
}

/** Says in a line what is measured. */
function titleOf({ target, model, requestBytes }: Subject, settings: Settings): string {
  const { endpoint, batch, sharedMemory, loads, arrivals, goal } = settings
  const version = model.version === '' ? '' : ` version ${model.version}`
  const rows = batch > 1 ? `, batches of ${batch}` : ''
  const memory = sharedMemory ? ', tensors in shared memory' : ''
  const open = goal !== null || loads.some(({ kind }) => kind === 'rate') ? `, ${arrivals} arrivals` : ''
  const what = `${model.name}${version}, ${endpoint} at ${target.url}`
  return printable(`${what}: requests of ${requestBytes} bytes${rows}${memory}${open}`)
}

const stoppedLines = ({ isStopped }: Generator): string[] =>
  isStopped ? ['ended early: this is what was measured'] : []

function print({ json }: Settings, lines: readonly string[], value: object): void {
  const text = `${JSON.stringify(value, null, 2)}\n`
  if (json === '') process.stdout.write(text)
  else process.stdout.write(`${lines.join('\n')}\n`)
  if (json !== null && json !== '') save('json', json, text)
}

function save(option: string, path: string, text: string): void {
  try {
    writeFileSync(path, text)
  } catch (error) {
    throw new CommandError(`--${option}=${path}: ${error instanceof Error ? error.message : String(error)}`)
  }
}

/** The last line of a terminal, which shows what goes on; nothing elsewhere. */
class ProgressLine {
  prefix = ''
  readonly #isShown = process.stderr.isTTY === true

  show(text: string): void {
    if (this.#isShown) process.stderr.write(`\r\u001b[K${this.prefix}${text}`)
  }

  clear(): void {
    if (this.#isShown) process.stderr.write('\r\u001b[K')
  }

  /** A line that stays, of a load that the table will have as well. */
  done(text: string): void {
    if (this.#isShown) this.say(`${this.prefix}${text}`)
  }

  /** A line that stays. */
  say(text: string): void {
    this.clear()
    process.stderr.write(`${printable(text)}\n`)
  }
}
