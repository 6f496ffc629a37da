/** The suite `peers`: Nereid beside what would be taken instead. The table of the README is made of it, too. */
import { pairedRatio } from '../lib/stats.mjs'
import {
  ECHO,
  FASTAPI,
  FASTIFY,
  LITSERVE,
  PEERS_CONCURRENCY,
  PEER_MODELS,
  SENTENCES,
  TRITON,
  UWS,
} from '../suites/peers.mjs'
import { cellWith, short } from './format.mjs'

const SERVERS = [TRITON, FASTAPI, LITSERVE, UWS, ECHO]
const KEYS = ['rate', 'p50', 'p99', 'cpuUs']
const rateText = (rate) => (rate >= 10_000 ? `${Math.round(rate / 1000)}k/s` : `${short(rate)}/s`)
const timeText = (us) => (us >= 1000 ? `${short(us / 1000)} ms` : `${short(us)} µs`)

export const PEERS_TEXT =
  'One model after the other, each server asked in turn over HTTP in its own protocol, by so many clients at once ' +
  "that wait for each answer. Figures of others are multiples of Nereid's, which has its defaults."

/** Settings of the other servers; `cpus` and versions are those of the run. */
export const peerNotes = ({ cpus, packages, chosen }) => {
  const version = (name) => packages.find((one) => one.startsWith(name))?.split('==')[1] ?? ''
  const tried = chosen.map((one) => `${one.subject} c=${one.c}: ${one.setting}`).join(', ')
  return [
    `Triton 2.51, of nvidia-pytriton ${version('nvidia-pytriton')}, has no backend but Python: each ` +
      `model is a model.py with onnxruntime or XGBoost in ${cpus} instances with one thread each, with dynamic ` +
      'batching. Nereid has the same file and configuration for the model “Python”.',
    `FastAPI ${version('fastapi')}: ${cpus} processes of uvicorn with uvloop and httptools, raw bytes in and out; ` +
      `onnxruntime ${version('onnxruntime')} and XGBoost ${version('xgboost')} with one thread in each.`,
    `LitServe ${version('litserve')}: ${cpus} workers and as many servers, \`fast_queue\`, batches of at most 32 ` +
      'after 1 ms, lists in JSON. It takes a fifth of a core without requests, and is stopped while others are measured.',
    'uWebSockets.js and Fastify: one process, raw bytes, onnxruntime-node with one thread for each run.',
    'MiniLM: texts of 8–128 tokens in words of the vocabulary; batches of others are sorted by length, at most 256 ' +
      `tokens each. Processes × threads that were fastest in a second: ${tried || 'not tried'}.`,
    'Trees: 500 of depth 8, one row of 40 features. The hyper echo returns the bytes of Nereid and runs no model.',
  ]
}

const at = (result, subject, workload, c) => cellWith(result.cells, { suite: 'peers', subject, workload, c })

/** Rows of each model and number of clients, cells by server: figures of Nereid, and of others as multiples of them. */
function rowsOf(result, servers, keys, clients = PEERS_CONCURRENCY) {
  const rows = Object.values(PEER_MODELS).flatMap((workload) => clients.map((c) => ({ workload, c })))
  return rows
    .filter(({ workload, c }) => at(result, 'Nereid', workload, c)?.rate)
    .map(({ workload, c }) => {
      const ours = at(result, 'Nereid', workload, c)
      const own = keys.map((key) => (key === 'rate' ? rateText : timeText)(ours[key].median))
      const others = servers.map((server) => {
        const theirs = at(result, server, workload, c)
        if (!theirs?.rate) return '–'
        return keys.map((key) => short(pairedRatio(theirs, ours, key).median)).join(' · ')
      })
      return [`${workload}, c=${c}`, own.join(' · '), ...others]
    })
}

const headOf = (names, servers) => [names.join(' · '), '**Nereid**', ...servers]

export const PEERS_HEAD = headOf(['rate', 'p50', 'p99', 'CPU per request'], [...SERVERS, FASTIFY, SENTENCES])
export const peerRows = (result) => rowsOf(result, [...SERVERS, FASTIFY, SENTENCES], KEYS)

/** The table of the README, which is short, as lines of Markdown. */
export function readmeTable(result) {
  const head = headOf(['rate', 'p99', 'CPU per request'], SERVERS)
  const rows = rowsOf(result, SERVERS, ['rate', 'p99', 'cpuUs'], [1, 32])
  return [head, head.map(() => '---'), ...rows].map((row) => `| ${row.join(' | ')} |`)
}

/** The README's sentence about the library that most would take for vectors. */
export function sentencesText(result) {
  const [theirs, ours] = [SENTENCES, 'Nereid'].map((subject) => at(result, subject, PEER_MODELS.texts, 8))
  if (!theirs?.rate || !ours?.rate) return ''
  const ratio = (key) => short(pairedRatio(theirs, ours, key).median)
  return `MiniLM behind ${SENTENCES} has ${ratio('rate')} of the rate at ${ratio('cpuUs')} of the CPU, c=8. `
}

/** Targets: Node's servers with the same network. */
export function peerTargets(result, { row, ratio }) {
  for (const [server, limit] of [
    [FASTIFY, 5],
    [UWS, 2.5],
  ]) {
    for (const c of [8, 32]) {
      const [ours, theirs] = ['Nereid', server].map((subject) => at(result, subject, PEER_MODELS.simple, c))
      row(
        `HTTP \`simple\`, c=${c}: throughput ÷ ${server} + onnxruntime-node`,
        limit,
        'least',
        ratio(ours, theirs, 'rate'),
      )
    }
  }
}
