/** Prints the answers of `GET /v2/why` and `GET /v2/models/M/why` as text. Pure. */

import { counted, membersOf } from '../../internal.js'
import { longest, nameOf, numberOf, percentOf, timeOf, timeline, wordOf } from './record.js'
import { causeOf, changeOf, isOutside } from './words.js'

/** Requests of a cause that are listed; `--json` prints all. */
const LISTED_MAX = 3

const listOf = (value: unknown): readonly unknown[] => (Array.isArray(value) ? value : [])
const rateOf = (value: unknown): string => `${numberOf(value).toFixed(numberOf(value) < 100 ? 1 : 0)} requests/s`

/** `80.1 requests/s, median 1200 us, p99 3400 us`. */
function figures(value: unknown): string {
  const { rate, p50_us, p99_us } = membersOf(value)
  // An ensemble has no executions of its own.
  if (numberOf(p99_us) === 0) return rateOf(rate)
  return `${rateOf(rate)}, median ${timeOf(p50_us)}, p99 ${timeOf(p99_us)}`
}

/** Names with their shares, largest first. */
function shares(value: unknown): [name: string, share: number][] {
  const all = Object.entries(membersOf(value)).map(([name, share]): [string, number] => [name, numberOf(share)])
  return all.filter(([, share]) => share > 0).toSorted((a, b) => b[1] - a[1])
}

/** The last minutes of a model, and what to change; `changes` are those of a simulation that was asked for. */
export function modelText(value: unknown, changes: string | undefined): string[] {
  const sum = membersOf(value)
  const name = nameOf(sum['model'], sum['version'])
  const [requests, failures] = [numberOf(sum['requests']), numberOf(sum['failures'])]
  if (requests + failures === 0) return [`${name}: no requests in the last ${numberOf(sum['seconds'])} s`]
  const failed = failures === 0 ? '' : `, ${failures} of them failed`
  const [all, batch] = [counted(requests + failures, 'request'), numberOf(sum['batch'])]
  const lines = [
    `${name}, the last ${numberOf(sum['seconds'])} s: ${all}${failed}: ${figures(sum)}`,
    ...(batch > 0 ? [`  ${arrivals(sum)}, in batches of ${batch.toFixed(1)} rows`] : []),
  ]
  const means = membersOf(sum['mean_us'])
  const total = Object.values(means).reduce((n: number, us) => n + numberOf(us), 0)
  lines.push('', 'Where the time went, in the mean:', ...timeline(means, total))
  const causes = shares(sum['causes'])
  if (causes.length > 0)
    lines.push('', 'Why batches began:', ...causes.map(([cause, share]) => `  ${percentOf(share)}: ${causeOf(cause)}`))
  const waits = shares(sum['behind'])
  if (waits.length > 0)
    lines.push('', 'Requests waited for:', ...waits.map(([model, share]) => `  ${percentOf(share)}: ${model}`))
  lines.push('', ...adviceText(sum['advice'], sum['replayed']))
  if (changes !== undefined) lines.push('', ...simulatedText(sum, changes))
  return lines
}

function arrivals({ arrivals, clients }: Readonly<Record<string, unknown>>): string {
  if (arrivals === 'closed')
    return `${counted(numberOf(clients), 'client')} that wait for a response before they send the next request`
  return 'requests arrive independently of responses'
}

function adviceText(advice: unknown, replayed: unknown): string[] {
  const all = listOf(advice).map(membersOf)
  if (all.length === 0 && replayed === false)
    return ['What to change: not known. Changes are tried once enough requests waited or ran on worker threads.']
  if (all.length === 0) return ['What to change: nothing; no setting that the server tried would help.']
  return [
    'What to change:',
    ...all.flatMap(({ change, setting, from, to, text, now, expected }, i) => [
      `  ${i + 1}. ${changeOf(wordOf(change), wordOf(from), wordOf(to))}: ${wordOf(text)}`,
      ...(wordOf(setting) === '' ? [] : [`     ${isOutside(wordOf(change)) ? 'do' : 'write'}: ${wordOf(setting)}`]),
      ...(now === undefined || expected === undefined
        ? []
        : [`     now:      ${figures(now)}`, `     expected: ${figures(expected)}`]),
    ]),
  ]
}

function simulatedText({ simulated, text }: Readonly<Record<string, unknown>>, changes: string): string[] {
  if (simulated === undefined) return [`Not simulated: ${wordOf(text) || 'the server has seen too few requests'}`]
  return [`The same requests with ${changes}:`, `  expected: ${figures(simulated)}`]
}

/** Slow and failed requests that the server keeps. */
export function serverText(value: unknown): string[] {
  const kept = membersOf(value)
  const [slowest, failed] = [listOf(kept['slowest']).map(membersOf), listOf(kept['failed']).map(membersOf)]
  const minutes = numberOf(kept['minutes'])
  if (slowest.length + failed.length === 0) return [`no requests in the last ${minutes} minutes`]
  const lines = [`The slowest requests of the last ${minutes} minutes, by the reason for which their batch began:`]
  for (const { cause, count, requests } of slowest)
    lines.push(`  ${wordOf(cause)} (${numberOf(count)} kept): ${causeOf(wordOf(cause))}`, ...listed(requests))
  if (slowest.length === 0) lines.push('  none')
  lines.push('', 'The last failed requests, by code:')
  for (const { code, count, requests } of failed)
    lines.push(`  ${wordOf(code)} (${numberOf(count)} kept)`, ...listed(requests))
  if (failed.length === 0) lines.push('  none')
  return [...lines, '', 'Explain one: nereid why --id=ID; sum up a model: nereid why MODEL']
}

function listed(requests: unknown): string[] {
  return listOf(requests)
    .slice(0, LISTED_MAX)
    .map((value) => {
      const record = membersOf(value)
      const [phase, us] = longest(record['phases_us'])
      const most = phase === '' ? '' : `, ${timeOf(us)} of it ${phase}`
      const error = wordOf(record['error'])
      return (
        `    ${timeOf(record['total_us'])}${most}: ${nameOf(record['model'], record['version'])}` +
        `${wordOf(record['id']) === '' ? '' : `, id ${wordOf(record['id'])}`}, ${wordOf(record['time'])}` +
        `${error === '' ? '' : `: ${error}`}`
      )
    })
}
