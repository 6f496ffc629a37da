/** Answers of a server that speaks TLS to openssl: versions, and certificates of clients. */
import { spawn } from 'node:child_process'
import { end } from '../../bench/lib/process.mjs'
import { sections } from './sections.mjs'

const SECONDS = 10
const ASK = 'GET /v2/health/live HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n'

/** Everything that `openssl s_client` printed; of a server that lets it in, an answer over HTTP as well. */
function client(host, port, pki, args) {
  return new Promise((resolve, reject) => {
    const child = spawn('openssl', [
      's_client',
      '-connect',
      `${host}:${port}`,
      '-CAfile',
      pki.root.cert,
      '-verify_return_error',
      '-ign_eof',
      ...args,
    ])
    let text = ''
    for (const stream of [child.stdout, child.stderr]) stream.on('data', (chunk) => (text += chunk))
    const timer = setTimeout(() => child.kill('SIGKILL'), SECONDS * 1000)
    child.once('error', reject)
    child.once('close', () => {
      clearTimeout(timer)
      resolve(text)
    })
    child.stdin.on('error', () => {})
    child.stdin.end(ASK)
  })
}

const isAnswered = (text) => text.includes('HTTP/1.1 200')
const spoke = (protocol) => (text) =>
  text.includes(`Protocol  : ${protocol}`) || text.includes(`${protocol},`) || text.includes(`New, ${protocol}`)

/** Facts: of which server, what is asked with, what must be so. */
const ROWS = (pki) => [
  ['tls', 'TLS 1.3 is spoken', ['-tls1_3'], (text) => isAnswered(text) && spoke('TLSv1.3')(text)],
  ['tls', 'TLS 1.2 is spoken', ['-tls1_2'], (text) => isAnswered(text) && spoke('TLSv1.2')(text)],
  ['tls', 'TLS 1.1 is refused', ['-tls1_1', '-cipher', 'ALL:@SECLEVEL=0'], (text) => !isAnswered(text)],
  ['tls', 'TLS 1.0 is refused', ['-tls1', '-cipher', 'ALL:@SECLEVEL=0'], (text) => !isAnswered(text)],
  [
    'tls',
    'ciphers without forward secrecy are refused',
    ['-tls1_2', '-cipher', 'AES128-SHA:AES256-SHA:AES128-GCM-SHA256'],
    (text) => !isAnswered(text),
  ],
  ['mutual', 'without a certificate nothing is answered', [], (text) => !isAnswered(text)],
  [
    'mutual',
    'a certificate of another root is refused',
    ['-cert', pki.foreign.cert, '-key', pki.foreign.key],
    (text) => !isAnswered(text),
  ],
  [
    'mutual',
    'a certificate without its key is refused',
    ['-cert', pki.client.cert, '-key', pki.foreign.key],
    (text) => !isAnswered(text),
  ],
  [
    'mutual',
    "the server's own certificate is none of a client",
    ['-cert', pki.server.cert, '-key', pki.server.key],
    (text) => !isAnswered(text),
  ],
  ['mutual', 'a certificate of the root is let in', ['-cert', pki.client.cert, '-key', pki.client.key], isAnswered],
]

/** @param serve starts the server of a section */
export async function tlsRows(context, serve) {
  const { pki, keys, places, network } = context
  const failures = []
  let passed = 0
  process.stdout.write('\n### TLS, asked by openssl\n\n')
  for (const id of ['tls', 'mutual']) {
    const server = await serve(
      sections(pki, keys, places).find((section) => section.id === id),
      context,
    )
    try {
      for (const [of, title, args, holds] of ROWS(pki)) {
        if (of !== id) continue
        const text = await client(network ?? '127.0.0.1', server.ports.http, pki, args)
        const isRight = holds(text)
        process.stdout.write(`${isRight ? 'ok    ' : 'FAILED'} | ${title} |${isRight ? '' : ` ${text.slice(-600)}`}\n`)
        if (isRight) passed += 1
        else failures.push(`TLS: ${title}`)
      }
    } finally {
      await end(server.child)
    }
  }
  return { passed, failures }
}
