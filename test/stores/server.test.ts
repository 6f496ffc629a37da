/** a server whose models are in S3, with the client that is shipped. */
import { mkdtempSync, readFileSync, readdirSync, rmSync, statSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join, relative } from 'node:path'
import { afterAll, beforeAll, expect, test } from 'vitest'
import { TestServer, repositories, simpleBody } from '../server/harness.js'
import { startMoto } from './moto.mjs'

let moto: Awaited<ReturnType<typeof startMoto>>
let cache: string
const repository = repositories()

beforeAll(async () => {
  cache = mkdtempSync(join(tmpdir(), 'nereid-cache-'))
  moto = await startMoto()
  await moto.put('models')
  const root = repository.path('small')
  for (const name of readdirSync(root, { recursive: true }) as string[]) {
    const path = join(root, name)
    if (statSync(path).isFile()) await moto.put(`models/small/${relative(root, path)}`, readFileSync(path))
  }
}, 300_000)

afterAll(async () => {
  await moto?.stop()
  repository.remove()
  rmSync(cache, { recursive: true, force: true })
})

test('its models serve, and what it downloaded is there at the next start', async () => {
  for (let start = 0; start < 2; start += 1) {
    const env = { ...process.env, AWS_ACCESS_KEY_ID: 'reader', AWS_SECRET_ACCESS_KEY: 'hidden-secret' }
    const server = await TestServer.start(`s3://127.0.0.1:${moto.port}/models/small`, [`--repository-cache-directory=${cache}`], { env, path: '/v2/models/simple/ready' })
    try {
      const answer = await fetch(`${server.url}/v2/models/simple/infer`, { method: 'POST', body: simpleBody(3) })
      const { outputs } = (await answer.json()) as { outputs: { name: string; data: number[] }[] }
      expect(outputs.find(({ name }) => name === 'OUTPUT0')?.data).toEqual(Array(16).fill(6))
      const metrics = await (await fetch(`http://127.0.0.1:${server.metricsPort}/metrics`)).text()
      const bytes = Number(/^nereid_download_bytes_total\{[^}]*\} (\d+)$/m.exec(metrics)?.[1])
      if (start === 0) expect(bytes).toBeGreaterThan(0)
      else expect(bytes).toBe(0)
      expect(server.output()).not.toContain('hidden-secret')
    } finally {
      await server.stop()
    }
  }
})

test('a bucket that is absent ends the start, with what to look at', async () => {
  const env = { ...process.env, AWS_ACCESS_KEY_ID: 'reader', AWS_SECRET_ACCESS_KEY: 'hidden-secret' }
  const server = await TestServer.spawn(`s3://127.0.0.1:${moto.port}/nobody/small`, [`--repository-cache-directory=${cache}`], undefined, env)
  expect(await server.ended()).toBe(1)
  expect(server.output()).toContain(`the bucket 'nobody' does not exist at http://127.0.0.1:${moto.port}`)
  expect(server.output()).not.toContain('hidden-secret')
})
