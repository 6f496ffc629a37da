/**
 * Answers to a key whose quota is used up, and requests that the quota does not cover, from curl and tritonclient with
 * one key.
 */
import { spawn } from 'node:child_process'
import { end } from '../../bench/lib/process.mjs'
import { bearer } from './sections.mjs'

const SECONDS = 20
/** A key for each, made by `nereid key`. Rates that give nothing back while a row is asked. */
export const QUOTAS = {
  concurrency: ['--concurrency=1'],
  requests: ['--requests-per-second=0.01', '--burst=2'],
  bytes: ['--bytes-per-second=1'],
}
const OPEN = { http: '200', grpc: 'OK' }
const REFUSED = { http: '429, `Retry-After`', grpc: 'RESOURCE_EXHAUSTED, `grpc-retry-pushback-ms`' }
const LARGE = JSON.stringify({ INPUT0: Array.from({ length: 20_000 }, () => 1) })

/**
 * In this order. `grpc: null`: over HTTP alone; `held`: while such a request is open; `body`: an inference, instead of
 * what the server is.
 */
const ROWS = [
  { title: '`concurrency`: while another request of the key is open', key: 'concurrency', held: true, ...REFUSED },
  { title: '`concurrency`: after that request', key: 'concurrency', ...OPEN },
  { title: '`requests_per_second`: within `burst`', key: 'requests', ...OPEN },
  { title: '`requests_per_second`: beyond `burst`', key: 'requests', ...REFUSED },
  { title: '`bytes_per_second`: the first request, of any size', key: 'bytes', body: LARGE, ...OPEN, grpc: null },
  { title: '`bytes_per_second`: the next request', key: 'bytes', ...REFUSED },
  { title: 'another key at the same time', key: 'operator', ...OPEN },
]

/** The rows as docs/security/permissions.md has them. */
export function quotaText() {
  const rows = ROWS.map(({ title, http, grpc }) => `| ${title} | ${http} | ${grpc ?? ''} |`)
  return (
    '## Quotas of keys\n\n`--keys-file=keys.json`\n\n| request | HTTP | gRPC ' +
    `|\n|---|---|---|\n${rows.join('\n')}\n`
  )
}

/** curl with a key; what it prints, head and body. `body` `null`: one that does not end until `child.stdin.end()`. */
function curl(origin, key, body) {
  const args = ['--silent', '--show-error', '--include', '--max-time', String(SECONDS), '--header', `X-API-Key: ${key}`]
  if (body === undefined) args.push(`${origin}/v2`)
  else
    args.push(
      '--header',
      'Expect:',
      '--request',
      'POST',
      '--upload-file',
      '-',
      `${origin}/v2/models/identity_fp32/generate`,
    )
  const child = spawn('curl', args)
  let text = ''
  for (const stream of [child.stdout, child.stderr]) stream.on('data', (chunk) => (text += chunk))
  child.stdin.on('error', () => {})
  if (body !== null) child.stdin.end(body)
  const printed = new Promise((resolve, reject) => child.once('error', reject).once('close', () => resolve(text)))
  return { child, printed }
}

async function overHttp(origin, key, body) {
  const text = await curl(origin, key, body).printed
  const status = /^HTTP\/1\.1 (\d+)/.exec(text)?.[1] ?? 'no answer'
  const seconds = Number(/^retry-after: (\d+)\r?$/im.exec(text)?.[1] ?? 0)
  return { said: `${status}${seconds >= 1 ? ', `Retry-After`' : ''}`, text }
}

async function overGrpc(context, to, key) {
  const verb = { id: 'metadata_call', grpc: 'ServerMetadata' }
  const [status, text] = (await context.grpc.ask({ ...to, headers: bearer(key).grpc }, [verb], context)).get(verb.id)
  const ms = Number(/\(retry after (\d+) ms\)$/.exec(text)?.[1] ?? 0)
  return { said: `${status}${ms >= 1000 ? ', `grpc-retry-pushback-ms`' : ''}`, text }
}

/**
 * Waits until the server says that so many requests of a key are open: a request is over when its answer was written.
 */
async function untilOpen(to, key, count) {
  const line = `nereid_key_requests_in_flight{key="${key}"} ${count}\n`
  const deadline = Date.now() + SECONDS * 1000
  while (!(await (await fetch(`http://${to.host}:${to.ports.metrics}/metrics`)).text()).includes(line)) {
    if (Date.now() > deadline) throw new Error(`the metrics do not come to have ${line}`)
    await new Promise((resolve) => setTimeout(resolve, 20))
  }
}

/** @param serve starts the server of a section */
export async function quotaRows(context, serve) {
  const failures = []
  let passed = 0
  const server = await serve({ title: 'Quotas of keys', flags: [`--keys-file=${context.keys.file}`] }, context)
  const to = { host: context.network ?? '127.0.0.1', ports: server.ports }
  const origin = `http://${to.host}:${to.ports.http}`
  process.stdout.write('\n### Quotas of keys\n\n')
  try {
    for (const { title, key: name, http, grpc, body, held } of ROWS) {
      const key = context.keys[name]
      const other = held ? curl(origin, key, null) : null
      if (other !== null) await untilOpen(to, name, 1)
      const answers = [[http, await overHttp(origin, key, body)]]
      if (grpc !== null) answers.push([grpc, await overGrpc(context, to, key)])
      other?.child.stdin.end()
      await other?.printed
      await untilOpen(to, name, 0)
      const wrong = answers.filter(
        ([expected, { said, text }]) =>
          said !== expected ||
          (expected !== OPEN.http &&
            expected !== OPEN.grpc &&
            !text.includes(`The key '${name}' has used up the quota`)),
      )
      process.stdout.write(
        `${wrong.length === 0 ? 'ok    ' : 'FAILED'} | ` +
          `${[title, ...answers.map(([, { said }]) => said)].join(' | ')} ` +
          `|${wrong.map(([expected, { text }]) => ` not ${expected}: ${text.slice(-300)}`).join('')}\n`,
      )
      if (wrong.length === 0) passed += 1
      else failures.push(`Quotas of keys: ${title}`)
    }
  } finally {
    await end(server.child)
  }
  return { passed, failures }
}
