/** the client of Azure Blob Storage, and servers with it, against Azurite. */
import { mkdirSync, rmSync, writeFileSync } from 'node:fs'
import { createRequire } from 'node:module'
import { join } from 'node:path'
import { freePorts } from '../../scripts/lib/ports.mjs'
import { ROOT } from '../../scripts/setup.mjs'
import { CLOUD, stores } from '../../scripts/stores.mjs'
import { startBetween } from '../stores/between.mjs'
import { must } from './lib/checks.mjs'
import { OBJECTS, all, askServer, askStore, clientVersion, mustThrow, startEmulator } from './lib/cloud.mjs'
import { npmProgram } from './lib/tools.mjs'

const HERE = join(ROOT, 'target', 'heavy', 'azure')
const VERSION = '3.35.0'
/** Account of every emulator of Azure, as its documentation prints it. */
const ACCOUNT = 'devstoreaccount1'
const KEY = 'Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=='
const PAGES = 5050

async function run(checks) {
  const emulator = await checks.step(`Azurite ${VERSION} is there`, () =>
    npmProgram('azurite-blob', 'azurite', VERSION),
  )
  process.stdout.write(`${emulator === undefined ? 'absent' : 'ran   '} Azurite ${VERSION}\n`)
  if (emulator === undefined) return 'absent: Azurite'
  rmSync(HERE, { recursive: true, force: true })
  mkdirSync(join(HERE, 'cache'), { recursive: true })
  await stores()
  const [port] = await freePorts(1)
  const address = `http://127.0.0.1:${port}`
  const stop = await startEmulator(
    emulator,
    [
      '--inMemoryPersistence',
      '--disableTelemetry',
      '--silent',
      '--blobHost',
      '127.0.0.1',
      '--blobPort',
      String(port),
      '--skipApiVersionCheck',
    ],
    address,
  )
  const between = await startBetween(port)
  try {
    const ownRequire = createRequire(join(ROOT, CLOUD, 'package.json'))
    const { BlobServiceClient, StorageSharedKeyCredential } = ownRequire('@azure/storage-blob')
    process.stdout.write(`ran    @azure/storage-blob ${clientVersion('@azure/storage-blob')}\n`)
    const service = new BlobServiceClient(`${address}/${ACCOUNT}`, new StorageSharedKeyCredential(ACCOUNT, KEY))
    for (const name of ['models', 'many']) await service.createContainer(name)
    const put = (name, bytes, options = {}, container = 'models') =>
      service.getContainerClient(container).getBlockBlobClient(name).upload(bytes, bytes.length, options)
    for (const [name, bytes] of Object.entries(OBJECTS)) await put(name, bytes)
    await put('repository/a/2', '', { metadata: { hdi_isfolder: 'true' } })
    await put('repository/a/1/', '')
    const environment = { AZURE_STORAGE_ACCOUNT: ACCOUNT, AZURE_STORAGE_KEY: KEY }
    const urlOf = (bucket) => `as://http://127.0.0.1:${between.port}/${ACCOUNT}//${bucket}/repository/`
    const open = await askStore(checks, {
      scheme: 'as',
      url: urlOf('models'),
      urlOf,
      environment,
      between,
      put,
      markers: ['a/1/', 'a/2/'],
    })
    await checks.step('a long list comes in pages', async () => {
      for (let i = 0; i < PAGES; i += 50)
        await Promise.all(Array.from({ length: 50 }, (_, j) => put(`repository/m/${i + j}`, 'x', {}, 'many')))
      const client = await open(urlOf('many'), environment)
      between.requests.length = 0
      must(
        new Set((await all(client)).map(({ path }) => path)).size === PAGES && between.requests.length > 1,
        `${between.requests.length} requests`,
      )
      client.close()
    })
    await askServer(checks, {
      url: `as://http://127.0.0.1:${port}/${ACCOUNT}/served/repository`,
      environment,
      cache: join(HERE, 'cache'),
      put: (name, bytes) => put(`repository/${name}`, bytes, {}, 'served'),
      createBucket: () => service.createContainer('served'),
      deleteBucket: () => service.deleteContainer('served'),
    })
    await checks.step('a key that is wrong or missing is refused, and the message says what to set', async () => {
      for (const [other, words] of [
        [{ AZURE_STORAGE_KEY: 'aGlkZGVu' }, 'AuthorizationFailure: set AZURE_STORAGE_ACCOUNT and AZURE_STORAGE_KEY'],
        [{ AZURE_STORAGE_KEY: '' }, 'no key was found'],
      ]) {
        const client = await open(urlOf('models'), { ...environment, ...other })
        await mustThrow('denied', words, () => all(client))
        client.close()
      }
      await mustThrow('invalid', "is 'keys'", () => open(urlOf('models'), { AZURE_STORAGE_AUTH_TYPE: 'keys' }))
    })
    await checks.step(
      'the credential file has the longest beginning, and is read again when storage refuses',
      async () => {
        const file = join(HERE, 'credentials.json')
        const write = (key) =>
          writeFileSync(
            file,
            JSON.stringify({
              as: {
                '': { account_str: 'nobody', account_key: 'aGlkZGVu' },
                [urlOf('models').slice(0, -1)]: { account_str: ACCOUNT, account_key: key },
              },
            }),
          )
        write('aGlkZGVu')
        const client = await open(urlOf('models'), { AZURE_STORAGE_KEY: KEY, TRITON_CLOUD_CREDENTIAL_PATH: file })
        await mustThrow('denied', file, () => all(client))
        write(KEY)
        must((await all(client)).length > 0, 'nothing is listed')
        client.close()
      },
    )
    await checks.step('places that are none are told', async () => {
      for (const url of ['as://', 'as://account', 'as://http://127.0.0.1:1', 'as://user@account/container'])
        await mustThrow('invalid', 'write as://ACCOUNT/CONTAINER/PATH', () => open(url, environment))
    })
    return `Azurite ${VERSION}, @azure/storage-blob ${clientVersion('@azure/storage-blob')}, Node ${process.version}`
  } finally {
    await between.stop()
    await stop()
  }
}

export const azure = {
  about: 'the client of Azure Blob Storage (`npm run stores`), and servers, against Azurite (npm)',
  missing: () => [],
  steps: ['npm packages', 'native module', 'TypeScript'],
  run,
}
