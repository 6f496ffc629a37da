/** Results of the suite `client`. */
import { whole, withRange } from './format.mjs'

export const CLIENT_TEXT =
  "One process of `nereid-client` and one of Python's tritonclient ask the same server in turn: requests per " +
  "second, and CPU time of the client's own process."
export const CLIENT_HEAD = ['', 'requests/s', "tritonclient's", 'ratio', 'CPU µs/request', "tritonclient's", 'ratio']

export const clientRows = ({ rows }) =>
  rows.map(({ what, rate, cpuUs }) => [
    what,
    ...[rate, cpuUs].flatMap(({ ours, theirs, ratio }) => [withRange(ours), withRange(theirs), withRange(ratio)]),
  ])

export const clientNotes = ({ streams }) =>
  streams.map(
    ({ transport, answers, rate, grewMiB, peakMiB }) =>
      `${answers.toLocaleString('en')} answers of one request over ${transport}, ${whole(rate)} a second: ` +
      `memory grew by ${grewMiB.toFixed(1)} MiB behind the first fifth, ${whole(peakMiB)} MiB at most`,
  )
