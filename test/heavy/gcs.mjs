/**
 * the client of Google Cloud Storage against fake-gcs-server, and against a service of tokens of its own for what
 * needs one.
 */
import { mkdirSync, rmSync, writeFileSync } from 'node:fs'
import { createServer } from 'node:http'
import { homedir } from 'node:os'
import { join } from 'node:path'
import { freePorts } from '../../scripts/lib/ports.mjs'
import { ask } from '../../scripts/lib/run.mjs'
import { ROOT } from '../../scripts/setup.mjs'
import { stores } from '../../scripts/stores.mjs'
import { startBetween } from '../stores/between.mjs'
import { must } from './lib/checks.mjs'
import { OBJECTS, all, askStore, mustThrow, programAt, startEmulator } from './lib/cloud.mjs'

const HERE = join(ROOT, 'target', 'heavy', 'gcs')
const VERSION = 'v1.56.1'
const PAGES = 1050

const program = () => programAt('fake-gcs-server', join(ask('go', ['env', 'GOPATH']) ?? join(homedir(), 'go'), 'bin'))

/** Gives the tokens in `given`, one after the other, and then refuses. */
async function startTokens(given) {
  const server = createServer((_, answer) => {
    const token = given.shift()
    answer.writeHead(token === undefined ? 400 : 200, { 'content-type': 'application/json' })
    answer.end(
      JSON.stringify(
        token === undefined ? { error: 'invalid_grant', error_description: 'hidden' }
          : {
              access_token: token, issued_token_type: 'urn:ietf:params:oauth:token-type:access_token', expires_in: 3600,
              token_type: 'Bearer',
            },
      ),
    )
  })
  await new Promise((resolve) => server.listen(0, '127.0.0.1', resolve))
  return {
    url: `http://127.0.0.1:${server.address().port}/token`, stop: () => (server.close(), server.closeAllConnections()),
  }
}

async function run(checks) {
  rmSync(HERE, { recursive: true, force: true })
  mkdirSync(HERE, { recursive: true })
  await stores()
  const [port] = await freePorts(1)
  const address = `http://127.0.0.1:${port}`
  const stop = await startEmulator(
    program(),
    [
      '-scheme', 'http', '-backend', 'memory', '-host', '127.0.0.1', '-port', String(port), '-public-host',
      `127.0.0.1:${port}`
    ],
    address,
  )
  const between = await startBetween(port)
  const given = ['first', 'second', 'third']
  const tokens = await startTokens(given)
  try {
    const put = (name, bytes, bucket = 'models') =>
      fetch(`${address}/upload/storage/v1/b/${bucket}/o?uploadType=media&name=${encodeURIComponent(name)}`, {
        method: 'POST', body: bytes,
      })
    for (const name of ['models', 'many'])
      await fetch(`${address}/storage/v1/b`, {
        method: 'POST', headers: { 'content-type': 'application/json' }, body: JSON.stringify({ name }),
      })
    for (const [name, bytes] of Object.entries(OBJECTS)) await put(name, bytes)
    await put('repository/a/1/', '')
    const environment = { STORAGE_EMULATOR_HOST: `127.0.0.1:${between.port}` }
    const open = await askStore(checks, {
      scheme: 'gs', url: 'gs://models//repository/', urlOf: (bucket) => `gs://${bucket}/repository`, environment,
      between, put, markers: ['a/1/'],
    })
    await checks.step('a long list comes in pages', async () => {
      for (let i = 0; i < PAGES; i += 50)
        await Promise.all(Array.from({ length: 50 }, (_, j) => put(`m/${i + j}`, 'x', 'many')))
      const client = await open('gs://many', environment)
      between.requests.length = 0
      must(
        new Set((await all(client)).map(({ path }) => path)).size === PAGES && between.requests.length > 1,
        `${between.requests.length} requests`,
      )
      client.close()
    })
    // A federated credential, because it names its token endpoint; tokens of service accounts always come from Google.
    const key = join(HERE, 'key.json')
    const subject = join(HERE, 'subject')
    writeFileSync(subject, 'hidden')
    const federated = {
      type: 'external_account', audience: '//iam.googleapis.com/x',
      subject_token_type: 'urn:ietf:params:oauth:token-type:jwt', token_url: tokens.url,
      credential_source: { file: subject },
    }
    writeFileSync(key, JSON.stringify(federated))
    const file = join(HERE, 'credentials.json')
    writeFileSync(file, JSON.stringify({ gs: { '': '/nothing', 'gs://models': key } }))
    const asked = () => between.requests.at(-1)?.headers.authorization
    await checks.step('the credential gives the token that is sent, and is read again when it is refused', async () => {
      const client = await open('gs://models/repository', { ...environment, GOOGLE_APPLICATION_CREDENTIALS: key })
      await all(client)
      must(asked() === 'Bearer first', `sent ${asked()}`)
      between.answers.push({ status: 401, body: '{"error":{"errors":[{"reason": "authError"}]}}' })
      await all(client)
      must(asked() === 'Bearer second', `sent ${asked()}`)
      between.answers.push(
        ...[0, 1].map(() => ({ status: 403, body: '{"error":{"errors":[{"reason": "forbidden"}]}}' })),
      )
      await mustThrow('denied', 'answered 403 forbidden: set GOOGLE_APPLICATION_CREDENTIALS', () => all(client))
      client.close()
    })
    await checks.step('a credential that is not taken, or that is none, is told without what is in it', async () => {
      const client = await open('gs://models/repository', { ...environment, TRITON_CLOUD_CREDENTIAL_PATH: file })
      await mustThrow('denied', "Google's service that gives tokens answered 400 invalid_grant", () => all(client))
      client.close()
      await mustThrow('invalid', '/nothing', () =>
        open('gs://other/repository', { ...environment, TRITON_CLOUD_CREDENTIAL_PATH: file }),
      )
      writeFileSync(key, '{"type": "service_account", "private_key": hidden')
      await mustThrow('invalid', 'is not a JSON object', () =>
        open('gs://models/repository', { ...environment, GOOGLE_APPLICATION_CREDENTIALS: key }),
      )
      writeFileSync(file, '{"gs": {"gs://else": "x"}}')
      await mustThrow('invalid', 'Cannot match credential for path  gs://models', () =>
        open('gs://models', { ...environment, TRITON_CLOUD_CREDENTIAL_PATH: file }),
      )
      await mustThrow('invalid', 'write gs://BUCKET/PATH', () => open('gs://', environment))
    })
    return `fake-gcs-server ${VERSION}, Node ${process.version}`
  } finally {
    tokens.stop()
    await between.stop()
    await stop()
  }
}

export const gcs = {
  about: 'the client of Google Cloud Storage (`npm run stores`) against fake-gcs-server',
  missing: () =>
    program() === null
      ? [`fake-gcs-server: CGO_ENABLED=0 go install github.com/fsouza/fake-gcs-server@${VERSION}`]
      : [],
  steps: ['npm packages'],
  run,
}
