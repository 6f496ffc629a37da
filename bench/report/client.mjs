/** What the suite `client` found. */
import { whole, withRange } from './format.mjs'

export const CLIENT_TEXT = "One process of `nereid-client` and one of Python's tritonclient ask the same server in turn: requests per second, and CPU time of the client's own process."
export const CLIENT_HEAD = ['', 'requests/s', "tritonclient's", 'ratio', 'CPU µs/request', "tritonclient's", 'ratio']

export const clientRows = ({ rows }) => rows.map(({ what, rate, cpuUs }) => [what, ...[rate, cpuUs].flatMap(({ ours, theirs, ratio }) => [withRange(ours), withRange(theirs), withRange(ratio)])])

export const clientNote = ({ stream }) => `${stream.answers.toLocaleString('en')} answers of a stream, ${whole(stream.rate)} a second: memory grew by ${stream.grewMiB.toFixed(1)} MiB behind the first fifth, ${whole(stream.peakMiB)} MiB at most`

export function clientTargets(result, row, single) {
  for (const { what, rate, cpuUs } of result.client?.rows ?? []) {
    row(`client, ${what}: rate ÷ tritonclient's`, 1, 'least', rate.ratio)
    row(`client, ${what}: CPU per request ÷ tritonclient's`, 1, 'most', cpuUs.ratio)
  }
  if (result.client) row('client: growth of memory over a million answers', 32, 'most', single(result.client.stream.grewMiB), { unit: 'MiB' })
}
