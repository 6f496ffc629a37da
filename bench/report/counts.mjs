/** Counts per request as tables: what a reader of the page and of the Markdown sees. */
import { short, whole } from './format.mjs'

const of = (s) =>
  s === null || s === undefined
    ? '–'
    : s.median >= 1e5
      ? `${(s.median / 2 ** 20).toFixed(2)} MiB`
      : s.median < 0.05
        ? '0'
        : s.median >= 100
          ? whole(s.median)
          : s.median.toFixed(1).replace(/\.0$/, '')
const listed = (calls) =>
  Object.entries(calls)
    .filter(([, n]) => n >= 0.05)
    .toSorted((a, b) => b[1] - a[1])
    .map(([name, n]) => `${name} ${short(n)}`)
    .join(', ')

export const COUNTS_TEXT =
  'What one request makes the server do; no clock is involved. A library in front of the C library counts ' +
  'the calls of our native module and of ONNX Runtime; the kernel’s own count of system calls stands beside it, ' +
  'and what strace counts, which slows the server down. “Tensor bytes” are copies in pieces of 4 KiB and ' +
  'more; smaller ones are moves of the request’s own values and do not grow with the tensor. ' +
  'The identity model itself copies its 16 MiB inside ONNX Runtime; our own identity, which has to copy from ' +
  'one region into the other, shows that copies of ours would be seen.'

export const COUNTS_HEAD = [
  'request',
  'system calls of our module',
  'all system calls: kernel',
  'strace',
  'our allocations (bytes)',
  'tensor bytes we copy',
  'small moves, bytes',
  'ONNX Runtime: allocations, bytes copied',
]

export function countRows(counts) {
  return counts.rows.map((r) => [
    r.label,
    `${of(r.ours.systemCalls)}: ${listed(r.ours.calls)}`,
    of(r.kernelSystemCalls),
    r.strace === null ? '–' : short(Object.values(r.strace).reduce((a, b) => a + b, 0)),
    `${of(r.ours.allocations)} (${of(r.ours.allocatedBytes)})`,
    of(r.ours.largeCopiedBytes),
    whole(r.ours.copiedBytes.median - r.ours.largeCopiedBytes.median),
    `${of(r.onnxruntime.allocations)}, ${of(r.onnxruntime.copiedBytes)}`,
  ])
}

export const SITES_HEAD = ['request', 'who', 'times', 'bytes']

/** Who asks for memory, and who copies most; only where stacks were taken. */
export function siteRows(counts) {
  return counts.rows.flatMap((r) =>
    (r.sites ?? []).map((s) => [
      r.label,
      `${s.kind} by ${s.by}${s.under === '' ? '' : `, for ${s.under}`}`,
      short(s.calls),
      whole(s.bytes),
    ]),
  )
}
