/**
 * the client of Google Cloud Storage, and servers with it, against fake-gcs-server, which Google's Python client
 * fills, and against a service of tokens of its own for what needs one.
 */
import { spawn } from 'node:child_process'
import { mkdirSync, rmSync, writeFileSync } from 'node:fs'
import { createServer } from 'node:http'
import { join } from 'node:path'
import { createInterface } from 'node:readline'
import { peerEnvironment } from '../../bench/lib/venv.mjs'
import { freePorts } from '../../scripts/lib/ports.mjs'
import { ROOT } from '../../scripts/setup.mjs'
import { stores } from '../../scripts/stores.mjs'
import { startBetween } from '../stores/between.mjs'
import { must } from './lib/checks.mjs'
import { OBJECTS, all, askServer, askStore, mustThrow, startEmulator } from './lib/cloud.mjs'
import { goMissing, goProgram } from './lib/tools.mjs'

const HERE = join(ROOT, 'target', 'heavy', 'gcs')
const VERSION = 'v1.56.1'
const PACKAGE = 'google-cloud-storage'
const PACKAGE_VERSION = '3.17.1'
const PAGES = 1050

const told = (line) => process.stdout.write(`${line}\n`)

/** Google's Python client in a process of its own; each request waits for the one before it. */
function startFiller(python, address) {
  const child = spawn(python, [join(ROOT, 'test/heavy/gcs/fill.py')], {
    stdio: ['pipe', 'pipe', 'inherit'],
    env: { ...process.env, STORAGE_EMULATOR_HOST: address },
  })
  const ended = new Promise((resolve) => child.once('exit', resolve))
  const lines = createInterface({ input: child.stdout })[Symbol.asyncIterator]()
  let before = Promise.resolve()
  const ask = async (request) => {
    const answer = before.then(() => {
      child.stdin.write(`${JSON.stringify(request)}\n`)
      return lines.next()
    })
    before = answer.catch(() => {})
    const { value, done } = await answer
    must(!done, 'the Python client ended')
    const { error } = JSON.parse(value)
    must(error === undefined, `the Python client: ${error}`)
  }
  return {
    create: (bucket) => ask({ do: 'create', bucket }),
    remove: (bucket) => ask({ do: 'delete', bucket }),
    put: (name, bytes, bucket = 'models') =>
      ask({ do: 'put', bucket, name, base64: Buffer.from(bytes).toString('base64') }),
    async stop() {
      child.stdin.end()
      await ended
    },
  }
}

/** Gives the tokens in `given`, one after the other, and then refuses. */
async function startTokens(given) {
  const server = createServer((_, answer) => {
    const token = given.shift()
    answer.writeHead(token === undefined ? 400 : 200, { 'content-type': 'application/json' })
    answer.end(
      JSON.stringify(
        token === undefined
          ? { error: 'invalid_grant', error_description: 'hidden' }
          : {
              access_token: token,
              issued_token_type: 'urn:ietf:params:oauth:token-type:access_token',
              expires_in: 3600,
              token_type: 'Bearer',
            },
      ),
    )
  })
  await new Promise((resolve) => server.listen(0, '127.0.0.1', resolve))
  return {
    url: `http://127.0.0.1:${server.address().port}/token`,
    stop: () => (server.close(), server.closeAllConnections()),
  }
}

async function run(checks) {
  const emulator = await checks.step(`fake-gcs-server ${VERSION} is built`, () =>
    goProgram('fake-gcs-server', 'github.com/fsouza/fake-gcs-server', VERSION),
  )
  const client = await checks.step(`${PACKAGE} ${PACKAGE_VERSION} is there`, () =>
    peerEnvironment(ROOT, 'gcs', [`${PACKAGE}==${PACKAGE_VERSION}`], told, { compile: false }),
  )
  told(`${emulator === undefined ? 'absent' : 'ran   '} fake-gcs-server ${VERSION}`)
  told(`${client === undefined ? 'absent' : 'ran   '} ${PACKAGE} ${PACKAGE_VERSION}`)
  if (emulator === undefined || client === undefined) return 'absent: fake-gcs-server or its Python client'
  rmSync(HERE, { recursive: true, force: true })
  mkdirSync(join(HERE, 'cache'), { recursive: true })
  await stores()
  const [port] = await freePorts(1)
  const address = `http://127.0.0.1:${port}`
  const stop = await startEmulator(
    emulator,
    [
      '-scheme',
      'http',
      '-backend',
      'memory',
      '-host',
      '127.0.0.1',
      '-port',
      String(port),
      '-public-host',
      `127.0.0.1:${port}`,
    ],
    address,
  )
  const between = await startBetween(port)
  const given = ['first', 'second', 'third']
  const tokens = await startTokens(given)
  const filler = startFiller(client.python, address)
  try {
    const { put } = filler
    for (const name of ['models', 'many']) await filler.create(name)
    for (const [name, bytes] of Object.entries(OBJECTS)) await put(name, bytes)
    await put('repository/a/1/', '')
    const environment = { STORAGE_EMULATOR_HOST: `127.0.0.1:${between.port}` }
    const open = await askStore(checks, {
      scheme: 'gs',
      url: 'gs://models//repository/',
      urlOf: (bucket) => `gs://${bucket}/repository`,
      environment,
      between,
      put,
      markers: ['a/1/'],
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
    await askServer(checks, {
      url: 'gs://served/repository',
      environment: { STORAGE_EMULATOR_HOST: `127.0.0.1:${port}` },
      cache: join(HERE, 'cache'),
      put: (name, bytes) => put(`repository/${name}`, bytes, 'served'),
      createBucket: () => filler.create('served'),
      deleteBucket: () => filler.remove('served'),
    })
    // A federated credential, because it names its token endpoint; tokens of service accounts always come from Google.
    const key = join(HERE, 'key.json')
    const subject = join(HERE, 'subject')
    writeFileSync(subject, 'hidden')
    const federated = {
      type: 'external_account',
      audience: '//iam.googleapis.com/x',
      subject_token_type: 'urn:ietf:params:oauth:token-type:jwt',
      token_url: tokens.url,
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
      await mustThrow('denied', "Google's token service answered 400 invalid_grant", () => all(client))
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
    return `fake-gcs-server ${VERSION}, ${PACKAGE} ${PACKAGE_VERSION}, Node ${process.version}`
  } finally {
    tokens.stop()
    await filler.stop()
    await between.stop()
    await stop()
  }
}

export const gcs = {
  about: 'the client of Google Cloud Storage (`npm run stores`), and servers, against fake-gcs-server (Go)',
  missing: () => [goMissing()].filter((line) => line !== null),
  steps: ['npm packages', 'native module', 'TypeScript'],
  run,
}
