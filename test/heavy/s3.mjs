/**
 * the client of S3, and servers with it, against versitygw; and a server that downloads 100 models of 100 MB,
 * beside boto3.
 */
import { spawn } from 'node:child_process'
import { mkdirSync, readFileSync, readdirSync, rmSync, writeFileSync } from 'node:fs'
import { createRequire } from 'node:module'
import { join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import { freePorts, listenFlags } from '../../scripts/lib/ports.mjs'
import { capture } from '../../scripts/lib/run.mjs'
import { ROOT } from '../../scripts/setup.mjs'
import { CLOUD, stores } from '../../scripts/stores.mjs'
import { startBetween } from '../stores/between.mjs'
import { motoEnvironment } from '../stores/moto.mjs'
import { must } from './lib/checks.mjs'
import { OBJECTS, all, askServer, askStore, clientVersion, startEmulator } from './lib/cloud.mjs'
import { goMissing, goProgram } from './lib/tools.mjs'

const HERE = join(ROOT, 'target', 'heavy', 's3')
const VERSION = 'v1.8.0'
const KEYS = { AWS_ACCESS_KEY_ID: 'reader', AWS_SECRET_ACCESS_KEY: 'hidden-secret', AWS_DEFAULT_REGION: 'us-east-1' }
const PAGES = 2100
/** `NEREID_HEAVY_MODELS` and `NEREID_HEAVY_MB` make it smaller. */
const MODELS = Number(process.env.NEREID_HEAVY_MODELS ?? 100)
const MODEL_MB = Number(process.env.NEREID_HEAVY_MB ?? 100)
/** A server with its runtimes, and 16 reads of 8 MiB that are written in parts. */
const PEAK_MIB_MAX = 400
/** Least rate, as a share of boto3's. */
const RATE_MIN = 0.8
const CONFIG = ['INPUT0', 'OUTPUT0']
  .map((name) => `${name === 'INPUT0' ? 'input' : 'output'} [ { name: "${name}" data_type: TYPE_FP32 dims: [ -1 ] } ]`)
  .join('\n')

/** Fills the bucket and downloads it, with Python's own client of S3: prints MB/s. */
const BOTO = `
import boto3, os, sys, time
s = boto3.client('s3', endpoint_url=sys.argv[1])
what, models, here = sys.argv[2], int(sys.argv[3]), sys.argv[4]
source = os.path.join(here, 'source')
if what == 'fill':
    s.create_bucket(Bucket='large')
    for i in range(models):
        config = open(os.path.join(here, 'config.pbtxt'), 'rb').read()
        s.put_object(Bucket='large', Key=f'm{i}/config.pbtxt', Body=config)
        # Equal contents are kept once.
        with open(source, 'r+b') as file:
            file.write(i.to_bytes(8, 'little'))
        s.upload_file(source, 'large', f'm{i}/1/weights')
else:
    begin = time.monotonic()
    for i in range(models):
        s.download_file('large', f'm{i}/1/weights', os.path.join(here, 'downloaded', str(i)))
    print(models * os.path.getsize(source) / 1e6 / (time.monotonic() - begin))
`

const told = (line) => process.stdout.write(`${line}\n`)

async function run(checks) {
  const emulator = await checks.step(`versitygw ${VERSION} is built`, () =>
    goProgram('versitygw', 'github.com/versity/versitygw/cmd/versitygw', VERSION),
  )
  const boto = await checks.step('boto3 is there', motoEnvironment)
  told(`${emulator === undefined ? 'absent' : 'ran   '} versitygw ${VERSION}`)
  told(boto === undefined ? 'absent boto3' : `ran    boto3 ${boto.version('boto3')}`)
  if (emulator === undefined) return 'absent: versitygw'
  rmSync(HERE, { recursive: true, force: true })
  for (const name of ['data', 'cache', 'served']) mkdirSync(join(HERE, name), { recursive: true })
  await stores()
  const [port] = await freePorts(1)
  const address = `http://127.0.0.1:${port}`
  const stop = await startEmulator(emulator, ['--port', `127.0.0.1:${port}`, 'posix', join(HERE, 'data')], address, {
    ROOT_ACCESS_KEY: KEYS.AWS_ACCESS_KEY_ID,
    ROOT_SECRET_KEY: KEYS.AWS_SECRET_ACCESS_KEY,
  })
  const between = await startBetween(port)
  try {
    const {
      S3Client,
      CreateBucketCommand,
      DeleteBucketCommand,
      DeleteObjectCommand,
      ListObjectsV2Command,
      PutObjectCommand,
    } = createRequire(join(ROOT, CLOUD, 'package.json'))('@aws-sdk/client-s3')
    told(`ran    @aws-sdk/client-s3 ${clientVersion('@aws-sdk/client-s3')}`)
    const client = new S3Client({
      endpoint: address,
      forcePathStyle: true,
      region: KEYS.AWS_DEFAULT_REGION,
      credentials: { accessKeyId: KEYS.AWS_ACCESS_KEY_ID, secretAccessKey: KEYS.AWS_SECRET_ACCESS_KEY },
    })
    for (const Bucket of ['models', 'many']) await client.send(new CreateBucketCommand({ Bucket }))
    const put = (Key, Body, Bucket = 'models') => client.send(new PutObjectCommand({ Bucket, Key, Body }))
    for (const [name, bytes] of Object.entries(OBJECTS)) await put(name, bytes)
    await put('repository/a/1/', '')
    const urlOf = (bucket) => `s3://127.0.0.1:${between.port}/${bucket}/repository`
    const open = await askStore(checks, {
      scheme: 's3',
      url: urlOf('models'),
      urlOf,
      environment: KEYS,
      between,
      put,
      markers: ['a/1/'],
    })
    await checks.step('a long list comes in pages', async () => {
      for (let i = 0; i < PAGES; i += 50)
        await Promise.all(Array.from({ length: 50 }, (_, j) => put(`repository/m/${i + j}`, 'x', 'many')))
      const many = await open(urlOf('many'), KEYS)
      between.requests.length = 0
      must(
        new Set((await all(many)).map(({ path }) => path)).size >= PAGES && between.requests.length > 1,
        `${between.requests.length} requests`,
      )
      many.close()
    })
    await askServer(checks, {
      url: `s3://127.0.0.1:${port}/served/repository`,
      environment: KEYS,
      cache: join(HERE, 'served'),
      put: (name, bytes) => put(`repository/${name}`, bytes, 'served'),
      createBucket: () => client.send(new CreateBucketCommand({ Bucket: 'served' })),
      async deleteBucket() {
        const { Contents = [] } = await client.send(new ListObjectsV2Command({ Bucket: 'served' }))
        for (const { Key } of Contents) await client.send(new DeleteObjectCommand({ Bucket: 'served', Key }))
        await client.send(new DeleteBucketCommand({ Bucket: 'served' }))
      },
    })
    const large = boto === undefined ? 'absent: boto3' : await downloads(checks, boto.python, port)
    return (
      `versitygw ${VERSION}, @aws-sdk/client-s3 ${clientVersion('@aws-sdk/client-s3')}, Node ${process.version}; ` +
      `${MODELS} models of ${MODEL_MB} MB: ${large}`
    )
  } finally {
    await between.stop()
    await stop()
    rmSync(HERE, { recursive: true, force: true })
  }
}

/** A server that downloads many large models, beside boto3. Resolves with the figures, even if they are too low. */
async function downloads(checks, python, port) {
  let measured = 'no figure'
  await checks.step(`${MODELS} models of ${MODEL_MB} MB: bounded memory, and as fast as boto3`, async () => {
    writeFileSync(join(HERE, 'config.pbtxt'), `backend: "identity"\nmax_batch_size: 0\n${CONFIG}\n`)
    writeFileSync(join(HERE, 'source'), Buffer.alloc(MODEL_MB * 1e6, 'weights'))
    const boto = async (what) => {
      const args = ['-c', BOTO, `http://127.0.0.1:${port}`, what, String(MODELS), HERE]
      const { code, text } = await capture(python, args, { quiet: true, env: { ...process.env, ...KEYS } })
      must(code === 0, `boto3: ${text}`)
      return Number(text.trim())
    }
    await boto('fill')
    // Each into a file of its own, as the server does.
    mkdirSync(join(HERE, 'downloaded'))
    const theirs = await boto('get')
    rmSync(join(HERE, 'downloaded'), { recursive: true })
    const ports = await freePorts(3)
    const server = spawn(
      process.execPath,
      [
        join(ROOT, 'dist/cli/main.js'),
        `--model-repository=s3://127.0.0.1:${port}/large`,
        `--repository-cache-directory=${join(HERE, 'cache')}`,
        ...listenFlags(ports),
      ],
      { env: { ...process.env, ...KEYS }, stdio: ['ignore', 'pipe', 'pipe'] },
    )
    const ended = new Promise((resolve) => server.once('exit', resolve))
    let log = ''
    for (const stream of [server.stdout, server.stderr]) stream.on('data', (text) => (log += String(text)))
    try {
      while (
        !(await fetch(`http://127.0.0.1:${ports[0]}/v2/health/ready`).then(
          ({ ok }) => ok,
          () => false,
        ))
      ) {
        must(server.exitCode === null, `the server ended: ${log.slice(-2000)}`)
        await sleep(100)
      }
      const ours = (MODELS * MODEL_MB) / loadSeconds(log)
      const peak = Number(/VmHWM:\s+(\d+)/.exec(readFileSync(`/proc/${server.pid}/status`, 'utf8'))?.[1]) / 1024
      measured =
        `${ours.toFixed(0)} MB/s, boto3 ${theirs.toFixed(0)} MB/s (${(ours / theirs).toFixed(2)}); at most ` +
        `${peak.toFixed(0)} MiB`
      told(measured)
      must(readdirSync(join(HERE, 'cache')).length === 1, 'no cache')
      must(peak < PEAK_MIB_MAX, `${peak.toFixed(0)} MiB, at most ${PEAK_MIB_MAX}`)
      must(ours >= RATE_MIN * theirs, `${ours.toFixed(0)} MB/s, and boto3 gets ${theirs.toFixed(0)}`)
    } finally {
      server.kill('SIGTERM')
      await ended
    }
  })
  return measured
}

/** Seconds from the first line of the log to that of the last download. */
function loadSeconds(log) {
  const took = [...log.matchAll(/ MiB downloaded in ([\d.]+) s/g)].map(([, seconds]) => Number(seconds))
  // They begin together, and the last one ends last.
  return Math.max(...took)
}

export const s3 = {
  about: 'the client of S3 (`npm run stores`), and servers, against versitygw (Go); 100 models of 100 MB beside boto3',
  missing: () => [goMissing()].filter((line) => line !== null),
  steps: ['npm packages', 'native module', 'TypeScript'],
  run,
  isPart: () => MODELS !== 100 || MODEL_MB !== 100,
}
