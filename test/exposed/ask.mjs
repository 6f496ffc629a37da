/**
 * The clients: curl asks for all verbs of a column in one process; tritonclient (grpc_client.py) in one that lives as
 * long as the run.
 */
import { spawn } from 'node:child_process'
import { readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { createInterface } from 'node:readline'
import { fileURLToPath } from 'node:url'
import { PYTHON } from '../../scripts/lib/venv.mjs'

const SECONDS = 20
const quoted = (text) => `"${text.replaceAll('\\', '\\\\').replaceAll('"', '\\"')}"`

/** Names of headers that stand more than once in a head. */
function repeatedHeaders(head) {
  const names = [...head.matchAll(/^([\w-]+):/gm)].map(([, name]) => name.toLowerCase())
  return names.filter((name, at) => names.indexOf(name) !== at)
}

/**
 * Asks for verbs over HTTP.
 *
 * @param to `{ host, ports, tls, headers, sockets }`; `tls` has paths of PEM files, `sockets` those of Unix sockets
 * @returns {Promise<Map<string, [string, string]>>} verb → status and text of the answer
 */
export async function askCurl(to, verbs, directory) {
  const asked = verbs.filter(({ http }) => http !== null)
  const file = (verb) => join(directory, `${verb.id}.answer`)
  const parts = asked.map((verb) => {
    // The port of the metrics speaks plain text, whatever the others do.
    const isSecure = to.tls !== undefined && verb.http.port === undefined
    const origin = `${isSecure ? 'https' : 'http'}://${to.host}:${to.ports[verb.http.port ?? 'http']}`
    const lines = [
      `url = ${quoted(origin + verb.http.path)}`,
      `request = ${verb.http.method}`,
      `output = ${quoted(file(verb))}`,
      'write-out = "%{http_code} %{exitcode}\\n"',
      `max-time = ${verb.http.seconds ?? SECONDS}`,
      'path-as-is',
      `dump-header = ${quoted(`${file(verb)}.head`)}`,
      'silent',
    ]
    if (verb.http.body !== undefined) lines.push(`data-binary = ${quoted(verb.http.body)}`)
    if (verb.http.port === undefined)
      for (const [name, value] of Object.entries(to.headers ?? {}))
        lines.push(`header = ${quoted(`${name}: ${value}`)}`)
    if (verb.http.port === undefined && to.sockets !== undefined) lines.push(`unix-socket = ${quoted(to.sockets.http)}`)
    if (isSecure) lines.push(`cacert = ${quoted(to.tls.root)}`)
    if (isSecure && to.tls.cert !== undefined)
      lines.push(`cert = ${quoted(to.tls.cert)}`, `key = ${quoted(to.tls.key)}`)
    for (const written of [file(verb), `${file(verb)}.head`]) writeFileSync(written, '')
    return lines.join('\n')
  })
  const child = spawn('curl', ['--config', '-'], { stdio: ['pipe', 'pipe', 'inherit'] })
  child.stdin.end(parts.join('\nnext\n'))
  let text = ''
  child.stdout.on('data', (chunk) => (text += chunk))
  await new Promise((resolve, reject) => child.once('close', resolve).once('error', reject))
  const lines = text.trim().split('\n')
  return new Map(
    asked.map((verb, i) => {
      const [status, code] = (lines[i] ?? 'none none').split(' ')
      const said = readFileSync(file(verb), 'utf8').slice(0, 2000)
      const twice = repeatedHeaders(readFileSync(`${file(verb)}.head`, 'latin1'))
      if (twice.length > 0) return [verb.id, ['twice', `headers that stand twice: ${twice.join(', ')}`]]
      return [verb.id, status === '000' ? ['no connection', `curl: ${code}`] : [status, said]]
    }),
  )
}

/** tritonclient over gRPC. */
export class GrpcClient {
  constructor() {
    this.child = spawn(PYTHON, [fileURLToPath(new URL('grpc_client.py', import.meta.url))], {
      stdio: ['pipe', 'pipe', 'inherit'],
      env: { ...process.env, PYTHONDONTWRITEBYTECODE: '1', GRPC_VERBOSITY: 'NONE' },
    })
    this.waiting = []
    createInterface({ input: this.child.stdout }).on('line', (line) => this.waiting.shift()?.resolve(JSON.parse(line)))
    this.child.once('close', (code) => {
      for (const one of this.waiting) one.reject(new Error(`grpc_client.py ended with ${code}`))
    })
  }

  /** Like `askCurl`, over gRPC. */
  async ask(to, verbs, { key, file }) {
    const target = to.sockets === undefined ? `${to.host}:${to.ports.grpc}` : `unix:${to.sockets.grpc}`
    const ids = verbs.filter(({ grpc }) => grpc !== null).map(({ id }) => id)
    const answer = new Promise((resolve, reject) => this.waiting.push({ resolve, reject }))
    this.child.stdin.write(
      `${JSON.stringify({ target, metadata: to.headers ?? {}, tls: to.tls ?? null, verbs: ids, key, file })}\n`,
    )
    return new Map(Object.entries(await answer))
  }

  end() {
    this.child.stdin.end()
  }
}
